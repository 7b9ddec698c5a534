//! One requester of a reliable connection, as seen from outside: which of its packets are new, which come again and
//! why (`requests`), and what the responder answered (`responses`).

mod requests;
mod responses;

use std::collections::VecDeque;

use ferroce_wire::number::Psn;
use ferroce_wire::syndrome::RnrTimer;

use super::anomaly::AnomalyKind;
use super::assembly::{Assembly, Ending};
use super::identification::Identifications;
use super::sink::{Stamp, Teller};
use super::text::{duration, named};
use super::window::{Place, Slot, Window};

/// The first packets of a requester may be lost before the capture, and the responder then asks for them.
const BEFORE_FIRST: u64 = 64;

/// Finished packets remembered, to tell a doubled one from one sent again.
const REMEMBERED: usize = 32;

/// Why a requester goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cause {
    SequenceNak,
    NotReady(RnrTimer),
    MissingResponse,
    Timeout,
}

/// An answer that makes the requester go back.
#[derive(Clone, Copy, Debug)]
struct Trigger {
    cause: Cause,
    /// Where to.
    from: u64,
    time: i64,
}

/// A finished packet.
#[derive(Clone, Copy, Debug)]
struct Finished {
    sequence: u64,
    identification: Option<u16>,
    last_time: i64,
}

#[derive(Debug, Default)]
pub(super) struct Requester {
    /// The next packet that would be new.
    next: Option<Place>,
    window: Window,
    assembly: Assembly,
    /// What will make the requester go back.
    trigger: Option<Trigger>,
    /// Packets being sent again: why, and which would be next.
    run: Option<(Cause, u64)>,
    finished: VecDeque<Finished>,
    /// Everything before it was finished, also what is not remembered one by one.
    finished_before: u64,
    identifications: Identifications,
    /// Known gaps of the capture when the last request came, and the last response.
    request_gaps: u64,
    response_gaps: u64,
    last_time: i64,
    /// RNR NAKs since the last packet that was accepted.
    not_ready: u32,
    /// Refused for good: nothing more is answered.
    dead: bool,
}

impl Requester {
    /// Whether a response with this PSN can be an answer to this requester.
    pub(super) fn expects(&self, psn: Psn) -> bool {
        let Some(next) = self.next else { return false };
        let sequence = next.sequence_of(psn);
        let oldest = self.window.front().map_or(next.sequence, |slot| slot.sequence - BEFORE_FIRST);
        // A READ whose span is not yet known may be answered beyond it.
        let reading =
            self.window.back().is_some_and(|slot| !slot.span_known && sequence >= slot.sequence);
        (oldest..next.sequence).contains(&sequence) || reading
    }

    /// Keeps a request until it is finished. Where too many are kept, the oldest is given up: its acknowledgement is
    /// not in the capture.
    fn insert(&mut self, slot: Slot, teller: &mut Teller<'_>) {
        if teller.sink.window_budget.is_spent(self.window.len()) {
            if let Some(oldest) = self.pop(teller) {
                self.assembly.add(&oldest, Ending::Acknowledged, teller);
            }
        }
        if self.window.insert(slot).is_none() {
            teller.sink.window_budget.take();
        }
    }

    fn pop(&mut self, teller: &mut Teller<'_>) -> Option<Slot> {
        let slot = self.window.pop()?;
        teller.sink.window_budget.give_back();
        Some(slot)
    }

    /// Hands finished packets on, oldest first.
    fn drain(&mut self, teller: &mut Teller<'_>) {
        while self.window.front().is_some_and(|slot| slot.finished.is_some()) {
            let Some(slot) = self.pop(teller) else { break };
            teller.sink.steps += 1;
            self.assembly.add(&slot, Ending::Acknowledged, teller);
            if self.finished.len() == REMEMBERED {
                self.finished.pop_front();
            }
            self.finished_before = self.finished_before.max(slot.end());
            let Slot { sequence, identification, last, .. } = slot;
            self.finished.push_back(Finished { sequence, identification, last_time: last.time });
        }
    }

    /// The capture, or the connection, ends here.
    pub(super) fn finish(&mut self, teller: &mut Teller<'_>) {
        if let Some(slot) = self.window.front().filter(|slot| !self.dead && slot.sends > 1) {
            teller.at = slot.last;
            let attempts = named(u64::from(slot.sends), "attempt");
            if self.not_ready > 0 {
                let text = format!(
                    "PSN {} was never accepted: {attempts}, each answered by RNR NAK; the receiver never posted a receive request",
                    slot.psn
                );
                teller.anomaly(AnomalyKind::RnrRetryExceeded, slot.psn, text);
            } else {
                let step = (slot.last.time - slot.first.time) / i64::from(slot.sends - 1);
                let text = format!(
                    "PSN {} was never answered: {attempts}, {} apart; the peer's queue pair is gone or was never there, or the path is cut",
                    slot.psn,
                    duration(step)
                );
                teller.anomaly(AnomalyKind::RetryExceeded, slot.psn, text);
            }
        }
        while let Some(slot) = self.pop(teller) {
            teller.sink.steps += 1;
            self.assembly.add(&slot, Ending::Acknowledged, teller);
        }
        self.assembly.flush(teller);
    }
}

impl Cause {
    fn text(self) -> String {
        match self {
            Self::SequenceNak => "after NAK, PSN sequence error".to_owned(),
            Self::NotReady(timer) => {
                format!("after RNR NAK, wait {}", duration(timer.duration().as_nanos() as i64))
            }
            Self::MissingResponse => "after a missing response (implied NAK)".to_owned(),
            Self::Timeout => "after timeout".to_owned(),
        }
    }
}

impl Trigger {
    fn new(cause: Cause, from: u64, at: Stamp) -> Self {
        Self { cause, from, time: at.time }
    }
}
