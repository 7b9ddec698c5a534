//! CPU time of this process.
//!
//! libc: rustix has no getrusage(2).

use std::time::Duration;

use crate::syscall::zeroed;

/// CPU time, in the program and in the kernel on its behalf.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In the program.
    pub user: Duration,
    /// In the kernel.
    pub system: Duration,
}

/// The CPU time that all threads of this process have used, including those that have ended.
pub fn cpu_time() -> CpuTime {
    // SAFETY: the structure is numbers, and the kernel fills in all of it. The call cannot fail with these arguments.
    let usage = unsafe {
        let mut usage: libc::rusage = zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &raw mut usage);
        usage
    };
    let duration = |time: libc::timeval| {
        let microseconds = u64::try_from(time.tv_usec).unwrap_or(0);
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
            + Duration::from_micros(microseconds)
    };
    CpuTime { user: duration(usage.ru_utime), system: duration(usage.ru_stime) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_other_threads_is_counted() {
        let before = cpu_time();
        let used =
            move |now: CpuTime| (now.user + now.system).saturating_sub(before.user + before.system);
        std::thread::spawn(move || while used(cpu_time()) < Duration::from_millis(20) {})
            .join()
            .unwrap();
        assert!(used(cpu_time()) >= Duration::from_millis(20));
    }
}
