//! Which counters of a device count what was corrupt and what was dropped: one definition for `top` and the dashboard.

use ferroce_stat::snapshot::{Device, Process};

/// Packets that arrived damaged.
const CORRUPT: [&str; 2] = ["malformed", "bad_icrc"];

/// Packets and completions that were dropped, except corrupt ones.
const DROPS: [&str; 5] =
    ["bad_partition", "no_queue_pair", "overruns", "send_failed", "forward_failed"];

/// Packets that arrived damaged.
pub(crate) fn corrupt(device: &Device) -> u64 {
    sum(device, &CORRUPT)
}

/// Packets and completions that the device dropped, except corrupt ones. The kernel's drops ([`of_kernel`]) are not among
/// them.
pub(crate) fn drops(device: &Device) -> u64 {
    sum(device, &DROPS)
}

/// Packets that the kernel dropped in front of the process's sockets, which belong to no device: they are shown with the
/// first.
pub(crate) fn of_kernel(process: &Process, index: usize) -> u64 {
    if index == 0 { process.socket_drops } else { 0 }
}

fn sum(device: &Device, counters: &[&str]) -> u64 {
    counters.iter().fold(0, |sum, name| sum.saturating_add(device.counters.get(name)))
}
