//! Reports of what the adapter refused, dropped or ended, and why ([`Reason`]): to the log at level `warn`, to the
//! published state, to the capture, and to a listener such as the call tracer.
//!
//! Nothing here runs unless something is refused. A flood of packets that are refused causes at most `BURST` reports
//! at once, and `RATE` per second after that.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, OnceLock};

use ferroce_proto::reason::Reason;
use ferroce_sys::clock;
use ferroce_wire::number::Qpn;

use crate::sync::lock;

/// Reports at once, and per second.
const BURST: u64 = 20;
const RATE: u64 = 5;

/// Queue pairs that ended in error and are remembered until the process exits.
const MAX_ENDED: usize = 64;

/// Receives each report, as a sentence.
type Listener = fn(&str);

static LISTENER: OnceLock<Listener> = OnceLock::new();
static LIMITER: Limiter = Limiter { full_at: AtomicU64::new(0), left_out: AtomicU64::new(0) };
static ENDED: Mutex<Vec<Ended>> = Mutex::new(Vec::new());

/// A queue pair that ended in error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// The process: a forked child inherits the list.
    process: u32,
    /// The QPN.
    pub queue_pair: Qpn,
    /// The reason's number.
    pub number: u16,
    /// The reason.
    pub text: String,
}

/// Limits the rate of reports: a token bucket, as the time at which it would be full again.
#[derive(Debug, Default)]
struct Limiter {
    full_at: AtomicU64,
    left_out: AtomicU64,
}

impl Limiter {
    /// Takes a token; `None` if there is none. Returns how many reports were left out since the last one.
    fn take(&self, now: u64) -> Option<u64> {
        const EACH: u64 = 1_000_000_000 / RATE;
        let taken = self.full_at.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |full_at| {
            let next = full_at.max(now) + EACH;
            (next <= now + BURST * EACH).then_some(next)
        });
        if taken.is_err() {
            self.left_out.fetch_add(1, Ordering::Relaxed);
            return None;
        }
        Some(self.left_out.swap(0, Ordering::Relaxed))
    }
}

/// Makes the sentence of a report, and passes it on; `None` if there were too many lately.
#[cold]
pub(crate) fn report(
    device: &str,
    queue_pair: Option<Qpn>,
    reason: &Reason,
    always: bool,
) -> Option<String> {
    let left_out = LIMITER.take(clock::now());
    if left_out.is_none() && !always {
        return None;
    }
    let text = match queue_pair {
        Some(number) => format!("QP {:#08x}: {reason}", number.0),
        None => reason.to_string(),
    };
    if let Some(left_out) = left_out {
        tracing::warn!(device, vendor_err = reason.number(), left_out, "{text}");
    }
    if let Some(listener) = LISTENER.get() {
        listener(&text);
    }
    Some(text)
}

/// Sets what receives each report. Only the first call has an effect.
pub fn listen(listener: Listener) {
    let _ = LISTENER.set(listener);
}

/// Reports why a call was refused: a sentence that begins with the name of the call.
pub fn refuse_call(text: &str) {
    let Some(left_out) = LIMITER.take(clock::now()) else { return };
    tracing::warn!(left_out, "{text}");
    ferroce_stat::Page::of_process().set_last_reason(0, text);
}

/// Remembers that a queue pair ended in error.
pub(crate) fn end(queue_pair: Qpn, reason: &Reason, text: &str) {
    let mut ended = lock(&ENDED);
    if ended.len() < MAX_ENDED {
        let (process, number) = (std::process::id(), reason.number());
        ended.push(Ended { process, queue_pair, number, text: text.to_owned() });
    }
}

/// Forgets a queue pair that was reset after an error.
pub(crate) fn forget(queue_pair: Qpn) {
    lock(&ENDED).retain(|ended| ended.queue_pair != queue_pair);
}

/// The queue pairs of this process that ended in error, in order. For programs about to exit.
pub fn ended() -> Vec<Ended> {
    let Ok(ended) = ENDED.try_lock() else { return Vec::new() };
    let process = std::process::id();
    ended.iter().filter(|ended| ended.process == process).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flood_is_limited_and_counted() {
        let limiter = Limiter::default();
        let second = 1_000_000_000;
        let at = |now: u64| (0..1000).filter_map(|_| limiter.take(now)).collect::<Vec<_>>();
        assert_eq!(at(100 * second), [0; BURST as usize]);
        assert_eq!(at(101 * second), [1000 - BURST, 0, 0, 0, 0]);
        // After a long time without reports, there is a burst again.
        assert_eq!(at(200 * second).len(), BURST as usize);
    }
}
