//! States of a QP.

use ferroce::State as Qp;

use super::topic;
use crate::explain::lab::Scenario::*;
use crate::explain::topic::Example::State;
use crate::explain::topic::Topic;

pub(super) const TOPICS: &[Topic] = &[
    topic!(State "reset", "RESET", ["IBV_QPS_RESET", "state 0"],
        "A QP just after it was created: it does nothing yet.",
        "No attributes are set and nothing can be posted. A QP can be moved to RESET from any state, which discards its work \
         requests and completions.",
        "IBA 10.3.1.1", ["init", "modify_qp"], State(States, Qp::Reset), ["A creates a QP: it is in RESET", "RESET → INIT"]),
    topic!(State "init", "INIT: initialized", ["IBV_QPS_INIT", "state 1", "initialized"],
        "The QP knows its port and who may access its memory. Post receive buffers now, before the peer can send.",
        "Receives are queued and not consumed; posting a send is refused; arriving packets are dropped.",
        "IBA 10.3.1.2", ["rtr", "recv"], State(States, Qp::Init), ["INIT → RTR", "posting a SEND in INIT is refused"]),
    topic!(State "rtr", "RTR: ready to receive", ["IBV_QPS_RTR", "state 2", "ready to receive"],
        "The QP knows its peer and executes the peer's requests, but does not send requests itself.",
        "Needs the path, the path MTU, the peer's QPN and the first PSN to expect; on RC also min_rnr_timer and \
         max_dest_rd_atomic. ACKs and READ responses are sent.",
        "IBA 10.3.1.3", ["rts", "psn", "mtu"], State(States, Qp::ReadyToReceive), ["RTR → RTS", "destination QPN"]),
    topic!(State "rts", "RTS: ready to send", ["IBV_QPS_RTS", "state 3", "ready to send"],
        "The normal state: everything works.",
        "Needs the first PSN to send; on RC also the ACK timeout, the retry counts and max_rd_atomic.",
        "IBA 10.3.1.4", ["timeout", "retry_exc_err", "sqd"], State(States, Qp::ReadyToSend), ["the QP is in RTS", "send PSN"]),
    topic!(State "sqd", "SQD: send queue drain", ["IBV_QPS_SQD", "state 4", "send queue drain", "drain"],
        "Requests that have started are finished, new ones wait: for changing the path of a connection that is in use.",
        "From RTS and back. Some attributes, such as the path and the retry counts, can only be changed here. An async event \
         reports that the queue is drained, if it was asked for.",
        "IBA 10.3.1.5", ["rts"], State(Drain, Qp::SendQueueDrain), ["A modifies its QP to SQD", "the request starts", "RTS → SQD"]),
    topic!(State "sqe", "SQE: send queue error", ["IBV_QPS_SQE", "state 5", "send queue error"],
        "A send of an unreliable QP failed. Receiving still works, and the program may send again after a modify to RTS.",
        "Only UC and UD: an error of the send queue leads here, and later sends are flushed. RC goes to ERR instead.",
        "IBA 10.3.1.6", ["err", "ud"], State(UdError, Qp::SendQueueError), ["A's QP is in SQE", "modifies it to RTS"]),
    topic!(State "err", "ERR: error", ["IBV_QPS_ERR", "state 6", "error state", "error"],
        "The connection is over. Every request that is queued or posted completes with \"flushed\".",
        "After an error of the connection, a disconnect, or a modify. Only RESET leaves this state. Look for the first \
         completion whose status is not \"flushed\" to learn the reason.",
        "IBA 10.3.1.7", ["wr_flush_err", "reset"], State(WrongRkey, Qp::Error), ["A's QP is in ERR", "ERR → RESET"]),
];
