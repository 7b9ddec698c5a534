//! The buffers.

use std::fs;
use std::sync::Arc;

use ferroce::Buffer;
use ferroce_trace::render::units;

use crate::session::bytes::Size;

/// Memory that stays available: buffers that use up everything would have the kernel kill processes.
const RESERVE: u64 = 128 << 20;

/// Allocates a buffer and faults in its pages, if this host has `count` times as much memory.
pub(super) fn allocate(size: u64, count: u64, whose: &str) -> Result<Arc<Buffer>, String> {
    check(size, count, available(), whose)?;
    let refused = |error: &dyn std::fmt::Display| {
        format!("cannot allocate {} for {whose}: {error}; choose a smaller --size", Size(size))
    };
    let length = usize::try_from(size).map_err(|error| refused(&error))?;
    let buffer = Buffer::new(length).map_err(|error| refused(&error))?;
    // So that no transfer measures page faults. The kernel may not support it; then the first round, which is not
    // measured, does it.
    let _ = ferroce_sys::memory::populate(buffer.address(), buffer.len(), true);
    Ok(Arc::new(buffer))
}

fn check(size: u64, count: u64, available: Option<u64>, whose: &str) -> Result<(), String> {
    let needed = size.saturating_mul(count).saturating_add(RESERVE);
    match available {
        Some(available) if available < needed => {
            let times = if count > 1 { format!("{count} × ") } else { String::new() };
            Err(format!(
                "{whose} needs {times}{} of memory for its buffers, and this host has {} left: \
                 choose a smaller --size",
                Size(size),
                units::bytes(available.saturating_sub(RESERVE)),
            ))
        }
        _ => Ok(()),
    }
}

/// The memory that can be used without swapping, if the kernel tells (proc_meminfo(5)).
fn available() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn more_than_the_host_has_is_refused() {
        assert!(available().is_some_and(|bytes| bytes > 1 << 20));
        assert_eq!(check(1 << 30, 2, Some(4 << 30), "x"), Ok(()));
        assert_eq!(check(1 << 30, 2, None, "x"), Ok(()));
        let message = check(1 << 30, 2, Some(2 << 30), "both sides together").unwrap_err();
        assert!(message.contains("needs 2 × 1 GiB"), "{message}");
        assert!(allocate(1 << 50, 1, "the server").is_err());
        assert!(allocate(u64::MAX, 2, "the server").is_err());
    }
}
