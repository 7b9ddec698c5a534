//! Turns snapshots of counters into rates. Pure: the time is in the snapshots.

use ferroce_stat::histogram::BUCKETS;
use ferroce_stat::snapshot::{Device, Latency, Process, QueuePair, Reason, Snapshot};

use super::anomalies::{self, Feed, Place};
use super::view::{CqRow, DeviceRow, Faults, MAX_ROWS, MrRow, Point, ProcessRow, QpRow, View};
use crate::stat::drops;
use crate::stat::since::{Before, Interval, device_key};

/// The state between two snapshots.
#[derive(Debug, Default)]
pub(super) struct Sampler {
    previous: Option<Snapshot>,
    feed: Feed,
    sequence: u64,
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
        let interval = Interval::new(previous.as_ref(), &snapshot);
        let mut pass = Pass {
            interval,
            now,
            feed: &mut self.feed,
            view: View::default(),
            latency: Latency { sum_ns: 0, buckets: vec![0; BUCKETS] },
            totals: Sums::default(),
            messages: 0,
        };
        for process in &snapshot.processes {
            pass.process(process);
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
    interval: Interval<'a>,
    now: u64,
    feed: &'a mut Feed,
    view: View,
    /// The requests completed since the last snapshot.
    latency: Latency,
    totals: Sums,
    messages: u64,
}

impl<'a> Pass<'a> {
    fn rate(&self, increase: u64) -> f64 {
        self.interval.rate(increase)
    }

    fn process(&mut self, process: &Process) {
        let known = self.interval.process(process);
        let mut sums = Sums::default();
        let (mut qps, mut cqs, mut mrs, mut memory) = (0, 0, 0, 0u64);
        for (index, device) in process.devices.iter().enumerate() {
            let before = self.interval.device(known, process, index);
            let key = format!("{}/{}", process.pid, device_key(process, index));
            sums.add(&self.device(process, device, before, &key));
            qps += device.queue_pairs.len();
            cqs += device.completion_queues.len();
            mrs += device.memory_regions.len();
            memory = memory.saturating_add(device.memory_bytes);
        }
        let drops = known.increase(process, |process| process.socket_drops);
        let device = process.devices.first().map_or("", |device| device.name.as_str());
        let place = Place { pid: process.pid, process: &process.name, device, qp: None };
        self.record(&anomalies::SOCKET_DROPS, None, drops, place);
        if let Some(reason) = &process.last_reason {
            let count = known.increase(process, |process| reasons(&process.last_reason));
            self.record(&anomalies::CALL_FAILED, Some(&reason.text), count, place);
        }
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
        before: Before<'a, Device>,
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
                corrupt: self.rate(before.increase(device, drops::corrupt)),
                drops: self.rate(before.increase(device, drops::drops)),
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
        if let Some(reason) = &device.last_reason {
            let count = before.increase(device, |device| reasons(&device.last_reason));
            self.record(&anomalies::REFUSED, Some(&reason.text), count, place);
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
        device_before: Before<'a, Device>,
        device_key: &str,
    ) {
        let before = self.interval.queue_pair(device_before, qp);
        let latency = before.latency(qp);
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
        if self.interval.is_known() {
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

/// How many reasons there were.
fn reasons(last: &Option<Reason>) -> u64 {
    last.as_ref().map_or(0, |last| last.count)
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
