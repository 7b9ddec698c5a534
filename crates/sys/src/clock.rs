//! The clock that deadlines are given in.

use crate::system::zeroed;

/// Nanoseconds since some moment before this machine's programs started: monotonic, the same in all processes, and not
/// touched by a change of the date.
pub fn now() -> u64 {
    // SAFETY: a timespec is two numbers.
    let mut time: libc::timespec = unsafe { zeroed() };
    // SAFETY: the pointer is to a local. The call cannot fail: this clock always exists (POSIX).
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    let (seconds, nanoseconds) = (time.tv_sec.unsigned_abs(), time.tv_nsec.unsigned_abs());
    seconds * 1_000_000_000 + nanoseconds
}

/// Has the calling thread woken at its deadlines, and not up to 50 µs later, as Linux does to save wake-ups.
pub fn precise() {
    // SAFETY: the call takes numbers only. Where it is refused, wake-ups are late, as they were.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1_000 as libc::c_ulong) };
}

/// What the kernel knows of a thread's scheduling: `struct sched_attr` in its first form, see sched_setattr(2).
#[repr(C)]
struct Scheduling {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Has the calling thread get a processor soon after it is woken, on a machine that has none to spare, for giving it back
/// as soon. Linux since 6.12 takes the time that an ordinary thread runs at once from whoever asks, and lets shorter
/// ones go first; before that it makes no difference.
pub fn prompt() {
    const SLICE: u64 = 100_000; // Nanoseconds: the least that Linux takes.
    const SIZE: libc::c_uint = size_of::<Scheduling>() as libc::c_uint;
    // SAFETY: the structure is numbers.
    let mut scheduling: Scheduling = unsafe { zeroed() };
    // SAFETY: a local with as much room as said; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut scheduling, SIZE, 0) };
    // Who has chosen a real-time policy knows better.
    if got != 0 || scheduling.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    scheduling.runtime = SLICE;
    // SAFETY: a local, which says its size. Where it is refused, the thread waits for its turn, as it did.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const scheduling, 0) };
}

#[cfg(test)]
mod tests {
    /// On this kernel, or on one that does not know of it: the thread is as it was, but for its slice.
    #[test]
    fn a_prompt_thread_keeps_its_priority() {
        // SAFETY: the call takes numbers only.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        super::prompt();
        assert_eq!(nice(), before);
    }
}
