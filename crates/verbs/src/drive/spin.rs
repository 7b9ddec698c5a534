//! Whether a thread that waits for packets spins for a moment before it sleeps.
//!
//! A wakeup costs more than the way of a small packet, and on a virtual machine several times more: the idle processor has
//! to be started. Where packets lately came shortly after the thread began to wait, as in an exchange of small messages,
//! it looks for the next one for [`LONGEST`] before it sleeps. The bulk of a long transfer over sockets does not count: its
//! waits are short as well, but a wakeup is cheap beside the work. Through shared memory it is not.
//!
//! If another thread ran meanwhile, there are more threads than processors, and spinning takes time from the thread that
//! it waits for: then it sleeps for a good while. It does not yield between two looks: Linux lets a thread that has
//! yielded many times wait for long once others are there, and peers ran out of retries.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};

use crate::tuning::spin::{CROWDED, ENOUGH, LONGEST, MAX, PENALTY, PREEMPTED, SMALL};

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
mod tests {
    use super::*;

    /// Waits this long, and returns whether the thread spins at the beginning.
    fn wait(spin: &Spin, length: u64, bytes: u64) -> bool {
        let spins = spin.wait(1000).is_some();
        spin.end(1000 + length, spin.bytes.load(Ordering::Relaxed) + bytes);
        spins
    }

    #[test]
    fn spins_after_short_waits() {
        let spin = Spin::default();
        for _ in 0..ENOUGH {
            assert!(!wait(&spin, 10_000, 100));
        }
        assert_eq!(spin.wait(1000), Some(1000 + LONGEST));
        assert_eq!(spin.wait(1000 + LONGEST - 1), Some(1000 + LONGEST), "it still waits");
        assert_eq!(spin.wait(1000 + LONGEST), None, "it has waited long enough");
    }

    #[test]
    fn sleeps_again_after_long_waits() {
        let spin = Spin::default();
        (0..100).for_each(|_| _ = wait(&spin, 10_000, 100));
        let spun = (0..100).filter(|_| wait(&spin, 2 * LONGEST, 100)).count();
        assert!(spun <= 3, "{spun}");
        assert!(!wait(&spin, 10_000, 100));
    }

    #[test]
    fn sleeps_for_long_after_another_thread_ran() {
        let spun = || {
            let spin = Spin::default();
            (0..100).for_each(|_| _ = wait(&spin, 10_000, 100));
            assert!(spin.wait(1000).is_some());
            spin
        };
        let late = 1000 + LONGEST + PREEMPTED + 1;
        let [with_packets, without] = [spun(), spun()];
        with_packets.end(late, 100);
        assert_eq!(without.wait(late), None);
        without.end(late, 100);
        for spin in [with_packets, without] {
            let slept = (0..).take_while(|_| !wait(&spin, 10_000, 100)).count();
            assert_eq!(slept as i32, ENOUGH - CROWDED);
        }
        // It slept, so nothing is known about other threads.
        let spin = spun();
        assert_eq!(spin.wait(1000 + LONGEST), None);
        assert_eq!(spin.wait(late), None);
        assert!(spin.credit.load(Ordering::Relaxed) > 0);
    }

    #[test]
    fn bulk_transfers_do_not_count() {
        let spin = Spin::default();
        assert!((0..100).all(|_| !wait(&spin, 10_000, 65_536)));
    }

    #[test]
    fn what_arrives_without_a_wait_does_not_count() {
        let spin = Spin::default();
        (0..100).for_each(|_| spin.end(1000, 100));
        assert_eq!(spin.wait(1000), None);
    }
}
