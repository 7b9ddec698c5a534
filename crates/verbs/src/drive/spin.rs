//! Whether a thread that waits for packets spins for a moment before it sleeps.
//!
//! A wakeup costs more than the way of a small packet, and on a virtual machine several times more: the idle processor has
//! to be started. Where packets lately came shortly after the thread began to wait, as in an exchange of small messages,
//! it looks for the next one for [`LONGEST`] before it sleeps. The bulk of a long transfer over sockets does not count: its
//! waits are short as well, but a wakeup is cheap beside the work. Through shared memory it is not.
//!
//! If another thread ran meanwhile, there are more threads than processors, and spinning takes time from the thread that
//! it waits for: then it sleeps for a good while. It does not yield between two checks: Linux lets a thread that has
//! yielded many times wait for long once others are there, and peers ran out of retries.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use ferroce_device::tuning::spin::{CROWDED, ENOUGH, LONGEST, MAX, PENALTY, PREEMPTED, SMALL};

#[derive(Debug, Default)]
pub(crate) struct Spin {
    credit: AtomicI32,
    /// When the wait began; 0 if none has.
    since: AtomicU64,
    /// The bytes that had gone through sockets when the last wait ended.
    bytes: AtomicU64,
    /// The thread has spun during this wait, and not slept.
    spinning: AtomicBool,
}

impl Spin {
    /// The thread begins to wait, or goes on waiting. Returns until when it spins, `None` if it should sleep.
    pub(crate) fn wait(&self, now: u64) -> Option<u64> {
        let mut since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            since = now;
            self.since.store(now, Ordering::Relaxed);
        }
        let until = since + LONGEST;
        let spins = self.credit.load(Ordering::Relaxed) >= ENOUGH && now < until;
        if self.spinning.swap(spins, Ordering::Relaxed) {
            self.check(now, until);
        }
        spins.then_some(until)
    }

    /// Packets arrived. `bytes`: what has gone through sockets so far.
    pub(crate) fn end(&self, now: u64, bytes: u64) {
        let moved = bytes.saturating_sub(self.bytes.swap(bytes, Ordering::Relaxed));
        let since = self.since.swap(0, Ordering::Relaxed);
        if since == 0 {
            return;
        }
        let credit = self.credit.load(Ordering::Relaxed);
        let credit = match moved <= SMALL && now.saturating_sub(since) < LONGEST {
            true => (credit + 1).min(MAX),
            false => (credit - PENALTY).max(credit.min(0)),
        };
        self.credit.store(credit, Ordering::Relaxed);
        if self.spinning.swap(false, Ordering::Relaxed) {
            self.check(now, since + LONGEST);
        }
    }

    /// Notes whether another thread ran while this one spun.
    fn check(&self, now: u64, until: u64) {
        if now.saturating_sub(until) > PREEMPTED {
            self.credit.store(CROWDED, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests;
