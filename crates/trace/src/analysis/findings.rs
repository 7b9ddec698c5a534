//! The diagnosis: summarizes the anomalies of a conversation in sentences.

use super::anomaly::{AnomalyKind as Kind, Severity};
use super::losses::Losses;
use super::report::Finding;
use super::sink::ConversationTally;
use super::text::count_of;

/// Returns the findings about one conversation, most severe first. If `dropped`, the capture itself lost packets, and
/// missing packets need not be the network's fault.
pub(super) fn findings(tally: &ConversationTally, losses: &Losses, dropped: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut report = |severity, text| findings.push(Finding { severity, text });

    // For errors that ended the connection, the first anomaly's text is the finding.
    for kind in [
        Kind::NakRemoteAccess,
        Kind::NakInvalidRequest,
        Kind::NakRemoteOperational,
        Kind::NakInvalidRd,
        Kind::RetryExceeded,
        Kind::RnrRetryExceeded,
    ] {
        if let Some(count) = tally.anomalies.get(&kind) {
            report(Severity::Error, format!("frame {}: {}", count.first_frame, count.first));
        }
    }

    let not_ready = tally.count(Kind::RnrNak);
    if not_ready > 0 && tally.count(Kind::RnrRetryExceeded) == 0 {
        let text = format!(
            "receiver not ready: {}; the receiver posts receive requests too late or too few, and the sender had to wait and retransmit",
            count_of(not_ready, "RNR NAK")
        );
        report(Severity::Warning, text);
    }

    let retransmitted = tally.count(Kind::Retransmission);
    if retransmitted > 0 {
        let causes = [
            (tally.count(Kind::NakSequence) - tally.naks_after_rnr, "NAK, PSN sequence error"),
            (not_ready, "RNR NAK"),
            (tally.count(Kind::MissingResponse), "missing response"),
            (tally.count(Kind::Timeout), "timeout"),
        ];
        let causes: Vec<_> = (causes.iter().filter(|(count, _)| *count > 0))
            .map(|(count, name)| format!("{count} × {name}"))
            .collect();
        let mut text = format!("{} retransmitted", count_of(retransmitted, "packet"));
        if !causes.is_empty() {
            text += &format!(" because of {}", causes.join(", "));
        }
        report(Severity::Warning, text);
    }

    let corrupted = tally.count(Kind::BadIcrc);
    if corrupted > 0 {
        let text = format!(
            "the path corrupts packets: {} with a wrong ICRC, which receivers drop",
            count_of(corrupted, "packet")
        );
        report(Severity::Error, text);
    }
    let gaps = tally.count(Kind::CaptureGap);
    if gaps > 0 {
        let text = format!(
            "the capture lost packets of this conversation: {}; messages around them are incomplete",
            count_of(gaps, "gap")
        );
        report(Severity::Warning, text);
    }
    let location = if dropped { "before or by the capture" } else { "before the capture point" };
    let reordered = tally.count(Kind::Reordered);
    if reordered > 0 {
        let text = format!(
            "the path reorders: {} arrived after packets sent later; a reliable connection treats that as loss and goes back",
            count_of(reordered, "packet")
        );
        report(Severity::Warning, text);
    }
    if losses.requests > 0 {
        let text = format!(
            "requests are lost {location}: {} missing from the capture or corrupted",
            count_of(losses.requests, "packet")
        );
        report(Severity::Warning, text);
    }
    if losses.after_capture > 0 {
        let text = format!(
            "packets are lost after the capture point: {} that the capture contains did not arrive",
            count_of(losses.after_capture, "packet")
        );
        report(Severity::Warning, text);
    }
    if losses.responses > 0 {
        let text = format!(
            "responses are lost {location}: {} in READ or atomic responses",
            count_of(losses.responses, "gap")
        );
        report(Severity::Warning, text);
    }
    let duplicated = tally.count(Kind::Duplicate);
    if duplicated > 0 {
        report(
            Severity::Warning,
            format!("the path duplicates: {} seen twice", count_of(duplicated, "packet")),
        );
    }
    if losses.unreliable > 0 {
        let gaps = count_of(losses.unreliable, "gap");
        let text = format!("packets of unreliable messages are missing: {gaps}");
        report(Severity::Warning, text);
    }
    let probes = tally.count(Kind::Probe);
    if probes > 0 {
        let text = format!(
            "acknowledgements are late: {} sent again to ask for them",
            count_of(probes, "packet")
        );
        report(Severity::Info, text);
    }
    let notified = tally.count(Kind::Cnp);
    let marked = tally.count(Kind::EcnMarked);
    if notified + marked > 0 {
        let text = format!(
            "congestion: {} marked and {}",
            count_of(marked, "packet"),
            count_of(notified, "notification")
        );
        report(Severity::Info, text);
    }
    if tally.count(Kind::Restart) > 0 {
        let text = "the queue pair was connected more than once in this capture".to_owned();
        report(Severity::Info, text);
    }
    findings.sort_by_key(|finding| std::cmp::Reverse(finding.severity));
    findings
}
