//! The calling thread, and how promptly the kernel runs it.
//!
//! libc: rustix has no sched_getattr(2) and sched_setattr(2).

use std::num::NonZeroU64;

use crate::syscall::zeroed;

/// The number of the calling thread: never 0.
pub fn id() -> u32 {
    rustix::thread::gettid().as_raw_nonzero().get() as u32
}

/// Lowers the timer slack to 1 µs: the thread is woken at its deadlines, not up to 50 µs later (Linux's default, which
/// saves wakeups).
pub fn set_low_timer_slack() {
    // If the kernel refuses, wakeups stay as late as they were.
    let _ = rustix::thread::set_current_timer_slack(NonZeroU64::new(1_000));
}

/// `struct sched_attr` in its first version, see sched_setattr(2).
#[repr(C)]
struct SchedAttr {
    size: u32,
    policy: u32,
    flags: u64,
    nice: i32,
    priority: u32,
    runtime: u64,
    deadline: u64,
    period: u64,
}

/// Requests the shortest EEVDF time slice, so that the thread is scheduled promptly after a wakeup on a machine without
/// idle processors; it is preempted as promptly. Linux 6.12 and later read the slice from sched_setattr(2) and run
/// shorter ones first; earlier kernels ignore it.
pub fn set_short_time_slice() {
    const SLICE: u64 = 100_000; // Nanoseconds: the minimum that Linux accepts.
    const SIZE: libc::c_uint = size_of::<SchedAttr>() as libc::c_uint;
    // SAFETY: the structure is numbers.
    let mut attr: SchedAttr = unsafe { zeroed() };
    // SAFETY: a local of the given size; 0 is the calling thread.
    let got = unsafe { libc::syscall(libc::SYS_sched_getattr, 0, &raw mut attr, SIZE, 0) };
    // A program that selected a real-time policy keeps it.
    if got != 0 || attr.policy != libc::SCHED_OTHER as u32 {
        return;
    }
    attr.runtime = SLICE;
    // SAFETY: a local that contains its size. If the kernel refuses, the slice stays as it was.
    unsafe { libc::syscall(libc::SYS_sched_setattr, 0, &raw const attr, 0) };
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_short_time_slice_keeps_the_priority() {
        // SAFETY: the call takes numbers only.
        let nice = || unsafe { libc::getpriority(libc::PRIO_PROCESS, 0) };
        let before = nice();
        super::set_short_time_slice();
        assert_eq!(nice(), before);
    }
}
