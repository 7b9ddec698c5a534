//! States of a connection in the connection manager.

use ferroce_proto::cm::State as Cm;

use super::topic;
use crate::explain::lab::Scenario::*;
use crate::explain::topic::Example::Connection;
use crate::explain::topic::Topic;

pub(super) const TOPICS: &[Topic] = &[
    topic!(Connection "idle", "Idle", ["cm idle"],
        "There is no connection.", "The connection manager keeps no state. A listener stays here until a REQ arrives.",
        "IBA 12.9", ["req_sent", "req_received"], Connection(Connect, Cm::Idle), ["CM REQ", "Idle"]),
    topic!(Connection "req_sent", "REQ sent", ["ReqSent", "cm req sent"],
        "The client has asked for a connection and waits for the answer.",
        "The REQ is repeated after a timeout, up to max_cm_retries times. A REP leads on, a REJ back to Idle.",
        "IBA 12.9", ["req", "rep_received", "rej"], Connection(Connect, Cm::ReqSent), ["CM REQ", "CM REP"]),
    topic!(Connection "req_received", "REQ received", ["ReqReceived", "cm req received"],
        "The server has been asked for a connection; its program has not answered yet.",
        "The program gets RDMA_CM_EVENT_CONNECT_REQUEST and accepts (REP) or rejects (REJ). If it takes long, an MRA asks the \
         client to wait.",
        "IBA 12.9", ["rep_sent", "mra"], Connection(Connect, Cm::ReqReceived), ["B gets the connection request", "CM REP"]),
    topic!(Connection "rep_sent", "REP sent", ["RepSent", "cm rep sent"],
        "The server has accepted and waits for the client's confirmation.",
        "The QP is in RTR or RTS. An RTU, or the first message of the client, establishes the connection.",
        "IBA 12.9", ["rep", "rtu", "established"], Connection(Connect, Cm::RepSent), ["CM REP", "CM RTU"]),
    topic!(Connection "rep_received", "REP received", ["RepReceived", "cm rep received"],
        "The server has accepted; the client brings its QP to RTS and confirms.",
        "librdmacm does both by itself if it created the QP, and reports RDMA_CM_EVENT_ESTABLISHED.",
        "IBA 12.9", ["rep", "rtu"], Connection(Connect, Cm::RepReceived), ["CM REP", "CM RTU"]),
    topic!(Connection "established", "Established", ["cm established", "connected", "RDMA_CM_EVENT_ESTABLISHED"],
        "The connection is up: both QPs are in RTS.",
        "It ends with a DREQ of either side, or when the peer is lost.",
        "IBA 12.9", ["rts", "dreq"], Connection(Connect, Cm::Established), ["A is connected; its QP is in RTS"]),
    topic!(Connection "mra_req_received", "MRA for the REQ received", ["MraReqReceived"],
        "The server has asked the client to wait for its answer.",
        "The client's timeout is prolonged by the service timeout in the MRA, after which it repeats the REQ.",
        "IBA 12.9", ["mra", "req_sent"], Connection(Connect, Cm::MraReqReceived), ["MraReqReceived"]),
    topic!(Connection "mra_req_sent", "MRA for the REQ sent", ["MraReqSent"],
        "The server has asked the client for more time.",
        "The program may still accept or reject.", "IBA 12.9", ["mra", "req_received"],
        Connection(Connect, Cm::MraReqSent), ["MraReqSent"]),
    topic!(Connection "mra_rep_sent", "MRA for the REP sent", ["MraRepSent"],
        "The client has asked the server to wait for its confirmation.",
        "The program of the client is not ready yet.", "IBA 12.9", ["mra", "rep_received"],
        Connection(Connect, Cm::MraRepSent), ["MraRepSent"]),
    topic!(Connection "mra_rep_received", "MRA for the REP received", ["MraRepReceived"],
        "The client has asked the server to wait for its confirmation.",
        "The server's timeout is prolonged, after which it repeats the REP.", "IBA 12.9", ["mra", "rep_sent"],
        Connection(Connect, Cm::MraRepReceived), ["MraRepReceived"]),
    topic!(Connection "dreq_sent", "DREQ sent", ["DreqSent"],
        "This side has ended the connection and waits for the peer's confirmation.",
        "The QP goes to ERR, and its requests are flushed. The DREQ is repeated until a DREP arrives or the retries are used up.",
        "IBA 12.9", ["dreq", "timewait"], Connection(Connect, Cm::DreqSent), ["CM DREQ", "CM DREP"]),
    topic!(Connection "dreq_received", "DREQ received", ["DreqReceived"],
        "The peer has ended the connection.",
        "The program gets RDMA_CM_EVENT_DISCONNECTED; the answer is a DREP.",
        "IBA 12.9", ["dreq", "timewait"], Connection(Connect, Cm::DreqReceived), ["CM DREQ", "CM DREP"]),
    topic!(Connection "timewait", "TimeWait", ["time wait", "cm timewait", "RDMA_CM_EVENT_TIMEWAIT_EXIT"],
        "The connection is over, but its numbers are not used again until late packets of it have died.",
        "Lasts for twice the packet lifetime and the ACK timeout of the connection; then RDMA_CM_EVENT_TIMEWAIT_EXIT is reported.",
        "IBA 12.9.8", ["dreq", "idle"], Connection(Connect, Cm::TimeWait), ["A has disconnected", "TimeWait"]),
];
