//! Counters, with the names of Linux's hw_counters (docs/counters.md).

use super::topic;
use crate::explain::lab::Scenario::*;
use crate::explain::topic::Example::Counter;
use crate::explain::topic::Topic;

pub(super) const TOPICS: &[Topic] = &[
    topic!(Counter "duplicate_request", "duplicate_request", ["duplicates", "duplicate"],
        "Requests that had arrived before. The peer repeats what it believes lost, mostly because an ACK was lost or late.",
        "Responder: a request with an earlier PSN. It is acknowledged again; only READs are executed again. Many of them: the \
         ACK timeout is too short, or the way back loses packets.",
        "IBA 9.7.5.1; Linux hw_counters", ["local_ack_timeout_err", "psn"], Counter(LostAcknowledgement, "duplicate_request"), ["duplicate_request", "lost on purpose"]),
    topic!(Counter "out_of_sequence", "out_of_sequence", ["oos"],
        "Requests that arrived after a gap: a packet before them was lost or overtaken.",
        "Responder: each request behind a missing PSN. The first one is answered with NAK \"PSN sequence error\".",
        "IBA 9.7.5.2.8; Linux hw_counters", ["packet_seq_err", "nak"], Counter(LostRequest, "out_of_sequence"), ["out_of_sequence", "PSN sequence error"]),
    topic!(Counter "out_of_window_request", "out_of_window_request", ["out of window"],
        "Requests whose number makes no sense for this connection: packets of an old connection, or forged ones.",
        "Responder: a PSN more than 2^22 from the expected one, or before the first of the connection. Dropped without an \
         answer. Both sides must be set up with matching sq_psn and rq_psn.",
        "IBA 9.7.4.1; Ferroce's own counter", ["psn"], Counter(OutOfWindow, "out_of_window_request"), ["out_of_window_request", "2^23"]),
    topic!(Counter "packet_seq_err", "packet_seq_err", ["packet sequence error", "psn sequence error", "nak sequence error"],
        "How often the peer reported a gap: this host's packets are lost on the way.",
        "Requester: NAKs with code 0. The requester goes back to the PSN of the NAK and sends everything from there again \
         (go-back-N).",
        "IBA 9.7.5.2.8; Linux hw_counters", ["out_of_sequence", "go-back-n", "nak"], Counter(LostRequest, "packet_seq_err"), ["packet_seq_err", "NAK", "PSN sequence error"]),
    topic!(Counter "retrans_pkts", "retrans_pkts", ["retransmits", "retransmitted packets", "retransmissions"],
        "How many packets were sent more than once.",
        "Requester: packets of requests that were sent before, whatever the reason: a NAK, a gap in responses, a timeout, a \
         receiver that was not ready, or a probe. Divided by the packets sent, it is the share of the bandwidth that loss costs.",
        "IBA 9.7.5.1.1; named as in Linux drivers", ["go-back-n", "packet_seq_err", "local_ack_timeout_err"], Counter(LostRequest, "retrans_pkts"), ["retrans_pkts", "PSN sequence error"]),
    topic!(Counter "implied_nak_seq_err", "implied_nak_seq_err", ["implied nak"],
        "How often a part of a READ's answer was missing.",
        "Requester: a READ or atomic response, or an ACK behind it, arrived before an earlier response. The requester asks again \
         from the gap on.",
        "IBA 9.7.5.1.2; Linux hw_counters", ["read", "go-back-n"], Counter(LostResponse, "implied_nak_seq_err"), ["implied_nak_seq_err", "READ"]),
    topic!(Counter "rnr_nak_retry_err", "rnr_nak_retry_err", ["rnr naks"],
        "How often the peer had no receive buffer ready. Each costs the time in the NAK.",
        "Requester: RNR NAKs within the retry limit. Post more receives, or use an SRQ with enough of them.",
        "IBA 9.7.5.2.8; Linux hw_counters", ["rnr", "recv"], Counter(NotReady, "rnr_nak_retry_err"), ["rnr_nak_retry_err", "RNR"]),
    topic!(Counter "local_ack_timeout_err", "local_ack_timeout_err", ["ack timeouts", "timeouts"],
        "How often an answer did not come in time: the last packet of a burst or its ACK was lost, or the peer is slow.",
        "Requester: expiries of the local ACK timeout within the retry limit.",
        "IBA 9.7.6.1.3; Linux hw_counters", ["timeout", "retry_exc_err"], Counter(LostAcknowledgement, "local_ack_timeout_err"), ["local_ack_timeout_err"]),
    topic!(Counter "np_ecn_marked_roce_packets", "np_ecn_marked_roce_packets", ["ecn marked", "ecn_marked"],
        "Packets that arrived with a congestion mark: a switch on the way has a long queue.",
        "Notification point: received packets with ECN \"congestion experienced\", of all services.",
        "IBA A17.9; Linux hw_counters", ["ecn", "cnp"], Counter(Marked, "np_ecn_marked_roce_packets"), ["np_ecn_marked_roce_packets", "congestion experienced"]),
    topic!(Counter "np_cnp_sent", "np_cnp_sent", ["cnp sent"],
        "How often this host told a sender to slow down.",
        "Notification point: CNPs sent, at most one per QP within 50 µs.",
        "IBA A17.9.3; Linux hw_counters", ["cnp", "dcqcn"], Counter(Marked, "np_cnp_sent"), ["np_cnp_sent", "CNP"]),
    topic!(Counter "rp_cnp_handled", "rp_cnp_handled", ["cnp handled"],
        "How often this host slowed down because a receiver reported congestion.",
        "Reaction point: CNPs that reduced the rate or the window of a QP.",
        "IBA A17.9.3; Linux hw_counters", ["cnp", "dcqcn"], Counter(Marked, "rp_cnp_handled"), ["rp_cnp_handled", "CNP"]),
    topic!(Counter "packets_in", "packets_in, bytes_in, packets_out, bytes_out", ["bytes_in", "packets_out", "bytes_out", "local_packets_in", "local_packets_out"],
        "The traffic of a device in one process.",
        "Packets for this process, and their bytes from the BTH to the ICRC; those through shared memory are also in \
         local_packets_in and local_packets_out.",
        "docs/counters.md", ["icrc"], Counter(LongWrite, "packets_in"), ["packets_in"]),
    topic!(Counter "no_queue_pair", "no_queue_pair", ["unknown qp"],
        "Packets for a QP that does not exist, or from a host that is not its peer.",
        "Dropped without an answer; the sender finds out by its retries.",
        "IBA 9.6.1.1", ["qpn", "retry_exc_err"], Counter(Nobody, "no_queue_pair"), ["no_queue_pair", "QP that does not exist"]),
];
