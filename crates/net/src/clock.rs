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
