//! Processing of the requester's packets.

use ferroce_wire::number::Psn;

use super::{FinishedPacket, MAX_LOST, ProbedPacket, Requester, RetransmitCause};
use crate::analysis::anomaly::AnomalyKind;
use crate::analysis::gaps::Filled;
use crate::analysis::sink::Reporter;
use crate::analysis::text::{duration, psns};
use crate::analysis::window::{ExtendedPsn, ObservedPacket, TrackedRequest};

/// A PSN jump beyond this is a new connection on the same queue pair, not loss.
const RESTART_DISTANCE: u32 = 1 << 16;

/// A packet repeated within this time without a reason to retransmit was duplicated on the path: no requester waits that
/// short. Only if the capturing host was not idle for [`NO_PAUSE_NS`], after which packets may have waited for it.
const DUPLICATE_WINDOW_NS: i64 = 100_000;
const MIN_TIMEOUT_NS: i64 = DUPLICATE_WINDOW_NS;
const NO_PAUSE_NS: i64 = 1_000_000;

/// The shortest time in which a requester can react to a response.
const MIN_ROUND_TRIP_NS: i64 = 1_000;

/// A requester that repeats only its oldest and newest packet, earlier than this, asks for an acknowledgement; it has not
/// given them up. Most ACK timeouts are longer (67 ms and more).
const MAX_PROBE_WAIT_NS: i64 = 60_000_000;

/// Probes of one packet. More attempts are those of the ACK timer.
const MAX_PROBES: u32 = 6;

/// Consecutive packets of a run of retransmissions follow within this time.
const RETRANSMIT_RUN_GAP_NS: i64 = 1_000_000;

/// A requester goes back within this time after a NAK; later, the timer is the cause.
const GO_BACK_DELAY_NS: i64 = 20_000_000;

/// A gap that closes within this time was caused by reordering.
const REORDER_WINDOW_NS: i64 = 1_000_000;

/// A packet that fills a gap after this time without packets was sent again: an ACK timer has expired, the shortest of which
/// take 1 ms.
const LATE_WINDOW_NS: i64 = REORDER_WINDOW_NS / 2;

/// From this time on it may be a probe, for which requesters wait 200 µs or more. A probe asks for an acknowledgement.
const MIN_PROBE_WAIT_NS: i64 = 150_000;

/// Classification of a packet older than the newest one.
#[derive(Clone, Copy, Debug)]
enum OldPacketKind {
    /// A duplicate of the same transmission.
    Duplicate,
    /// First transmission, seen after packets sent later.
    Reordered,
    /// First transmission of a packet whose retransmission was seen earlier.
    ReorderedFirstCopy,
    /// Retransmission. The cause is unknown if retransmissions were reordered.
    Retransmission { cause: Option<RetransmitCause>, reordered: bool },
    /// Retransmission after this time without a response.
    TimedOut(i64),
    /// A packet repeated alone, after this time without a response.
    Probe { waited: i64, was_answered: bool },
    /// The packets after a probed one are repeated as well.
    WentBack(ProbedPacket),
}

impl Requester {
    /// Processes a request packet of this requester.
    pub(in crate::analysis) fn request(
        &mut self,
        observed: &ObservedPacket<'_>,
        mtu: &mut Option<u32>,
        reporter: &mut Reporter<'_>,
    ) {
        let psn = observed.packet.bth.psn;
        let mut next = *self.next.get_or_insert(ExtendedPsn::first(psn));
        let mut ahead = psn.distance(next.psn);
        if ahead.unsigned_abs() > RESTART_DISTANCE {
            let text = format!("PSN {psn} follows {}: the queue pair was reconnected", next.psn);
            reporter.anomaly(AnomalyKind::Restart, psn, text);
            self.finish(reporter);
            reporter.at = observed.stamp;
            *self = Self::default();
            (next, ahead) = (ExtendedPsn::first(psn), 0);
        }
        if ahead > 0 {
            if let Some(inferred) = self.infer_read_psn_count(psn, ahead, mtu) {
                next = inferred;
                ahead = psn.distance(next.psn);
            }
        }
        let sequence = next.sequence_of(psn);
        if ahead >= 0 {
            if ahead > 0 {
                let missing = psns(next.psn, psn);
                if observed.gaps > self.request_gaps {
                    let text = format!("{missing} lost by the capture");
                    reporter.anomaly(AnomalyKind::CaptureGap, next.psn, text);
                } else {
                    let text =
                        format!("{missing} not in the capture: lost before it, or reordered");
                    let id = reporter.anomaly(AnomalyKind::MissingRequest, next.psn, text);
                    self.gaps.open(next.sequence, sequence, id);
                }
            }
            // A requester that goes back repeats everything before it sends anything new.
            (self.retransmit_run, self.probed) = (None, None);
            let request = TrackedRequest::new(observed, sequence, *mtu);
            let psn_count = request.psn_count;
            self.insert(request, reporter);
            self.next = Some(ExtendedPsn {
                psn: psn.add(psn_count),
                sequence: sequence + u64::from(psn_count),
            });
            self.identifications.new_packet(observed.identification);
        } else {
            self.old_request(observed, sequence, *mtu, reporter);
            self.identifications.any_packet(observed.identification);
        }
        self.last_time = observed.stamp.time;
        self.last_sequence = Some(sequence);
        self.request_gaps = observed.gaps;
    }

    /// Processes a packet older than the newest one.
    fn old_request(
        &mut self,
        observed: &ObservedPacket<'_>,
        sequence: u64,
        mtu: Option<u32>,
        reporter: &mut Reporter<'_>,
    ) {
        let psn = observed.packet.bth.psn;
        let reorders = reporter.tally().count(AnomalyKind::Reordered) > 0;
        let kind = self.classify_old(observed, sequence, reorders);
        let lost = self.lost.iter().position(|lost| *lost == sequence);
        if let Some(index) = lost.filter(|_| !matches!(kind, OldPacketKind::Duplicate)) {
            self.lost.remove(index);
            if !matches!(kind, OldPacketKind::ReorderedFirstCopy) {
                reporter.tally().doubtful_requests += 1;
            }
        }
        if !matches!(kind, OldPacketKind::Duplicate | OldPacketKind::Reordered) {
            self.missing.request_again(sequence);
        }
        let arrived_late = || format!("PSN {psn} arrived after packets sent later");
        let cause = match kind {
            OldPacketKind::Duplicate => {
                let text = format!("PSN {psn} seen twice: duplicated on the path");
                reporter.anomaly(AnomalyKind::Duplicate, psn, text);
                return;
            }
            OldPacketKind::Reordered => {
                reporter.anomaly(AnomalyKind::Reordered, psn, arrived_late());
                self.fill_gap(sequence, reporter);
                return self.insert(TrackedRequest::new(observed, sequence, mtu), reporter);
            }
            OldPacketKind::ReorderedFirstCopy => {
                if let Some(request) = self.window.find(sequence) {
                    request.first_lost = false;
                }
                let tally = reporter.tally();
                tally.lost_requests = tally.lost_requests.saturating_sub(1);
                self.fill_gap(sequence, reporter);
                reporter.anomaly(AnomalyKind::Reordered, psn, arrived_late());
                return;
            }
            OldPacketKind::Retransmission { cause, reordered: late } => {
                if late {
                    reporter.anomaly(AnomalyKind::Reordered, psn, arrived_late());
                }
                cause
            }
            OldPacketKind::TimedOut(elapsed) => {
                let was_probed =
                    self.window.find(sequence).is_some_and(|request| request.probes > 0);
                let first = self.probed.filter(|first| {
                    was_probed && first.sequence == sequence && !first.is_doubled_by(elapsed)
                });
                if let Some(first) = first {
                    self.report_going_back(first, reporter);
                }
                let time = observed.stamp.time;
                let (waited, was_answered) = (elapsed, false);
                self.probed = Some(ProbedPacket { sequence, psn, time, waited, was_answered });
                let text = format!(
                    "no response to PSN {psn} for {}: the retransmission timer expired",
                    duration(elapsed)
                );
                reporter.anomaly(AnomalyKind::Timeout, psn, text);
                Some(RetransmitCause::Timeout)
            }
            OldPacketKind::Probe { waited, was_answered } => {
                let text = format!(
                    "PSN {psn} sent again after {}: its acknowledgement is late or lost",
                    duration(waited)
                );
                reporter.anomaly(AnomalyKind::Probe, psn, text);
                if let Some(request) = self.window.find(sequence) {
                    request.probes += 1;
                    request.last = observed.stamp;
                    request.asks = true;
                    request.response_missing = false;
                } else {
                    self.record_retransmission(observed, sequence, mtu, reporter);
                }
                let time = observed.stamp.time;
                self.probed = Some(ProbedPacket { sequence, psn, time, waited, was_answered });
                return self.window.mark_retransmitted(sequence);
            }
            OldPacketKind::WentBack(first) => self.report_going_back(first, reporter),
        };
        let why = cause.map(|cause| format!(" {}", cause.text())).unwrap_or_default();
        let text = format!("PSN {psn} retransmitted{why}");
        reporter.anomaly(AnomalyKind::Retransmission, psn, text);
        let end = self.record_retransmission(observed, sequence, mtu, reporter);
        if cause.is_some() || !reorders && matches!(kind, OldPacketKind::WentBack(_)) {
            if self.is_probe(cause, sequence, end) {
                self.retransmit_run = None;
            } else {
                self.report_gap_in_run(sequence, psn, reporter);
                self.retransmit_run = Some((cause, end));
            }
        }
        // The following packets may be acknowledged again.
        self.window.mark_retransmitted(sequence);
    }

    /// Withdraws the report of missing packets, all of which have arrived late.
    fn fill_gap(&mut self, sequence: u64, reporter: &mut Reporter<'_>) {
        if let Filled::Whole(missing) = self.gaps.fill(sequence) {
            reporter.withdraw(missing);
        }
    }

    /// Reports why a requester went back to a packet that looked like a probe at first, if it is known.
    fn report_going_back(
        &mut self,
        first: ProbedPacket,
        reporter: &mut Reporter<'_>,
    ) -> Option<RetransmitCause> {
        let mut end = first.sequence + 1;
        if let Some(request) = self.window.find(first.sequence).filter(|request| request.probes > 0)
        {
            request.count_probes_as_sends();
            end = request.end();
        }
        self.probed = None;
        let psn = first.psn;
        if first.waited >= REORDER_WINDOW_NS
            || !first.was_answered && first.waited >= MIN_TIMEOUT_NS
        {
            let waited = duration(first.waited);
            let text =
                format!("no response to PSN {psn} for {waited}: the retransmission timer expired");
            reporter.anomaly(AnomalyKind::Timeout, psn, text);
            self.retransmit_run = Some((Some(RetransmitCause::Timeout), end));
            return Some(RetransmitCause::Timeout);
        }
        if first.was_answered && reporter.tally().count(AnomalyKind::Reordered) == 0 {
            let text = format!(
                "a response to PSN {psn} was lost after the capture point, or is not yet read"
            );
            reporter.anomaly(AnomalyKind::LostAfterCapture, psn, text);
            return Some(RetransmitCause::LostResponse);
        }
        None
    }

    /// The completed request, if it is remembered, that contains `sequence`.
    fn finished(&self, sequence: u64) -> Option<FinishedPacket> {
        let mut newest_first = self.finished.iter().rev();
        newest_first.find(|packet| (packet.sequence..packet.end).contains(&sequence)).copied()
    }

    /// Classifies a packet older than the newest one by its IPv4 identification, a pending reason to go back, and time.
    fn classify_old(
        &mut self,
        observed: &ObservedPacket<'_>,
        sequence: u64,
        reorders: bool,
    ) -> OldPacketKind {
        let now = observed.stamp.time;
        let earlier = self.window.find(sequence);
        let first_lost = earlier.as_ref().is_some_and(|request| request.first_lost);
        let probes = earlier.as_ref().map_or(0, |request| request.probes);
        let earlier = match earlier {
            Some(request) => Some(FinishedPacket {
                sequence: request.sequence,
                end: request.end(),
                identification: request.identification,
                asks: request.asks,
                last_time: request.last.time,
                answered: request.answered.or(request.finished.map(|stamp| stamp.time)),
            }),
            None => self.finished(sequence),
        };
        // A run of retransmissions continues where it was; some of its packets may be lost before the capture point.
        let running = now - self.last_time < RETRANSMIT_RUN_GAP_NS;
        // A busy host may pause within a run.
        let paused = now - self.last_time < GO_BACK_DELAY_NS;
        let run = self
            .retransmit_run
            .filter(|(_, next)| running && *next <= sequence || paused && *next == sequence);
        let trigger = self.trigger.filter(|trigger| {
            let recent = now - trigger.time < GO_BACK_DELAY_NS;
            trigger.from <= sequence
                && (recent || matches!(trigger.cause, RetransmitCause::RnrNak(_)))
        });
        let has_cause = run.is_some() || trigger.is_some();
        let elapsed = now - earlier.map_or(self.last_time, |earlier| earlier.last_time);
        // A requester waits from its last progress on.
        let waited = self.last_response.map_or(elapsed, |time| elapsed.min(now - time));
        // An acknowledged packet was transmitted before, even if it is no longer remembered.
        let forgotten = earlier.is_none() && sequence < self.finished_before;
        let answered = match earlier {
            Some(earlier) => earlier.answered,
            None => self.last_response.filter(|_| forgotten),
        };
        let was_answered = answered.is_some_and(|time| now - time >= MIN_ROUND_TRIP_NS);

        let asks = observed.packet.bth.ack_request;
        let first = self
            .probed
            .filter(|first| first.sequence < sequence && now - first.time < RETRANSMIT_RUN_GAP_NS);
        // On a path that reorders, it may be late all the same.
        let follows = first.filter(|_| !reorders).is_some_and(|first| {
            let end = self.window.find(first.sequence).map(|request| request.end());
            let end = end.or(self.finished(first.sequence).map(|packet| packet.end));
            end.unwrap_or(first.sequence + 1) == sequence
        });
        let adjacent = self.last_sequence == Some(sequence);

        let ids = &self.identifications;
        if let Some(earlier) = earlier {
            let buffered = observed.since_pause.is_some_and(|time| time < NO_PAUSE_NS);
            let unexplained = !has_cause
                && probes == 0
                && elapsed < DUPLICATE_WINDOW_NS
                && !was_answered
                && !observed.outbound;
            // Before the newest packet, a probe repeats the oldest.
            let first_in_flight =
                self.window.front().is_none_or(|oldest| oldest.sequence >= earlier.sequence);
            let probable = buffered && first_in_flight;
            // A copy of the path is equal: this one asks for an ACK that the first did not ask for.
            let probable = probable || asks && !earlier.asks;
            let follows = follows || adjacent && probable;
            match ids.same_packet(earlier.identification, observed.identification) {
                Some(true) => return OldPacketKind::Duplicate,
                None if unexplained && adjacent && !probable => return OldPacketKind::Duplicate,
                None if unexplained && first_lost && !follows => {
                    return OldPacketKind::ReorderedFirstCopy;
                }
                _ => {}
            }
        }
        let late_window = match asks {
            // Its retransmission was lost as well, or is late.
            _ if !reorders && self.sent_again.contains(&sequence) => MIN_TIMEOUT_NS,
            true => MIN_PROBE_WAIT_NS,
            false => LATE_WINDOW_NS,
        };
        let reordered = (ids.is_reordered(observed.identification))
            .unwrap_or(earlier.is_none() && !forgotten && !has_cause && elapsed < late_window);
        if reordered && earlier.is_none() {
            // After a long wait, it is not late: the packets after a repeated one are repeated as well.
            let gone_back = first.filter(|first| follows || first.waited >= MIN_PROBE_WAIT_NS);
            return gone_back.map_or(OldPacketKind::Reordered, OldPacketKind::WentBack);
        }
        if reordered && first_lost {
            return OldPacketKind::ReorderedFirstCopy;
        }
        let end = earlier.map_or(sequence + 1, |earlier| earlier.end);
        let newest = self.next.is_some_and(|next| next.sequence == end);
        // The last packet alone asks for an ACK; the requester has yet to go back.
        let trigger =
            trigger.filter(|trigger| trigger.from == sequence || !(asks && (newest || adjacent)));
        if let Some(trigger) = trigger.filter(|_| run.is_none()) {
            self.trigger = None;
            self.sent_again = trigger.from..self.next.map_or(0, |next| next.sequence);
        }
        let reason = run.map(|(cause, _)| cause).or(trigger.map(|trigger| Some(trigger.cause)));
        match reason {
            None if !reordered && (earlier.is_some() || forgotten) => {
                let before = self.probed.filter(|first| first.sequence == sequence);
                let doubles = before.is_none_or(|before| before.is_doubled_by(waited));
                match first {
                    Some(first) if !newest => OldPacketKind::WentBack(first),
                    _ if doubles && probes < MAX_PROBES && waited < MAX_PROBE_WAIT_NS << probes => {
                        OldPacketKind::Probe { waited, was_answered }
                    }
                    _ => OldPacketKind::TimedOut(elapsed),
                }
            }
            None if !reordered && asks && elapsed < MAX_PROBE_WAIT_NS => {
                OldPacketKind::Probe { waited, was_answered }
            }
            // The time without a response is unknown for packets no longer remembered.
            None if !reordered && !forgotten => OldPacketKind::TimedOut(elapsed),
            reason => OldPacketKind::Retransmission { cause: reason.flatten(), reordered },
        }
    }

    /// Records a retransmission and returns the sequence number after the packet.
    fn record_retransmission(
        &mut self,
        observed: &ObservedPacket<'_>,
        sequence: u64,
        mtu: Option<u32>,
        reporter: &mut Reporter<'_>,
    ) -> u64 {
        if let Some(request) = self.window.find(sequence) {
            request.count_probes_as_sends();
            request.sends += 1;
            request.last = observed.stamp;
            request.asks = observed.packet.bth.ack_request;
            request.identification = observed.identification;
            // Its responses are sent again and may be lost again.
            request.response_missing = false;
            return request.end();
        }
        if sequence < self.finished_before {
            return sequence + 1;
        }
        // First time in the capture, but the requester sent it before.
        let request = TrackedRequest {
            sends: 2,
            first_lost: true,
            ..TrackedRequest::new(observed, sequence, mtu)
        };
        reporter.tally().lost_requests += 1;
        if self.lost.len() == MAX_LOST {
            self.lost.pop_front();
        }
        self.lost.push_back(sequence);
        let end = request.end();
        self.insert(request, reporter);
        end
    }

    /// Whether a retransmission is the end of a probe: a requester that has waited long for an ACK may send its oldest and
    /// its newest packet again, without those between them. Both ask for an ACK.
    fn is_probe(&mut self, cause: Option<RetransmitCause>, sequence: u64, end: u64) -> bool {
        let expected = self.retransmit_run.map(|(_, expected)| expected);
        let Some(expected) = expected.filter(|expected| *expected < sequence) else { return false };
        let mut asks = |packet| self.window.find(packet).is_some_and(|request| request.asks);
        let probable =
            cause == Some(RetransmitCause::Timeout) || asks(expected - 1) && asks(sequence);
        probable && self.next.is_some_and(|next| next.sequence == end)
    }

    /// Reports packets of a run of retransmissions that are not in the capture.
    fn report_gap_in_run(&mut self, sequence: u64, psn: Psn, reporter: &mut Reporter<'_>) {
        let Some((_, expected)) = self.retransmit_run.filter(|(_, expected)| *expected < sequence)
        else {
            return;
        };
        // On a path that reorders, they are likely to follow.
        if reporter.tally().count(AnomalyKind::Reordered) > 0
            || self.window.find(expected).is_none()
        {
            return;
        }
        let first = psn.sub((sequence - expected) as u32);
        let text = format!("{} also retransmitted, but not in the capture", psns(first, psn));
        let id = reporter.anomaly(AnomalyKind::MissingRequest, first, text);
        self.gaps.open(expected, sequence, id);
    }

    /// Infers the PSN count of a READ, and the path MTU, from the PSN of the next request.
    fn infer_read_psn_count(
        &mut self,
        psn: Psn,
        ahead: i32,
        mtu: &mut Option<u32>,
    ) -> Option<ExtendedPsn> {
        let request = self.window.back_mut().filter(|request| !request.psn_count_known)?;
        let psn_count = request.psn_count + ahead as u32;
        let fits = |mtu: &u32| request.read_length.div_ceil(*mtu) == psn_count;
        let found = [256, 512, 1024, 2048, 4096].into_iter().find(fits)?;
        (request.psn_count, request.psn_count_known) = (psn_count, true);
        *mtu = Some(found);
        let next = ExtendedPsn { psn, sequence: request.end() };
        self.next = Some(next);
        Some(next)
    }

    /// Sets the PSN count of an earlier READ once the path MTU is known.
    pub(in crate::analysis) fn learn_mtu(&mut self, mtu: u32) {
        let Some(request) = self.window.back_mut().filter(|request| !request.psn_count_known)
        else {
            return;
        };
        (request.psn_count, request.psn_count_known) =
            (request.read_length.div_ceil(mtu).max(1), true);
        self.next =
            Some(ExtendedPsn { psn: request.psn.add(request.psn_count), sequence: request.end() });
    }
}
