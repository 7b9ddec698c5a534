//! One word that says who drives a device: whoever claims it, for as long as there is something to do.
//!
//! Progress has one owner at a time. A thread that comes second does not wait: it leaves a note, and the owner goes
//! round once more before it lets go. So what a thread did before it came is metadata to, by itself or by the owner, and
//! nobody sleeps on the way.

#[cfg(ferroce_loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(ferroce_loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// Nobody drives.
const IDLE: u32 = 0;
/// Somebody does.
const OWNED: u32 = 1;
/// Somebody does, and is to go round once more.
const RERUN: u32 = 2;
/// A pass panicked. What it left behind may be half done, so nobody drives any more.
const FAILED: u32 = 3;

#[derive(Debug)]
pub(crate) struct Ownership(AtomicU32);

impl Ownership {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Drives, or makes sure that whoever does goes round once more after this call. True when it was us.
    pub(crate) fn run(&self, work: impl FnMut()) -> bool {
        loop {
            // Release: the owner sees what we did before. Acquire: we see what the last owner did.
            match self.0.compare_exchange(IDLE, OWNED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    self.finish(u32::MAX, work);
                    return true;
                }
                Err(FAILED) => return false,
                Err(state) => {
                    // Where the owner let go in between, the note would be read by nobody: try again.
                    let noted =
                        self.0.compare_exchange(state, RERUN, Ordering::AcqRel, Ordering::Relaxed);
                    if noted.is_ok() {
                        return false;
                    }
                }
            }
        }
    }

    /// Drives if nobody does. Somebody who does rx_passes at everything anyway, so nothing is left undone otherwise.
    ///
    /// Goes round at most `rounds` times: who leaves a note whenever we are at it would keep us for ever. True when a note
    /// is left over, and somebody else has to be told to go round.
    pub(crate) fn try_run(&self, rounds: u32, work: impl FnMut()) -> bool {
        let free =
            self.0.compare_exchange(IDLE, OWNED, Ordering::AcqRel, Ordering::Relaxed).is_ok();
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
            if self.0.compare_exchange(OWNED, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return false;
            }
            // There is a note: take it down, and go round.
            self.0.swap(OWNED, Ordering::AcqRel);
        }
        work();
        self.0.swap(IDLE, Ordering::AcqRel) == RERUN
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

    use super::Ownership;

    #[test]
    fn notes_without_end_keep_nobody() {
        let (ownership, mut rounds) = (Ownership::new(), 0);
        let noted = ownership.try_run(2, || {
            rounds += 1;
            assert!(!ownership.run(|| unreachable!("somebody drives")));
        });
        assert_eq!((noted, rounds), (true, 2));
        assert!(!ownership.try_run(2, || rounds += 1));
        assert_eq!(rounds, 3);
    }

    #[test]
    fn after_a_panic_nobody_drives_and_nobody_waits() {
        let ownership = Ownership::new();
        assert!(!ownership.has_failed());
        let pass = || ownership.run(|| panic!("in a pass"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(pass)).is_err());
        assert!(ownership.has_failed());
        assert!(!ownership.run(|| unreachable!("it failed")));
        assert!(!ownership.try_run(2, || unreachable!("it failed")));
    }

    #[test]
    fn what_was_done_before_is_seen_to() {
        let (ownership, posted, metadata) =
            (Ownership::new(), AtomicU32::new(0), AtomicU32::new(0));
        thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..10_000 {
                        posted.fetch_add(1, Ordering::Relaxed);
                        ownership.run(|| {
                            metadata.store(posted.load(Ordering::Relaxed), Ordering::Relaxed)
                        });
                    }
                });
            }
        });
        assert_eq!(metadata.into_inner(), 40_000);
    }
}

#[cfg(all(test, ferroce_loom))]
mod tests {
    use loom::sync::Arc;
    use loom::sync::atomic::{AtomicU32, Ordering};
    use loom::thread;

    use super::Ownership;

    /// Whatever the interleaving: one owner at a time, and what was posted before `run` is metadata by a round after it.
    #[test]
    fn one_owner_and_nothing_forgotten() {
        loom::model(|| {
            let ownership = Arc::new(Ownership::new());
            let posted = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let metadata = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let inside = Arc::new(AtomicU32::new(0));
            let post = {
                let (ownership, posted) = (Arc::clone(&ownership), Arc::clone(&posted));
                let (metadata, inside) = (Arc::clone(&metadata), Arc::clone(&inside));
                move |who: usize| {
                    posted[who].store(1, Ordering::Relaxed);
                    ownership.run(|| {
                        assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0);
                        for at in 0..2 {
                            let found = posted[at].load(Ordering::Relaxed);
                            metadata[at].fetch_max(found, Ordering::Relaxed);
                        }
                        inside.fetch_sub(1, Ordering::Relaxed);
                    });
                }
            };
            let other = post.clone();
            let thread = thread::spawn(move || other(1));
            post(0);
            thread.join().unwrap();
            assert_eq!(metadata.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u32>(), 2);
        });
    }
}
