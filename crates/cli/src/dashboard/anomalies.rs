//! Anomalies: counters that increased and should not have, in words, each with the QP it concerns.

use std::cmp::Reverse;
use std::collections::VecDeque;

use serde::Serialize;

/// How many are kept.
const MAX_KEPT: usize = 200;

/// An anomaly that continues within this time is the same one, in milliseconds.
const JOIN: u64 = 5_000;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Severity {
    /// The transport is built to do this, and it may cost throughput.
    Info,
    /// The transport recovered.
    Warning,
    /// A request or a packet is lost.
    Error,
}

/// A kind of anomaly.
#[derive(Debug)]
pub(super) struct Rule {
    /// The counter, by its name in `ferroce stat`.
    pub(super) counter: &'static str,
    pub(super) severity: Severity,
    pub(super) title: &'static str,
    /// What it means and what to look at.
    pub(super) meaning: &'static str,
}

const fn rule(
    counter: &'static str,
    severity: Severity,
    title: &'static str,
    meaning: &'static str,
) -> Rule {
    Rule { counter, severity, title, meaning }
}

use Severity::{Error, Info, Warning};

/// The transport counters of a QP.
pub(super) const QP_RULES: &[Rule] = &[
    rule(
        "retrans_pkts",
        Warning,
        "Retransmission",
        "Packets were sent again, because they or their ACKs were lost, or the receiver was not ready.",
    ),
    rule(
        "local_ack_timeout_err",
        Warning,
        "ACK timeout",
        "No ACK came in time: the packet or its ACK was lost, or the peer is gone or very slow.",
    ),
    rule(
        "rnr_nak_retry_err",
        Warning,
        "Receiver not ready",
        "The peer had no receive request posted (RNR NAK). Post more receives, or send more slowly.",
    ),
    rule(
        "packet_seq_err",
        Warning,
        "Sequence error",
        "The peer reported a gap in the PSNs: a request packet was lost on the way to it.",
    ),
    rule(
        "implied_nak_seq_err",
        Warning,
        "Gap in responses",
        "A READ or atomic response was lost, and the request was sent again.",
    ),
    rule(
        "out_of_sequence",
        Warning,
        "Requests out of sequence",
        "Requests came after a gap in the PSNs: packets to this QP were lost or reordered.",
    ),
    rule(
        "duplicate_request",
        Info,
        "Duplicate request",
        "The peer sent a request again that had been executed: its ACK was lost or late.",
    ),
    rule(
        "out_of_window_request",
        Warning,
        "PSN outside the window",
        "Requests with a PSN that no requester in sequence sends: very late packets, or a third party.",
    ),
    rule(
        "np_ecn_marked_roce_packets",
        Info,
        "Congestion marks",
        "Packets arrived with the ECN mark \"congestion experienced\".",
    ),
    rule(
        "rp_cnp_handled",
        Info,
        "Congestion notification",
        "CNPs of the peer reduced the rate of this QP.",
    ),
];

/// NAKs that end the connection, by their reason.
pub(super) const NAK_RULES: &[Rule] = &[
    rule(
        "invalid_request",
        Error,
        "NAK: invalid request",
        "The request was malformed for the responder, for example longer than the posted receive.",
    ),
    rule(
        "remote_access",
        Error,
        "NAK: remote access error",
        "The request violated the MR's bounds or access flags, or its rkey is wrong.",
    ),
    rule(
        "remote_operational",
        Error,
        "NAK: remote operational error",
        "The responder could not complete the request.",
    ),
];

/// The counters of a device that belong to no QP.
pub(super) const DEVICE_RULES: &[Rule] = &[
    rule("bad_icrc", Error, "Wrong ICRC", "Packets were corrupted on the way, and dropped."),
    rule(
        "malformed",
        Error,
        "Malformed packets",
        "Packets that are not valid RoCE packets were dropped.",
    ),
    rule("bad_partition", Warning, "Wrong partition", "Packets with another P_Key were dropped."),
    rule(
        "overruns",
        Error,
        "CQ overrun",
        "Completions were lost because the CQ was full. Create it larger, or poll it more often.",
    ),
    rule(
        "send_failed",
        Error,
        "Send failed",
        "The kernel refused to send packets: see send_errno of ferroce stat.",
    ),
    rule(
        "receive_failed",
        Error,
        "Receive failed",
        "The kernel refused to receive: see receive_errno of ferroce stat.",
    ),
    rule(
        "forward_failed",
        Warning,
        "Forwarding failed",
        "Packets for another process could not be forwarded to it.",
    ),
    rule(
        "capture_drops",
        Warning,
        "Capture incomplete",
        "Packets are missing in the capture of this process.",
    ),
    rule(
        "faults_injected",
        Info,
        "Fault injection",
        "FERROCE_FAULTS is set, and has lost, duplicated, delayed or corrupted packets.",
    ),
];

/// Completions with an error.
pub(super) const COMPLETION_ERROR: Rule = rule(
    "completion_errors",
    Error,
    "Completion with an error",
    "Work requests failed, and the QP has stopped.",
);

/// Something that belongs to no QP. The title has the reason.
pub(super) const REFUSED: Rule = rule(
    "last_reason",
    Warning,
    "Refused",
    "The device dropped packets that belong to no QP, or failed, for this reason.",
);

/// Calls of a process that failed. The title has the reason.
pub(super) const CALL_FAILED: Rule =
    rule("last_reason", Warning, "Call failed", "The library refused a call for this reason.");

/// Packets that the kernel dropped.
pub(super) const SOCKET_DROPS: Rule = rule(
    "socket_drops",
    Warning,
    "Socket buffer overflow",
    "The kernel dropped packets because the receive buffer of a socket was full. See net.core.rmem_max.",
);

/// One anomaly.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Anomaly {
    pub(super) id: u64,
    /// When it began and when it was last seen: milliseconds since 1970.
    pub(super) first: u64,
    pub(super) last: u64,
    pub(super) severity: Severity,
    pub(super) counter: &'static str,
    pub(super) title: String,
    pub(super) meaning: &'static str,
    /// How often.
    pub(super) count: u64,
    pub(super) pid: u32,
    pub(super) process: String,
    pub(super) device: String,
    /// The key of the QP.
    pub(super) qp: Option<String>,
    pub(super) qpn: Option<u32>,
}

/// Where a counter was seen.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place<'a> {
    pub(super) pid: u32,
    pub(super) process: &'a str,
    pub(super) device: &'a str,
    pub(super) qp: Option<(&'a str, u32)>,
}

/// The anomalies seen, the one that was seen last at the end.
#[derive(Debug, Default)]
pub(super) struct Feed {
    kept: VecDeque<Anomaly>,
    next: u64,
}

impl Feed {
    /// Records that a counter increased by `count`. An anomaly of the same kind and place that continues is extended.
    pub(super) fn record(
        &mut self,
        rule: &Rule,
        suffix: Option<&str>,
        count: u64,
        place: Place<'_>,
        now: u64,
    ) {
        if count == 0 {
            return;
        }
        let key = place.qp.map(|(key, _)| key);
        let is_same = |one: &Anomaly| {
            one.counter == rule.counter
                && one.title.starts_with(rule.title)
                && one.pid == place.pid
                && one.device == place.device
                && one.qp.as_deref() == key
                && now.saturating_sub(one.last) <= JOIN
        };
        if let Some(position) = self.kept.iter().rposition(is_same) {
            if let Some(mut one) = self.kept.remove(position) {
                one.last = now;
                one.count = one.count.saturating_add(count);
                self.kept.push_back(one);
            }
            return;
        }
        self.next += 1;
        self.kept.push_back(Anomaly {
            id: self.next,
            first: now,
            last: now,
            severity: rule.severity,
            counter: rule.counter,
            title: suffix.map_or_else(
                || rule.title.to_owned(),
                |suffix| format!("{}: {suffix}", rule.title),
            ),
            meaning: rule.meaning,
            count,
            pid: place.pid,
            process: place.process.to_owned(),
            device: place.device.to_owned(),
            qp: key.map(str::to_owned),
            qpn: place.qp.map(|(_, number)| number),
        });
        if self.kept.len() > MAX_KEPT {
            self.kept.pop_front();
        }
    }

    /// All of them, the one that began last first: rows do not change places while several continue.
    pub(super) fn list(&self) -> Vec<Anomaly> {
        let mut all: Vec<_> = self.kept.iter().cloned().collect();
        all.sort_by_key(|one| Reverse(one.id));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(qp: Option<(&str, u32)>) -> Place<'_> {
        Place { pid: 7, process: "x", device: "d", qp }
    }

    #[test]
    fn anomalies_that_continue_are_joined() {
        let mut feed = Feed::default();
        let [retransmission, timeout, ..] = QP_RULES else { panic!() };
        let (one, two) = (place(Some(("7/d/1", 1))), place(Some(("7/d/2", 2))));
        feed.record(retransmission, None, 3, one, 1_000);
        feed.record(timeout, None, 1, one, 1_000);
        feed.record(retransmission, None, 1, two, 2_000);
        feed.record(retransmission, None, 4, one, 6_000);
        feed.record(retransmission, None, 0, one, 7_000);
        let found = feed.list();
        let counts: Vec<_> = found.iter().map(|one| (one.counter, one.qpn, one.count)).collect();
        assert_eq!(
            counts,
            [
                ("retrans_pkts", Some(2), 1),
                ("local_ack_timeout_err", Some(1), 1),
                ("retrans_pkts", Some(1), 7),
            ]
        );
        assert_eq!((found[2].first, found[2].last), (1_000, 6_000));
        // Later it is another one.
        feed.record(retransmission, None, 1, one, 60_000);
        assert_eq!((feed.list().len(), feed.list()[0].count), (4, 1));
    }

    #[test]
    fn their_number_is_bounded() {
        let mut feed = Feed::default();
        for number in 0..1_000 {
            let key = number.to_string();
            feed.record(&QP_RULES[0], None, 1, place(Some((&key, number))), 0);
        }
        assert_eq!((feed.list().len(), feed.list()[0].qpn), (MAX_KEPT, Some(999)));
    }
}
