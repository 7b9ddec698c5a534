//! Rates between two snapshots.

use std::collections::HashMap;

use ferroce_stat::snapshot::{Device, Latency, Process, QueuePair, Snapshot};
use serde::Serialize;

/// What happened per second.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Rates {
    /// Packets sent.
    pub(crate) tx_packets: f64,
    /// Bytes sent: of a device from the BTH to the ICRC, of a queue pair the payload.
    pub(crate) tx_bytes: f64,
    /// Packets received.
    pub(crate) rx_packets: f64,
    /// Bytes received.
    pub(crate) rx_bytes: f64,
    /// Packets sent again.
    pub(crate) retransmits: f64,
    /// The requests that were measured in this time.
    pub(crate) latency: Latency,
}

/// The rates of a device of a process.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct DeviceRates {
    pub(crate) pid: u32,
    pub(crate) name: String,
    pub(crate) device: String,
    pub(crate) rates: Rates,
    pub(crate) queue_pairs: Vec<QpRates>,
}

/// The rates of a queue pair.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QpRates {
    pub(crate) number: u32,
    pub(crate) rates: Rates,
}

/// Identifies a device in two snapshots. A process ID may be used again, but not by a process of the same age.
fn key<'a>(process: &'a Process, device: &'a Device) -> (u32, &'a str) {
    (process.pid, &device.name)
}

/// The rates of all devices in the later snapshot. Counters of a device or queue pair that is new count from zero, and one
/// whose counters went back is another of the same name.
pub(crate) fn between(before: &Snapshot, now: &Snapshot) -> Vec<DeviceRates> {
    let seconds = now.time_ns.saturating_sub(before.time_ns) as f64 / 1e9;
    let all = before.processes.iter();
    let earlier: HashMap<_, _> = all
        .flat_map(|process| process.devices.iter().map(move |one| (key(process, one), one)))
        .collect();
    let devices = now
        .processes
        .iter()
        .flat_map(|process| process.devices.iter().map(move |device| (process, device)));
    devices
        .map(|(process, device)| {
            let before = earlier.get(&key(process, device)).copied();
            DeviceRates {
                pid: process.pid,
                name: process.name.clone(),
                device: device.name.clone(),
                rates: of_device(before, device, seconds),
                queue_pairs: device
                    .queue_pairs
                    .iter()
                    .map(|pair| {
                        let same = |one: &&QueuePair| one.number == pair.number;
                        let before = before.and_then(|one| one.queue_pairs.iter().find(same));
                        QpRates { number: pair.number, rates: of_pair(before, pair, seconds) }
                    })
                    .collect(),
            }
        })
        .collect()
}

fn per_second(before: Option<u64>, now: u64, seconds: f64) -> f64 {
    let more = now.checked_sub(before.unwrap_or(0)).unwrap_or(now);
    if seconds > 0.0 { more as f64 / seconds } else { 0.0 }
}

fn of_device(before: Option<&Device>, now: &Device, seconds: f64) -> Rates {
    let rate = |name: &str| {
        let before = before.map(|device| device.counters.get(name));
        per_second(before, now.counters.get(name), seconds)
    };
    let mut latency = Latency::default();
    for pair in &now.queue_pairs {
        let same = |one: &&QueuePair| one.number == pair.number;
        let before = before.and_then(|device| device.queue_pairs.iter().find(same));
        latency.add(&since(before, pair));
    }
    Rates {
        tx_packets: rate("packets_out"),
        tx_bytes: rate("bytes_out"),
        rx_packets: rate("packets_in"),
        rx_bytes: rate("bytes_in"),
        retransmits: rate("retrans_pkts"),
        latency,
    }
}

fn since(before: Option<&QueuePair>, now: &QueuePair) -> Latency {
    before.map_or_else(|| now.latency.clone(), |before| now.latency.since(&before.latency))
}

fn of_pair(before: Option<&QueuePair>, now: &QueuePair, seconds: f64) -> Rates {
    let rate =
        |value: &dyn Fn(&QueuePair) -> u64| per_second(before.map(value), value(now), seconds);
    Rates {
        tx_packets: rate(&|pair| pair.tx.packets),
        tx_bytes: rate(&|pair| pair.tx.bytes),
        rx_packets: rate(&|pair| pair.rx.packets),
        rx_bytes: rate(&|pair| pair.rx.bytes),
        retransmits: rate(&|pair| pair.counters.get("retrans_pkts")),
        latency: since(before, now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_went_back_count_from_zero() {
        assert_eq!(per_second(Some(100), 300, 2.0), 100.0);
        assert_eq!(per_second(Some(300), 100, 2.0), 50.0);
        assert_eq!(per_second(None, 100, 2.0), 50.0);
        assert_eq!(per_second(None, 100, 0.0), 0.0);
    }
}
