//! `/metrics`: the counters in the OpenMetrics text format 1.0, for Prometheus and others.

use std::fmt::Write;

use ferroce_stat::histogram::{BUCKETS, upper_bound};
use ferroce_stat::snapshot::{Device, Direction, Process, QueuePair, Snapshot};

/// The content type that the format requires.
pub(super) const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The QPs that are exported. Each has some 60 series.
const MAX_QPS: usize = 1000;

/// Every so many buckets of the histogram are one bucket here: four for each power of two become one for each power of
/// four.
const BUCKET_STEP: usize = 8;

/// Counters of a device that are not counts: the last error number.
const NOT_COUNTS: [&str; 2] = ["send_errno", "receive_errno"];

/// The QP states, for the number of QPs in each.
const STATES: [&str; 7] = ferroce_stat::layout::STATES;

/// The name, the unit, the help text and the value of a gauge.
type Gauge<T> = (&'static str, &'static str, &'static str, fn(&T) -> u64);

/// The metrics of a snapshot.
pub(super) fn text(snapshot: &Snapshot) -> String {
    let mut out = Exposition::default();
    out.family("ferroce_build", "info", "", "The version of the command that exports.");
    out.sample("ferroce_build_info", &labels(&[("version", env!("CARGO_PKG_VERSION"))]), 1);
    out.family("ferroce_processes", "gauge", "", "Processes with an open device.");
    out.sample("ferroce_processes", "", snapshot.processes.len() as u64);
    processes(&mut out, snapshot);
    devices(&mut out, snapshot);
    queue_pairs(&mut out, snapshot);
    out.text.push_str("# EOF\n");
    out.text
}

/// The text, family by family.
#[derive(Debug, Default)]
struct Exposition {
    text: String,
}

impl Exposition {
    /// Starts a family. Its samples must follow.
    fn family(&mut self, name: &str, kind: &str, unit: &str, help: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.text, "# TYPE {name} {kind}");
        if !unit.is_empty() {
            let _ = writeln!(self.text, "# UNIT {name} {unit}");
        }
        let _ = writeln!(self.text, "# HELP {name} {}", escape(help));
    }

    fn sample(&mut self, name: &str, labels: &str, value: u64) {
        let _ = match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        };
    }

    fn seconds(&mut self, name: &str, labels: &str, nanoseconds: u64) {
        let _ = writeln!(self.text, "{name}{{{labels}}} {}", nanoseconds as f64 / 1e9);
    }
}

/// Escapes a label's value or a help text.
fn escape(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

fn labels(list: &[(&str, &str)]) -> String {
    let label = |(name, value): &(&str, &str)| format!("{name}=\"{}\"", escape(value));
    list.iter().map(label).collect::<Vec<_>>().join(",")
}

fn process_labels(process: &Process) -> String {
    labels(&[("pid", &process.pid.to_string()), ("process", &process.name)])
}

fn processes(out: &mut Exposition, snapshot: &Snapshot) {
    let name = "ferroce_process_socket_drops";
    out.family(
        name,
        "counter",
        "",
        "Packets that the kernel dropped because a receive buffer was full.",
    );
    for process in &snapshot.processes {
        out.sample(&format!("{name}_total"), &process_labels(process), process.socket_drops);
    }
}

/// The open devices with their labels. Those that a process opened more than once are added up by their index.
fn labeled_devices(snapshot: &Snapshot) -> Vec<(String, &Device)> {
    let mut found = Vec::new();
    for process in &snapshot.processes {
        for (index, device) in process.devices.iter().enumerate() {
            let ordinal =
                process.devices[..index].iter().filter(|one| one.name == device.name).count();
            let mut all =
                format!("{},{}", process_labels(process), labels(&[("device", &device.name)]));
            if ordinal > 0 {
                let _ = write!(all, ",open=\"{ordinal}\"");
            }
            found.push((all, device));
        }
    }
    found
}

fn devices(out: &mut Exposition, snapshot: &Snapshot) {
    let devices = labeled_devices(snapshot);
    let names =
        ferroce_stat::layout::DEVICE_COUNTERS.iter().filter(|name| !NOT_COUNTS.contains(name));
    for counter in names {
        let name = format!("ferroce_device_{counter}");
        out.family(
            &name,
            "counter",
            "",
            &format!("The counter {counter} of a device: docs/counters.md."),
        );
        for (labels, device) in &devices {
            out.sample(&format!("{name}_total"), labels, device.counters.get(counter));
        }
    }
    let gauges: [Gauge<Device>; 5] = [
        ("ferroce_device_active", "", "1 if the port is active.", |device| device.active.into()),
        ("ferroce_device_protection_domains", "", "PDs.", |device| device.pds),
        ("ferroce_device_completion_queues", "", "CQs.", |device| {
            device.completion_queues.len() as u64
        }),
        ("ferroce_device_memory_regions", "", "MRs.", |device| device.memory_regions.len() as u64),
        ("ferroce_device_registered_bytes", "bytes", "The length of all MRs.", |device| {
            device.memory_bytes
        }),
    ];
    for (name, unit, help, value) in gauges {
        out.family(name, "gauge", unit, help);
        for (labels, device) in &devices {
            out.sample(name, labels, value(device));
        }
    }
    let name = "ferroce_device_queue_pairs";
    out.family(name, "gauge", "", "QPs by state.");
    for (labels, device) in &devices {
        for state in STATES {
            let count = device.queue_pairs.iter().filter(|qp| qp.state == state).count();
            out.sample(name, &format!("{labels},state=\"{state}\""), count as u64);
        }
    }
}

fn queue_pairs(out: &mut Exposition, snapshot: &Snapshot) {
    let devices = labeled_devices(snapshot);
    let all = devices
        .iter()
        .flat_map(|(labels, device)| device.queue_pairs.iter().map(move |qp| (labels, qp)));
    let (mut shown, mut hidden) = (Vec::new(), 0);
    for (labels, qp) in all {
        if shown.len() < MAX_QPS {
            shown.push((
                format!("{labels},qpn=\"{:#08x}\",service=\"{}\"", qp.number, qp.service),
                qp,
            ));
        } else {
            hidden += 1;
        }
    }
    out.family(
        "ferroce_qps_not_exported",
        "gauge",
        "",
        "QPs that are left out because there are too many.",
    );
    out.sample("ferroce_qps_not_exported", "", hidden);
    traffic(out, &shown);
    transport(out, &shown);
    latency(out, &shown);
}

type Labeled<'a> = (String, &'a QueuePair);

fn traffic(out: &mut Exposition, qps: &[Labeled<'_>]) {
    type Side = fn(&QueuePair) -> &Direction;
    type Value = fn(&ferroce_stat::snapshot::Traffic) -> u64;
    let families: [(&str, &str, &str, Value); 3] = [
        ("ferroce_qp_packets", "", "Packets by direction and operation.", |traffic| {
            traffic.packets
        }),
        (
            "ferroce_qp_payload_bytes",
            "bytes",
            "Bytes of payload by direction and operation.",
            |traffic| traffic.bytes,
        ),
        ("ferroce_qp_messages", "", "Messages by direction and operation.", |traffic| {
            traffic.messages
        }),
    ];
    let directions: [(&str, Side); 2] = [("tx", |qp| &qp.tx), ("rx", |qp| &qp.rx)];
    for (name, unit, help, value) in families {
        out.family(name, "counter", unit, help);
        for (labels, qp) in qps {
            for (direction, of) in directions {
                for (operation, traffic) in of(qp).operations.iter() {
                    let labels =
                        format!("{labels},direction=\"{direction}\",operation=\"{operation}\"");
                    out.sample(&format!("{name}_total"), &labels, value(&traffic));
                }
            }
        }
    }
}

fn transport(out: &mut Exposition, qps: &[Labeled<'_>]) {
    for counter in ferroce_stat::layout::TRANSPORT_COUNTERS {
        let name = format!("ferroce_qp_{counter}");
        out.family(
            &name,
            "counter",
            "",
            &format!("The counter {counter} of a QP: docs/counters.md."),
        );
        for (labels, qp) in qps {
            out.sample(&format!("{name}_total"), labels, qp.counters.get(counter));
        }
    }
    let name = "ferroce_qp_naks";
    out.family(name, "counter", "", "NAKs by direction and reason.");
    for (labels, qp) in qps {
        for (direction, naks) in [("tx", &qp.naks_sent), ("rx", &qp.naks_received)] {
            for (reason, count) in naks.iter() {
                let labels = format!("{labels},direction=\"{direction}\",reason=\"{reason}\"");
                out.sample("ferroce_qp_naks_total", &labels, count);
            }
        }
    }
    let name = "ferroce_qp_completion_errors";
    out.family(name, "counter", "", "Completions with an error.");
    for (labels, qp) in qps {
        out.sample("ferroce_qp_completion_errors_total", labels, qp.completion_errors);
    }
    let gauges: [Gauge<QueuePair>; 4] = [
        ("ferroce_qp_send_outstanding", "", "Send requests that have not completed.", |qp| {
            qp.send_outstanding
        }),
        ("ferroce_qp_recv_outstanding", "", "Receive requests in the RQ.", |qp| {
            qp.recv_outstanding
        }),
        ("ferroce_qp_in_flight_packets", "", "Packets sent and not acknowledged.", |qp| {
            qp.in_flight_packets
        }),
        ("ferroce_qp_in_flight_bytes", "bytes", "Bytes in flight.", |qp| qp.in_flight_bytes),
    ];
    for (name, unit, help, value) in gauges {
        out.family(name, "gauge", unit, help);
        for (labels, qp) in qps {
            out.sample(name, labels, value(qp));
        }
    }
}

fn latency(out: &mut Exposition, qps: &[Labeled<'_>]) {
    let name = "ferroce_qp_latency_seconds";
    out.family(
        name,
        "histogram",
        "seconds",
        "The time from the post of a request to its completion, sampled.",
    );
    for (labels, qp) in qps {
        let mut sum = 0u64;
        for (index, count) in qp.latency.buckets.iter().enumerate() {
            sum = sum.saturating_add(*count);
            // The last bucket has no upper bound.
            if index % BUCKET_STEP == 0 && index + 1 < BUCKETS {
                let bound = upper_bound(index) as f64 / 1e9;
                out.sample(&format!("{name}_bucket"), &format!("{labels},le=\"{bound:?}\""), sum);
            }
        }
        out.sample(&format!("{name}_bucket"), &format!("{labels},le=\"+Inf\""), sum);
        out.sample(&format!("{name}_count"), labels, sum);
        out.seconds(&format!("{name}_sum"), labels, qp.latency.sum_ns);
    }
}
