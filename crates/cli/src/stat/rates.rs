//! Rates between two snapshots.

use ferroce_stat::snapshot::{Device, Latency, QueuePair, Snapshot};
use serde::Serialize;

use super::since::{Before, Interval, device_key};

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
    /// Tells it from the same device that the process opened before.
    #[serde(skip)]
    pub(crate) key: String,
    pub(crate) rates: Rates,
    pub(crate) queue_pairs: Vec<QpRates>,
}

/// The rates of a queue pair.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct QpRates {
    pub(crate) number: u32,
    pub(crate) rates: Rates,
}

/// The rates of all devices in the later snapshot.
pub(crate) fn between(before: &Snapshot, now: &Snapshot) -> Vec<DeviceRates> {
    let interval = Interval::new(Some(before), now);
    let mut all = Vec::new();
    for process in &now.processes {
        let known = interval.process(process);
        for (index, device) in process.devices.iter().enumerate() {
            let before = interval.device(known, process, index);
            let mut latency = Latency::default();
            let queue_pairs = device.queue_pairs.iter().map(|pair| {
                let rates = of_pair(&interval, interval.queue_pair(before, pair), pair);
                latency.add(&rates.latency);
                QpRates { number: pair.number, rates }
            });
            all.push(DeviceRates {
                pid: process.pid,
                name: process.name.clone(),
                device: device.name.clone(),
                key: device_key(process, index),
                queue_pairs: queue_pairs.collect(),
                rates: Rates { latency, ..of_device(&interval, before, device) },
            });
        }
    }
    all
}

fn of_device(interval: &Interval<'_>, before: Before<'_, Device>, now: &Device) -> Rates {
    let rate = |name: &str| interval.rate(before.increase(now, |device| device.counters.get(name)));
    Rates {
        tx_packets: rate("packets_out"),
        tx_bytes: rate("bytes_out"),
        rx_packets: rate("packets_in"),
        rx_bytes: rate("bytes_in"),
        retransmits: rate("retrans_pkts"),
        latency: Latency::default(),
    }
}

fn of_pair(interval: &Interval<'_>, before: Before<'_, QueuePair>, now: &QueuePair) -> Rates {
    let rate = |value: fn(&QueuePair) -> u64| interval.rate(before.increase(now, value));
    Rates {
        tx_packets: rate(|pair| pair.tx.packets),
        tx_bytes: rate(|pair| pair.tx.bytes),
        rx_packets: rate(|pair| pair.rx.packets),
        rx_bytes: rate(|pair| pair.rx.bytes),
        retransmits: rate(|pair| pair.counters.get("retrans_pkts")),
        latency: before.latency(now),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ferroce_stat::layout::DEVICE_COUNTERS;
    use ferroce_stat::snapshot::{Counters, Process};

    /// A process of this age with a device, opened as often as there are counts of sent bytes.
    fn process(pid: u32, age_seconds: f64, sent: &[u64]) -> Process {
        let device = |sent: &u64| {
            let count = |name: &&str| if *name == "bytes_out" { *sent } else { 0 };
            let counters =
                Counters::new(DEVICE_COUNTERS, DEVICE_COUNTERS.iter().map(count).collect());
            Device { name: "ferroce_lo".to_owned(), counters, ..Device::default() }
        };
        let devices = sent.iter().map(device).collect();
        Process { pid, age_seconds, devices, ..Process::default() }
    }

    fn sent(before: Vec<Process>, now: Vec<Process>) -> Vec<(String, f64)> {
        let snapshot = |time_ns, processes| Snapshot { time_ns, processes };
        let rates = between(&snapshot(0, before), &snapshot(2_000_000_000, now));
        rates.into_iter().map(|one| (one.key, one.rates.tx_bytes)).collect()
    }

    #[test]
    fn a_device_opened_twice_has_two_rates() {
        let rates =
            sent(vec![process(1, 50.0, &[100, 5000])], vec![process(1, 52.0, &[300, 5020])]);
        assert_eq!(rates, [("ferroce_lo".to_owned(), 100.0), ("ferroce_lo.1".to_owned(), 10.0)]);
        // The second is new.
        let rates = sent(vec![process(1, 50.0, &[100])], vec![process(1, 52.0, &[300, 40])]);
        assert_eq!(rates[1].1, 20.0);
    }

    #[test]
    fn the_history_of_a_process_is_no_rate() {
        let seen_late = sent(vec![], vec![process(1, 90.0, &[1_000_000])]);
        assert_eq!(seen_late[0].1, 0.0);
        let new = sent(vec![], vec![process(1, 1.0, &[1000])]);
        assert_eq!(new[0].1, 500.0);
        // Another process with the same number.
        let other = sent(vec![process(1, 90.0, &[1000])], vec![process(1, 1.0, &[3000])]);
        assert_eq!(other[0].1, 1500.0);
    }

    #[test]
    fn a_counter_that_went_back_counts_from_zero() {
        let again = sent(vec![process(1, 50.0, &[900])], vec![process(1, 52.0, &[100])]);
        assert_eq!(again[0].1, 50.0);
    }
}
