//! Turns snapshots of counters into rates. Pure: the time is in the snapshots.
//!
//! Counters only increase while their object lives. An object that is new since the last snapshot counts from zero, so that
//! a short burst is not lost. One that is older but was not seen before (the dashboard just started, or the process could
//! not be read last time) has no rate yet. A process or QP whose age went down is another one with the same number.

use std::collections::HashMap;

use ferroce_stat::histogram::BUCKETS;
use ferroce_stat::snapshot::{Device, Latency, Process, QueuePair, Snapshot};

use super::anomalies::{self, Feed, Place};
use super::view::{CqRow, DeviceRow, Faults, MAX_ROWS, MrRow, Point, ProcessRow, QpRow, View};

/// The state between two snapshots.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    previous: Option<Snapshot>,
    feed: Feed,
    sequence: u64,
}

/// The counters of an object at the last snapshot.
enum Before<'a, T> {
    /// It existed.
    Known(&'a T),
    /// It did not exist.
    New,
    /// It existed, but its counters are not known.
    Unknown,
}

impl<T> Before<'_, T> {
    /// How much a counter increased. One that decreased belongs to another object.
    fn increase(&self, now: &T, counter: impl Fn(&T) -> u64) -> u64 {
        match self {
            Self::Known(before) => counter(now).saturating_sub(counter(before)),
            Self::New => counter(now),
            Self::Unknown => 0,
        }
    }
}

/// The increases of one device, added up.
#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    tx: f64,
    rx: f64,
    tx_packets: f64,
    rx_packets: f64,
    faults: Faults,
}

impl Sums {
    fn add(&mut self, more: &Self) {
        self.tx += more.tx;
        self.rx += more.rx;
        self.tx_packets += more.tx_packets;
        self.rx_packets += more.rx_packets;
        self.faults.add(&more.faults);
    }
}

impl Sampler {
    /// The next view. `now` is in milliseconds since 1970.
    pub(super) fn update(&mut self, snapshot: Snapshot, now: u64) -> View {
        let previous = self.previous.take();
        let elapsed = previous
            .as_ref()
            .map(|before| snapshot.time_ns.saturating_sub(before.time_ns) as f64 / 1e9);
        // Two snapshots at the same moment have no rates.
        let elapsed = elapsed.filter(|elapsed| *elapsed > 0.0);
        let before: HashMap<u32, &Process> = previous
            .iter()
            .flat_map(|before| &before.processes)
            .map(|process| (process.pid, process))
            .collect();
        let mut pass = Pass {
            elapsed,
            now,
            feed: &mut self.feed,
            view: View::default(),
            latency: Latency { sum_ns: 0, buckets: vec![0; BUCKETS] },
            totals: Sums::default(),
            messages: 0,
        };
        for process in &snapshot.processes {
            let known = before.get(&process.pid);
            let known = known.filter(|known| pass.is_same(known.age_seconds, process.age_seconds));
            pass.process(process, known.copied());
        }
        let mut view = pass.finish();
        self.sequence += 1;
        view.sequence = self.sequence;
        view.anomalies = self.feed.list();
        self.previous = Some(snapshot);
        view
    }

    /// The last snapshot.
    pub(super) fn last(&self) -> Option<&Snapshot> {
        self.previous.as_ref()
    }
}

/// One pass over a snapshot.
struct Pass<'a> {
    /// The seconds since the last snapshot, if there is one.
    elapsed: Option<f64>,
    now: u64,
    feed: &'a mut Feed,
    view: View,
    /// The requests completed since the last snapshot.
    latency: Latency,
    totals: Sums,
    messages: u64,
}

impl Pass<'_> {
    fn rate(&self, increase: u64) -> f64 {
        self.elapsed.map_or(0.0, |elapsed| increase as f64 / elapsed)
    }

    /// Whether an object of this age has been created since the last snapshot. The two times are read one after the other.
    fn is_new(&self, age: f64) -> bool {
        self.elapsed.is_some_and(|elapsed| age <= elapsed + 0.25)
    }

    /// Whether two ages of an object with the same number are of the same object: it is as much older as time has passed.
    fn is_same(&self, before: f64, now: f64) -> bool {
        self.elapsed.is_some_and(|elapsed| now >= before + elapsed / 2.0)
    }

    fn process(&mut self, process: &Process, before: Option<&Process>) {
        let is_new = self.is_new(process.age_seconds);
        let mut sums = Sums::default();
        let (mut qps, mut cqs, mut mrs, mut memory) = (0, 0, 0, 0u64);
        for (index, device) in process.devices.iter().enumerate() {
            // A process that opened a device twice has two of the same name.
            let same_name = |one: &&Device| one.name == device.name;
            let ordinal = process.devices[..index].iter().filter(same_name).count();
            let known =
                before.and_then(|before| before.devices.iter().filter(same_name).nth(ordinal));
            let known = match known {
                Some(known) => Before::Known(known),
                None if before.is_some() || is_new => Before::New,
                None => Before::Unknown,
            };
            let key = match ordinal {
                0 => format!("{}/{}", process.pid, device.name),
                _ => format!("{}/{}.{ordinal}", process.pid, device.name),
            };
            sums.add(&self.device(process, device, &known, &key));
            qps += device.queue_pairs.len();
            cqs += device.completion_queues.len();
            mrs += device.memory_regions.len();
            memory = memory.saturating_add(device.memory_bytes);
        }
        let known = match before {
            Some(before) => Before::Known(before),
            None if is_new => Before::New,
            None => Before::Unknown,
        };
        let drops = known.increase(process, |process| process.socket_drops);
        let device = process.devices.first().map_or("", |device| device.name.as_str());
        let place = Place { pid: process.pid, process: &process.name, device, qp: None };
        self.record(&anomalies::SOCKET_DROPS, None, drops, place);
        sums.faults.drops += self.rate(drops);
        self.totals.add(&sums);
        let counts = &mut self.view.counts;
        counts.processes += 1;
        counts.devices += process.devices.len();
        counts.qps += qps;
        counts.cqs += cqs;
        counts.mrs += mrs;
        counts.memory = counts.memory.saturating_add(memory);
        self.view.processes.push(ProcessRow {
            pid: process.pid,
            name: process.name.clone(),
            command: process.command.clone(),
            state: process.state,
            age: process.age_seconds,
            devices: process.devices.len(),
            qps,
            cqs,
            mrs,
            memory,
            tx: sums.tx,
            rx: sums.rx,
            tx_packets: sums.tx_packets,
            rx_packets: sums.rx_packets,
            faults: sums.faults.sum(),
            unknown_format: process.unknown_format,
            library: process.library.clone(),
        });
    }

    fn device(
        &mut self,
        process: &Process,
        device: &Device,
        before: &Before<'_, Device>,
        key: &str,
    ) -> Sums {
        let increase = |name: &str| before.increase(device, |device| device.counters.get(name));
        let rate = |name: &str| self.rate(increase(name));
        let sums = Sums {
            tx: rate("bytes_out") * 8.0,
            rx: rate("bytes_in") * 8.0,
            tx_packets: rate("packets_out"),
            rx_packets: rate("packets_in"),
            faults: Faults {
                corrupt: rate("bad_icrc") + rate("malformed"),
                drops: ["overruns", "send_failed", "receive_failed", "forward_failed"]
                    .map(rate)
                    .iter()
                    .sum(),
                ..transport_faults(rate)
            },
        };
        let local = increase("local_packets_in") + increase("local_packets_out");
        let all = increase("packets_in") + increase("packets_out");
        let place =
            Place { pid: process.pid, process: &process.name, device: &device.name, qp: None };
        for rule in anomalies::DEVICE_RULES {
            self.record(rule, None, increase(rule.counter), place);
        }
        for queue_pair in &device.queue_pairs {
            self.queue_pair(process, device, queue_pair, before, key);
        }
        for queue in &device.completion_queues {
            let known = match before {
                // The reader sorts them.
                Before::Known(before) => {
                    match before.completion_queues.binary_search_by_key(&queue.id, |one| one.id) {
                        Ok(index) => Before::Known(&before.completion_queues[index]),
                        Err(_) => Before::New,
                    }
                }
                Before::New => Before::New,
                Before::Unknown => Before::Unknown,
            };
            self.view.cqs.push(CqRow {
                key: format!("{key}/{}", queue.id),
                pid: process.pid,
                process: process.name.clone(),
                device: device.name.clone(),
                id: queue.id,
                capacity: queue.capacity,
                pending: queue.pending,
                rate: self.rate(known.increase(queue, |queue| queue.completions)),
                completions: queue.completions,
                overruns: queue.overruns,
            });
        }
        for (index, region) in device.memory_regions.iter().enumerate() {
            self.view.mrs.push(MrRow {
                key: format!("{key}/{index}"),
                pid: process.pid,
                process: process.name.clone(),
                device: device.name.clone(),
                pd: region.pd,
                length: region.length,
                access: region.access.clone(),
            });
        }
        self.view.devices.push(DeviceRow {
            key: key.to_owned(),
            pid: process.pid,
            process: process.name.clone(),
            name: device.name.clone(),
            address: device.address.map(|address| address.to_string()),
            active: device.active,
            mtu: device.mtu,
            qps: device.queue_pairs.len(),
            tx: sums.tx,
            rx: sums.rx,
            tx_packets: sums.tx_packets,
            rx_packets: sums.rx_packets,
            local: if all == 0 { 0.0 } else { local as f64 / all as f64 },
            faults: sums.faults.sum(),
        });
        sums
    }

    fn queue_pair(
        &mut self,
        process: &Process,
        device: &Device,
        qp: &QueuePair,
        device_before: &Before<'_, Device>,
        device_key: &str,
    ) {
        let known = match device_before {
            Before::Known(device) => {
                let qps = &device.queue_pairs;
                qps.binary_search_by_key(&qp.number, |one| one.number).ok().map(|index| &qps[index])
            }
            Before::New | Before::Unknown => None,
        };
        let known = known.filter(|known| self.is_same(known.age_seconds, qp.age_seconds));
        let before = match known {
            Some(known) => Before::Known(known),
            None if self.is_new(qp.age_seconds) => Before::New,
            None => Before::Unknown,
        };
        let latency = match &before {
            Before::Known(before) => qp.latency.since(&before.latency),
            Before::New => qp.latency.clone(),
            Before::Unknown => Latency::default(),
        };
        for (sum, count) in self.latency.buckets.iter_mut().zip(&latency.buckets) {
            *sum = sum.saturating_add(*count);
        }
        let messages = before.increase(qp, |qp| qp.tx.operations.messages());
        self.messages = self.messages.saturating_add(messages);
        let key = format!("{device_key}/{}", qp.number);
        let place = Place {
            pid: process.pid,
            process: &process.name,
            device: &device.name,
            qp: Some((&key, qp.number)),
        };
        for rule in anomalies::QP_RULES {
            let count = before.increase(qp, |qp| qp.counters.get(rule.counter));
            self.record(rule, None, count, place);
        }
        for rule in anomalies::NAK_RULES {
            let received = before.increase(qp, |qp| qp.naks_received.get(rule.counter));
            self.record(rule, Some("received"), received, place);
            let sent = before.increase(qp, |qp| qp.naks_sent.get(rule.counter));
            self.record(rule, Some("sent"), sent, place);
        }
        // Flushed requests are how a connection ends.
        if qp.last_error.is_some_and(|error| error != "WR_FLUSH_ERR") {
            let count = before.increase(qp, |qp| qp.completion_errors);
            self.record(&anomalies::COMPLETION_ERROR, qp.last_error, count, place);
        }
        let counter = |name: &str| self.rate(before.increase(qp, |qp| qp.counters.get(name)));
        let faults = transport_faults(counter);
        let bits =
            |direction: fn(&QueuePair) -> u64| self.rate(before.increase(qp, direction)) * 8.0;
        let row = QpRow {
            pid: process.pid,
            process: process.name.clone(),
            device: device.name.clone(),
            qpn: qp.number,
            service: qp.service,
            state: qp.state,
            remote_qpn: qp.remote_number,
            remote: qp.remote_address.map(|address| address.to_string()),
            link: qp.link,
            age: qp.age_seconds,
            tx: bits(|qp| qp.tx.bytes),
            rx: bits(|qp| qp.rx.bytes),
            messages: self.rate(messages),
            outstanding: qp.send_outstanding,
            in_flight: qp.in_flight_bytes,
            p50: latency.quantile_ns(0.5),
            p99: latency.quantile_ns(0.99),
            retransmits: qp.counters.get("retrans_pkts"),
            naks: qp.naks_received.sum(),
            errors: qp.completion_errors,
            last_error: qp.last_error,
            faults: faults.sum(),
            key,
        };
        self.view.qps.push(row);
    }

    /// Records an anomaly, unless the counters may have increased before the dashboard started.
    fn record(
        &mut self,
        rule: &anomalies::Rule,
        suffix: Option<&str>,
        count: u64,
        place: Place<'_>,
    ) {
        if self.elapsed.is_some() {
            self.feed.record(rule, suffix, count, place, self.now);
        }
    }

    fn finish(mut self) -> View {
        let messages = self.rate(self.messages);
        self.view.totals = Point {
            time: self.now,
            tx: self.totals.tx,
            rx: self.totals.rx,
            tx_packets: self.totals.tx_packets,
            rx_packets: self.totals.rx_packets,
            messages,
            p50: self.latency.quantile_ns(0.5),
            p90: self.latency.quantile_ns(0.9),
            p99: self.latency.quantile_ns(0.99),
            faults: self.totals.faults,
        };
        busiest(&mut self.view.processes, |row| row.tx + row.rx + row.faults);
        busiest(&mut self.view.devices, |row| row.tx + row.rx + row.faults);
        busiest(&mut self.view.qps, |row| row.tx + row.rx + row.messages + row.faults);
        busiest(&mut self.view.cqs, |row| row.rate + row.pending as f64);
        busiest(&mut self.view.mrs, |row| row.length as f64);
        self.view
    }
}

/// The faults that a transport counts.
fn transport_faults(rate: impl Fn(&str) -> f64) -> Faults {
    Faults {
        retransmits: rate("retrans_pkts"),
        timeouts: rate("local_ack_timeout_err"),
        rnr: rate("rnr_nak_retry_err"),
        sequence_errors: rate("packet_seq_err") + rate("implied_nak_seq_err"),
        congestion: rate("np_ecn_marked_roce_packets") + rate("rp_cnp_handled"),
        ..Faults::default()
    }
}

/// Keeps the busiest rows, if there are too many.
fn busiest<T>(rows: &mut Vec<T>, load: impl Fn(&T) -> f64) {
    if rows.len() > MAX_ROWS {
        rows.sort_by(|one, other| load(other).total_cmp(&load(one)));
        rows.truncate(MAX_ROWS);
    }
}
