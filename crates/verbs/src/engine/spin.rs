//! Whether a thread that waits for packets spins for a moment before it sleeps.
//!
//! A wakeup costs more than the way of a small packet, and on a virtual machine several times more: the idle processor has
//! to be started. Where packets lately came shortly after the thread began to wait, as in an exchange of small messages,
//! it looks for the next one for [`LONGEST`] before it sleeps. It gives way to other threads meanwhile. The bulk of a
//! long transfer does not count: its waits are short as well, but a wakeup is cheap beside the work.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// How long a thread spins at most, in nanoseconds.
const LONGEST: u64 = 50_000;

/// A thread spins once this many more of its waits were short than [`PENALTY`] times those that were long.
const ENOUGH: u32 = 8;
const MAX: u32 = 16;
const PENALTY: u32 = 4;

/// More bytes than this during a wait are a bulk transfer.
const SMALL: u64 = 4096;

#[derive(Debug, Default)]
pub(crate) struct Spin {
    credit: AtomicU32,
    /// When the wait began; 0 if none has.
    since: AtomicU64,
    /// The bytes that the device had received and sent then.
    bytes: AtomicU64,
}

impl Spin {
    /// The thread begins to wait, or goes on waiting. `bytes`: what the device has received and sent so far. Returns until
    /// when the thread spins, `None` if it should sleep.
    pub(crate) fn wait(&self, now: u64, bytes: u64) -> Option<u64> {
        let mut since = self.since.load(Ordering::Relaxed);
        if since == 0 {
            since = now;
            self.since.store(now, Ordering::Relaxed);
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        let until = since + LONGEST;
        (self.credit.load(Ordering::Relaxed) >= ENOUGH && now < until).then_some(until)
    }

    /// The wait ended with packets.
    pub(crate) fn end(&self, now: u64, bytes: u64) {
        let since = self.since.swap(0, Ordering::Relaxed);
        if since == 0 {
            return;
        }
        let credit = self.credit.load(Ordering::Relaxed);
        let small = bytes.saturating_sub(self.bytes.load(Ordering::Relaxed)) <= SMALL;
        let credit = match small && now.saturating_sub(since) < LONGEST {
            true => (credit + 1).min(MAX),
            false => credit.saturating_sub(PENALTY),
        };
        self.credit.store(credit, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Waits this long, and returns whether the thread spins at the beginning.
    fn wait(spin: &Spin, length: u64, bytes: u64) -> bool {
        let spins = spin.wait(1000, 70).is_some();
        spin.end(1000 + length, 70 + bytes);
        spins
    }

    #[test]
    fn spins_after_short_waits() {
        let spin = Spin::default();
        for _ in 0..ENOUGH {
            assert!(!wait(&spin, 10_000, 100));
        }
        assert_eq!(spin.wait(1000, 0), Some(1000 + LONGEST));
        assert_eq!(spin.wait(1000 + LONGEST - 1, 0), Some(1000 + LONGEST), "it still waits");
        assert_eq!(spin.wait(1000 + LONGEST, 0), None, "it has waited long enough");
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
    fn bulk_transfers_do_not_count() {
        let spin = Spin::default();
        assert!((0..100).all(|_| !wait(&spin, 10_000, 65_536)));
    }

    #[test]
    fn what_arrives_without_a_wait_does_not_count() {
        let spin = Spin::default();
        (0..100).for_each(|_| spin.end(1000, 100));
        assert_eq!(spin.wait(1000, 0), None);
    }
}
