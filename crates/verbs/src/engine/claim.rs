//! One word that says who drives a device: whoever claims it, for as long as there is something to do.
//!
//! Progress has one owner at a time. A thread that comes second does not wait: it leaves a note, and the owner goes
//! round once more before it lets go. So what a thread did before it came is seen to, by itself or by the owner, and
//! nobody sleeps on the way.

#[cfg(ferroce_loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(ferroce_loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// Nobody drives.
const IDLE: u32 = 0;
/// Somebody does.
const BUSY: u32 = 1;
/// Somebody does, and is to go round once more.
const ARMED: u32 = 2;
/// A pass panicked. What it left behind may be half done, so nobody drives any more.
const FAILED: u32 = 3;

#[derive(Debug)]
pub(crate) struct Claim(AtomicU32);

impl Claim {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Drives, or makes sure that whoever does goes round once more after this call. True when it was us.
    pub(crate) fn run(&self, work: impl FnMut()) -> bool {
        loop {
            // Release: the owner sees what we did before. Acquire: we see what the last owner did.
            match self.0.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    self.finish(u32::MAX, work);
                    return true;
                }
                Err(FAILED) => return false,
                Err(state) => {
                    // Where the owner let go in between, the note would be read by nobody: try again.
                    let noted =
                        self.0.compare_exchange(state, ARMED, Ordering::AcqRel, Ordering::Relaxed);
                    if noted.is_ok() {
                        return false;
                    }
                }
            }
        }
    }

    /// Drives if nobody does. Somebody who does looks at everything anyway, so nothing is left undone otherwise.
    ///
    /// Goes round at most `rounds` times: who leaves a note whenever we are at it would keep us for ever. True when a note
    /// is left over, and somebody else has to be told to go round.
    pub(crate) fn try_run(&self, rounds: u32, work: impl FnMut()) -> bool {
        let free = self.0.compare_exchange(IDLE, BUSY, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        free && self.finish(rounds, work)
    }

    /// Whether a pass panicked.
    pub(crate) fn has_failed(&self) -> bool {
        self.0.load(Ordering::Acquire) == FAILED
    }

    fn finish(&self, rounds: u32, mut work: impl FnMut()) -> bool {
        let mut work = || {
            let panicked = FailOnUnwind(&self.0);
            work();
            std::mem::forget(panicked);
        };
        for _ in 1..rounds {
            work();
            if self.0.compare_exchange(BUSY, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return false;
            }
            // There is a note: take it down, and go round.
            self.0.swap(BUSY, Ordering::AcqRel);
        }
        work();
        self.0.swap(IDLE, Ordering::AcqRel) == ARMED
    }
}

/// Dropped only when a pass unwinds.
struct FailOnUnwind<'a>(&'a AtomicU32);

impl Drop for FailOnUnwind<'_> {
    fn drop(&mut self) {
        self.0.store(FAILED, Ordering::Release);
    }
}

#[cfg(all(test, not(ferroce_loom)))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::thread;

    use super::Claim;

    #[test]
    fn notes_without_end_keep_nobody() {
        let (claim, mut rounds) = (Claim::new(), 0);
        let noted = claim.try_run(2, || {
            rounds += 1;
            assert!(!claim.run(|| unreachable!("somebody drives")));
        });
        assert_eq!((noted, rounds), (true, 2));
        assert!(!claim.try_run(2, || rounds += 1));
        assert_eq!(rounds, 3);
    }

    #[test]
    fn after_a_panic_nobody_drives_and_nobody_waits() {
        let claim = Claim::new();
        assert!(!claim.has_failed());
        let pass = || claim.run(|| panic!("in a pass"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(pass)).is_err());
        assert!(claim.has_failed());
        assert!(!claim.run(|| unreachable!("it failed")));
        assert!(!claim.try_run(2, || unreachable!("it failed")));
    }

    #[test]
    fn what_was_done_before_is_seen_to() {
        let (claim, posted, seen) = (Claim::new(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        posted.fetch_add(1, Ordering::Relaxed);
                        claim.run(|| seen.store(posted.load(Ordering::Relaxed), Ordering::Relaxed));
                    }
                });
            }
        });
        assert_eq!(seen.into_inner(), 40_000);
    }
}

#[cfg(all(test, ferroce_loom))]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::Claim;

    /// Whatever the interleaving: one owner at a time, and what was posted before `run` is seen by a round after it.
    #[test]
    fn one_owner_and_nothing_forgotten() {
        loom::model(|| {
            let claim = Arc::new(Claim::new());
            let posted = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let seen = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let inside = Arc::new(AtomicU32::new(0));
            let post = {
                let (claim, posted) = (Arc::clone(&claim), Arc::clone(&posted));
                let (seen, inside) = (Arc::clone(&seen), Arc::clone(&inside));
                move |who: usize| {
                    posted[who].store(1, Ordering::Relaxed);
                    claim.run(|| {
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        for at in 0..2 {
                            let found = posted[at].load(Ordering::Relaxed);
                            seen[at].fetch_max(found, Ordering::Relaxed);
                        }
                        inside.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            };
            let other = post.clone();
            let thread = thread::spawn(move || other(1));
            post(0);
            thread.join().unwrap();
            assert_eq!(seen.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u32>(), 2);
        });
    }
}
