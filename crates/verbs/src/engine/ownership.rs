//! The word that says which thread owns a device and may make passes over it.
//!
//! There is one owner at a time. If another thread owns the device, a thread sets RERUN and returns without waiting;
//! the owner makes another pass before it releases the device. So everything a thread did before its call is covered by
//! a pass, its own or the owner's, and no thread blocks.

#[cfg(ferroce_loom)]
use loom::sync::atomic::{AtomicU32, Ordering};
#[cfg(not(ferroce_loom))]
use std::sync::atomic::{AtomicU32, Ordering};

/// No thread owns the device.
const IDLE: u32 = 0;
/// A thread owns it.
const OWNED: u32 = 1;
/// A thread owns it and must make another pass.
const RERUN: u32 = 2;
/// A pass panicked. Its state may be inconsistent, so nobody can own the device again.
const FAILED: u32 = 3;

#[derive(Debug)]
pub(crate) struct Ownership(AtomicU32);

impl Ownership {
    pub(crate) fn new() -> Self {
        Self(AtomicU32::new(IDLE))
    }

    /// Makes passes, or makes the current owner make another one. Returns whether this thread was the owner.
    pub(crate) fn run(&self, work: impl FnMut()) -> bool {
        loop {
            // Release: the owner sees what this thread did before. Acquire: this thread sees what the last owner did.
            match self.0.compare_exchange(IDLE, OWNED, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => {
                    self.finish(u32::MAX, work);
                    return true;
                }
                Err(FAILED) => return false,
                Err(state) => {
                    // The owner released the device in between, so nobody would see RERUN: try again.
                    let noted =
                        self.0.compare_exchange(state, RERUN, Ordering::AcqRel, Ordering::Relaxed);
                    if noted.is_ok() {
                        return false;
                    }
                }
            }
        }
    }

    /// Makes passes if no thread owns the device. An owner covers everything anyway, so nothing is lost otherwise.
    ///
    /// Makes at most `rounds` passes: threads that keep setting RERUN would otherwise hold this one forever. Returns
    /// whether RERUN was still set at the end, so that another thread has to be woken to make a pass.
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
            // RERUN is set: clear it and make another pass.
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
    fn the_number_of_passes_is_bounded() {
        let (ownership, mut rounds) = (Ownership::new(), 0);
        let noted = ownership.try_run(2, || {
            rounds += 1;
            assert!(!ownership.run(|| unreachable!("another thread owns it")));
        });
        assert_eq!((noted, rounds), (true, 2));
        assert!(!ownership.try_run(2, || rounds += 1));
        assert_eq!(rounds, 3);
    }

    #[test]
    fn after_a_panic_no_thread_owns_the_device_or_waits() {
        let ownership = Ownership::new();
        assert!(!ownership.has_failed());
        let pass = || ownership.run(|| panic!("in a pass"));
        assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(pass)).is_err());
        assert!(ownership.has_failed());
        assert!(!ownership.run(|| unreachable!("it failed")));
        assert!(!ownership.try_run(2, || unreachable!("it failed")));
    }

    #[test]
    fn a_pass_sees_everything_done_before_it() {
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

    /// In every interleaving there is one owner at a time, and a pass after `run` sees what was posted before it.
    #[test]
    fn there_is_one_owner_and_no_lost_rerun() {
        loom::model(|| {
            let ownership = Arc::new(Ownership::new());
            let posted = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let metadata = Arc::new([AtomicU32::new(0), AtomicU32::new(0)]);
            let inside = Arc::new(AtomicU32::new(0));
            let post = {
                let (ownership, posted) = (Arc::clone(&ownership), Arc::clone(&posted));
                let (metadata, inside) = (Arc::clone(&metadata), Arc::clone(&inside));
                move |thread: usize| {
                    posted[thread].store(1, Ordering::Relaxed);
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
            let spawned = thread::spawn(move || other(1));
            post(0);
            spawned.join().unwrap();
            assert_eq!(metadata.iter().map(|one| one.load(Ordering::Relaxed)).sum::<u32>(), 2);
        });
    }
}
