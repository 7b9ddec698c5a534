//! Transport services.

use super::topic;
use crate::explain::lab::Scenario::*;
use crate::explain::topic::Example::Ladder;
use crate::explain::topic::Topic;

pub(super) const TOPICS: &[Topic] = &[
    topic!(Transport "rc", "RC: reliable connection", ["IBV_QPT_RC", "reliable connection"],
        "Two QPs connected to each other. Everything arrives, once and in order, or the connection fails with an error.",
        "Requests carry consecutive PSNs; the responder acknowledges them, asks for lost ones with a NAK, and executes each \
         once. All operations are available. Messages have up to 2^31 bytes.",
        "IBA 9.7", ["psn", "ack", "nak", "uc"], Ladder(LongWrite), ["RC RDMA WRITE First", "RC ACK"]),
    topic!(Transport "uc", "UC: unreliable connection", ["IBV_QPT_UC", "unreliable connection"],
        "Two QPs connected to each other, without acknowledgements: a message with a lost packet is lost.",
        "SEND and RDMA WRITE only. The receiver drops a message at the first gap in the PSNs. The sender's completion means \
         that the packets were sent, not that they arrived.",
        "IBA 9.8.2", ["rc", "ud"], Ladder(UcWrite), ["UC RDMA WRITE First", "UC RDMA WRITE Last"]),
    topic!(Transport "ud", "UD: unreliable datagram", ["IBV_QPT_UD", "unreliable datagram", "datagram"],
        "One QP that sends to and receives from any other: packets of up to one MTU, some of which may be lost.",
        "Each send names an address handle, a QPN and a Q_Key; the DETH carries the Q_Key and the sender's QPN. The \
         receiver's buffer starts with 40 bytes of GRH. Multicast is possible. An error of the send queue leads to SQE.",
        "IBA 9.8.3", ["deth", "qkey", "ah", "grh"], Ladder(Datagram), ["UD SEND Only", "Q_Key", "the first 40 are the GRH"]),
    topic!(Transport "xrc", "XRC: extended reliable connection", ["IBV_QPT_XRC_SEND", "IBV_QPT_XRC_RECV", "xrc_ini", "xrc_tgt"],
        "As RC, but each message names the queue of the receiving process: one connection per process and host instead of \
         one per pair of processes.",
        "The initiator QP only sends, the target QP only receives; the XRCETH names the shared receive queue (SRQ) that a \
         SEND consumes from.",
        "IBA A14", ["xrceth", "srq", "rc"], Ladder(Xrc), ["XRC SEND Only", "SRQ"]),
];
