//! The words of each topic.

use ferroce_trace::analysis::anomaly::AnomalyKind::{self, *};
use ferroce_trace::render::units;

/// One topic: the anomalies it covers, and its words.
#[derive(Debug)]
pub(super) struct Words {
    pub(super) id: &'static str,
    pub(super) kinds: &'static [AnomalyKind],
    /// The title for one occurrence and for several; `#` is the number.
    titles: (&'static str, &'static str),
    pub(super) meaning: &'static str,
    pub(super) advice: &'static str,
}

impl Words {
    pub(super) fn title(&self, count: u64) -> String {
        let title = if count == 1 { self.titles.0 } else { self.titles.1 };
        title.replace('#', &units::count(count))
    }
}

/// All topics. Within one severity, they are shown in this order: causes before consequences.
pub(super) const WORDS: &[Words] = &[
    Words {
        id: "access",
        kinds: &[NakRemoteAccess],
        titles: (
            "A request was refused: no access to the remote memory",
            "# requests were refused: no access to the remote memory",
        ),
        meaning: "The requester asked to read or write memory of its peer, and the peer refused: the remote key (R_Key) \
                  is unknown, the address range is outside of the memory region, or the region does not allow this \
                  access. The connection fails with it: both queue pairs go to the ERROR state.",
        advice: "Compare the address, length and rkey of the request with the memory region that the peer registered \
                 and advertised: is the region still registered, is it long enough, and was it registered with \
                 IBV_ACCESS_REMOTE_READ, _WRITE or _ATOMIC?",
    },
    Words {
        id: "invalid_request",
        kinds: &[NakInvalidRequest],
        titles: ("A request was refused as invalid", "# requests were refused as invalid"),
        meaning: "The peer's queue pair does not accept this operation, or the request violates the protocol: for \
                  example an RDMA READ or atomic on a queue pair that does not allow it, or a message longer than \
                  the receive buffer. The connection fails with it.",
        advice: "Check the access flags of the peer's queue pair (qp_access_flags), max_dest_rd_atomic, and the size \
                 of its receive buffers.",
    },
    Words {
        id: "operational",
        kinds: &[NakRemoteOperational],
        titles: (
            "The peer failed locally while it handled a request",
            "The peer failed locally while it handled # requests",
        ),
        meaning: "The request itself was fine, but the peer could not complete it: for example, the local key of its \
                  receive buffer is wrong, or the buffer is too short. The connection fails with it.",
        advice: "Look at the completion errors (work completion status) of the program on the peer.",
    },
    Words {
        id: "invalid_rd",
        kinds: &[NakInvalidRd],
        titles: (
            "A request was refused: invalid RD request",
            "# requests were refused: invalid RD request",
        ),
        meaning: "This refusal is defined for reliable datagrams only, which no device implements.",
        advice: "Suspect corruption, or a defect of the responder.",
    },
    Words {
        id: "retry_exceeded",
        kinds: &[RetryExceeded],
        titles: (
            "A sender gave up: its packets were never answered",
            "# senders gave up: their packets were never answered",
        ),
        meaning: "The requester sent the same packet again and again and got no response to any attempt. Its program \
                  sees the status \"transport retry counter exceeded\" (12), and the connection is lost.",
        advice: "Check that the peer's process still runs, that the queue pair number exists, and that the network \
                 passes UDP port 4791 in both directions with this packet size (MTU).",
    },
    Words {
        id: "rnr_exceeded",
        kinds: &[RnrRetryExceeded],
        titles: (
            "A sender gave up: the receiver never posted a receive buffer",
            "# senders gave up: the receiver never posted a receive buffer",
        ),
        meaning: "Every attempt was answered with \"receiver not ready\" (RNR NAK). The sender's program sees the status \
                  \"RNR retry counter exceeded\" (13), and the connection is lost.",
        advice: "The receiving program must post receive requests before its peer sends, or the sender must set \
                 rnr_retry to 7 (retry for ever).",
    },
    Words {
        id: "corruption",
        kinds: &[BadIcrc],
        titles: ("One packet arrived damaged", "# packets arrived damaged"),
        meaning: "The checksum that covers each packet from end to end (ICRC) does not match its bytes: something on \
                  the path changed them. Receivers drop such packets silently, so they act like lost packets.",
        advice: "Look for a faulty cable, memory or switch port, or for a device on the path that rewrites packets. \
                 If every packet of one sender is affected, that sender computes the ICRC wrongly.",
    },
    Words {
        id: "cm_reject",
        kinds: &[CmReject],
        titles: ("A connection was rejected", "# connections were rejected"),
        meaning: "A program asked for a connection through the connection manager, and the other side said no.",
        advice: "The reason is in the packet. \"Invalid service ID\" means that no program listens on this port; \
                 \"consumer reject\" means that the program itself declined.",
    },
    Words {
        id: "loss",
        kinds: &[MissingRequest, MissingResponse, MessageLost, LostAfterCapture],
        titles: ("One packet was lost", "# packets were lost"),
        meaning: "Packets that must have been sent are missing where this capture was taken, so they were lost before \
                  that point; or the capture has packets that their receiver misses, so they were lost after it. A \
                  reliable connection notices the gap and sends everything from the gap on again (go-back-N), which \
                  costs time. On unreliable transports the message is gone. A loss that nothing reacts to, such as \
                  that of a copy, cannot be seen in a capture and is not counted.",
        advice: "Look for full queues and drops on the path: the counters of switch ports and network cards, the \
                 receive buffer of the socket (net.core.rmem_max), and whether flow control (PFC) or ECN is set up.",
    },
    Words {
        id: "timeout",
        kinds: &[Timeout],
        titles: ("One timeout: a sender waited in vain", "# timeouts: a sender waited in vain"),
        meaning: "A request got no response until the retransmission timer expired. Either the request or its response \
                  was lost, and nothing after it revealed the gap. Nothing moves on this connection while it waits.",
        advice: "Look for the lost packets first. The local ACK timeout of the queue pair decides how long each wait \
                 is: 4.096 µs × 2^timeout.",
    },
    Words {
        id: "rnr",
        kinds: &[RnrNak],
        titles: ("The receiver was not ready once", "The receiver was not ready # times"),
        meaning: "A SEND (or a WRITE with immediate data) needs a receive buffer that the receiving program posted \
                  before. There was none, so the receiver answered \"not ready\" (RNR NAK), and the sender waited and \
                  sent the message again.",
        advice: "Post more receive requests, and earlier: at least as many as messages can be in flight. A shared \
                 receive queue (SRQ) with a limit event helps with many connections.",
    },
    Words {
        id: "reordering",
        kinds: &[Reordered],
        titles: ("One packet arrived out of order", "# packets arrived out of order"),
        meaning: "Packets overtook each other on the path. A reliable connection treats a packet that comes too early \
                  as a sign of loss, and everything from the gap on is sent again.",
        advice: "Look for load balancing per packet, several paths of different length, or bonded links that spread \
                 one connection.",
    },
    Words {
        id: "duplicate",
        kinds: &[Duplicate],
        titles: ("One packet arrived twice", "# packets arrived twice"),
        meaning: "The same packet appears twice although it was sent once. Receivers recognise and ignore the copy.",
        advice: "Look for a loop or a mirror port on the path. If the capture was taken on several interfaces at once, \
                 it may show the same packet on each.",
    },
    Words {
        id: "nak_sequence",
        kinds: &[NakSequence],
        titles: (
            "A receiver asked once for packets that it missed",
            "Receivers asked # times for packets that they missed",
        ),
        meaning: "Every packet has a sequence number (PSN). A receiver that sees a gap answers with a NAK, PSN sequence \
                  error, which names the packet that it expects, and the sender goes back to that packet.",
        advice: "Nothing by itself: this is how a reliable connection notices loss, reordering and receivers that were \
                 not ready.",
    },
    Words {
        id: "retransmission",
        kinds: &[Retransmission],
        titles: ("One packet was sent again", "# packets were sent again"),
        meaning: "A reliable connection repairs loss by retransmission. The data arrived in the end, unless a failure \
                  is named above, but later, and the packets crossed the network twice.",
        advice: "Nothing by itself: the statements about loss, reordering, timeouts and receivers not ready give the \
                 cause.",
    },
    Words {
        id: "capture_gap",
        kinds: &[CaptureGap],
        titles: ("One gap is the capture's own fault", "# gaps are the capture's own fault"),
        meaning: "The file's drop counters say that the capture lost packets here. They reached the peer, because the \
                  conversation goes on without recovery.",
        advice: "Record with a larger buffer or a smaller snap length.",
    },
    Words {
        id: "cm_repeated",
        kinds: &[CmRepeated],
        titles: (
            "One message of the connection set-up was repeated",
            "# messages of the connection set-up were repeated",
        ),
        meaning: "The connection manager sends a message again if no answer comes in time: the message or its answer \
                  was lost, or the peer was slow.",
        advice: "Once is harmless. If it happens for every connection, look for loss or an overloaded peer.",
    },
    Words {
        id: "unknown_opcode",
        kinds: &[UnknownOpcode],
        titles: (
            "One packet has an opcode that is not defined",
            "# packets have an opcode that is not defined",
        ),
        meaning: "The InfiniBand specification does not define this operation. It may be a vendor's own.",
        advice: "Check which device sent it.",
    },
    Words {
        id: "reserved_syndrome",
        kinds: &[ReservedSyndrome],
        titles: (
            "One acknowledgement has a reserved syndrome",
            "# acknowledgements have a reserved syndrome",
        ),
        meaning: "An acknowledgement carries a code that the specification reserves.",
        advice: "Suspect a defect of the responder.",
    },
    Words {
        id: "congestion",
        kinds: &[EcnMarked, Cnp],
        titles: (
            "One sign of congestion: the network asks a sender to slow down",
            "# signs of congestion: the network asks senders to slow down",
        ),
        meaning: "A switch or router whose queue fills marks packets (ECN, congestion experienced), and the receiver of \
                  a marked packet sends a congestion notification (CNP) back. Senders then lower their rate, which \
                  avoids loss.",
        advice: "Normal under load. If throughput is too low, look at who shares the bottleneck and at the ECN \
                 thresholds of the switches.",
    },
    Words {
        id: "restart",
        kinds: &[Restart],
        titles: ("A queue pair was connected again", "Queue pairs were connected again # times"),
        meaning: "The sequence numbers (PSNs) jump: the same queue pair number was used for another connection.",
        advice: "Nothing to do.",
    },
    Words {
        id: "repeated_response",
        kinds: &[RepeatedResponse, RepeatedAcknowledge],
        titles: ("One response was sent again", "# responses were sent again"),
        meaning: "A responder answers a repeated request again. Requesters ignore answers that they have already.",
        advice: "Nothing to do.",
    },
    Words {
        id: "probe",
        kinds: &[Probe],
        titles: (
            "One packet was sent again because its acknowledgement was late",
            "# packets were sent again because their acknowledgements were late",
        ),
        meaning: "A sender that waits longer than usual for an acknowledgement sends its oldest and its newest packet \
                  again, to learn whether they arrived. The packet, its acknowledgement or nothing at all was lost: a \
                  receiver that was busy looks the same. Receivers ignore the copy.",
        advice: "Nothing by itself. If there are many, look for an overloaded receiver: more threads than processors, \
                 or a program that rarely polls.",
    },
    Words {
        id: "unseen",
        kinds: &[UnseenAcknowledged],
        titles: (
            "One response belongs to a request that is not in the capture",
            "# responses belong to requests that are not in the capture",
        ),
        meaning: "The capture started after the request, or sees only part of the traffic.",
        advice: "Start the capture before the program, on an interface that sees both directions.",
    },
    Words {
        id: "oversized",
        kinds: &[Oversized],
        titles: (
            "One frame is larger than any packet can be",
            "# frames are larger than any packet can be",
        ),
        meaning: "The host hands several packets to the network card at once (segmentation offload), and the capture \
                  sees them before they are split. Without a valid ICRC they cannot be separated.",
        advice: "Capture on the other host, or turn the offload off while capturing (ethtool -K DEVICE tx-udp-segmentation \
                 off).",
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_of_anomaly_has_words() {
        for kind in AnomalyKind::ALL {
            let covering = WORDS.iter().filter(|words| words.kinds.contains(kind)).count();
            assert_eq!(covering, 1, "{}", kind.name());
        }
    }

    #[test]
    fn titles_contain_the_number() {
        let loss = WORDS.iter().find(|words| words.id == "loss").unwrap();
        assert_eq!(loss.title(1), "One packet was lost");
        assert_eq!(loss.title(1_234), "1,234 packets were lost");
    }
}
