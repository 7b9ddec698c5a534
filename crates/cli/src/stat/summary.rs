//! The summary: a paragraph for each process and device.

use ferroce_stat::snapshot::{Device, Latency, Process, Reason, Snapshot};
use ferroce_trace::render::units::{bytes, count, counted, duration};
use ferroce_trace::render::{Line, Tone};

/// Draws the summary.
pub(super) fn lines(snapshot: &Snapshot) -> Vec<Line> {
    if snapshot.processes.is_empty() {
        return vec![Line::of(
            Tone::Faint,
            "no process has a device open (processes of other users are shown to root only)",
        )];
    }
    let mut lines = Vec::new();
    for process in &snapshot.processes {
        if !lines.is_empty() {
            lines.push(Line::new());
        }
        lines.push(title(process));
        for warning in warnings(process) {
            lines.push(Line::of(Tone::Warning, format!("  {warning}")));
        }
        for device in &process.devices {
            device_lines(process, device, &mut lines);
        }
    }
    lines
}

/// The line that names a process.
pub(super) fn title(process: &Process) -> Line {
    let age = duration((process.age_seconds * 1e9) as u64);
    let mut line = Line::of(Tone::Title, format!("{} {}", process.pid, process.name));
    line.push(Tone::Faint, format!("  uid {}, started {age} ago", process.uid));
    if process.state == 'T' {
        line.push(Tone::Warning, "  stopped");
    }
    line
}

fn warnings(process: &Process) -> Vec<String> {
    let mut all = Vec::new();
    if process.unknown_format {
        let version = &process.library;
        all.push(format!(
            "its library (version {version}) publishes another format: use its ferroce stat"
        ));
    }
    if process.unpublished > 0 {
        let number = counted(process.unpublished, "object");
        all.push(format!("{number} not shown: the memory for them is full"));
    }
    if process.inconsistent > 0 {
        let number = counted(process.inconsistent, "object");
        all.push(format!("{number} caught in the middle of a change"));
    }
    all
}

fn device_lines(process: &Process, device: &Device, lines: &mut Vec<Line>) {
    let address = device.address.map(|address| format!("  {address}")).unwrap_or_default();
    let (tone, state) = if device.active { (Tone::Good, "active") } else { (Tone::Bad, "down") };
    let title = Line::of(Tone::Strong, format!("  {}", device.name)).plain(address);
    lines.push(title.plain("  ").with(tone, state).plain(format!("  MTU {}", device.mtu)));
    let mut row = |name: &str, text: Line| {
        let mut line = Line::of(Tone::Faint, format!("    {name:<11}"));
        line.append(text);
        lines.push(line);
    };
    row("objects", Line::of(Tone::Plain, objects(device)));
    let counters = &device.counters;
    for (name, packets, size, local) in [
        ("sent", "packets_out", "bytes_out", "local_packets_out"),
        ("received", "packets_in", "bytes_in", "local_packets_in"),
    ] {
        let mut text =
            format!("{}, {}", counted(counters.get(packets), "packet"), bytes(counters.get(size)));
        if counters.get(local) > 0 {
            text += &format!(", {} through shared memory", count(counters.get(local)));
        }
        row(name, Line::of(Tone::Plain, text));
    }
    if let Some(text) = latency(&all_latencies(device)) {
        row("latency", Line::of(Tone::Plain, text));
    }
    let errors = errors(process, device);
    let (tone, text) = match errors.is_empty() {
        true => (Tone::Good, "none".to_owned()),
        false => (Tone::Warning, errors.join(", ")),
    };
    row("events", Line::of(tone, text));
    if let Some((name, reason)) = last_reason(process, device) {
        row("last error", Line::of(Tone::Bad, reason_text(&name, reason)));
    }
}

/// Why something was refused last: by a QP of the device, by the device, or in a call of the process. With what it
/// belongs to.
fn last_reason<'a>(process: &'a Process, device: &'a Device) -> Option<(String, &'a Reason)> {
    let pairs = device.queue_pairs.iter().filter_map(|pair| {
        let name = format!("QP {:#08x}: ", pair.number);
        pair.last_reason.as_ref().map(|reason| (name, reason))
    });
    let others = [&device.last_reason, &process.last_reason].into_iter().flatten();
    let all = pairs.chain(others.map(|reason| (String::new(), reason)));
    all.min_by(|(_, one), (_, other)| one.age_seconds.total_cmp(&other.age_seconds))
}

/// A reason in one line.
pub(crate) fn reason_text(name: &str, reason: &Reason) -> String {
    let age = duration((reason.age_seconds * 1e9) as u64);
    let more = match reason.count {
        0 | 1 => String::new(),
        count => format!(", {} in all", counted(count, "error")),
    };
    let number = match reason.number {
        0 => String::new(),
        number => format!("vendor_err {number}, "),
    };
    format!("{name}{} ({number}{age} ago{more})", reason.text)
}

/// The number of objects of each kind.
fn objects(device: &Device) -> String {
    let mut states: Vec<(&str, u64)> = Vec::new();
    for queue_pair in &device.queue_pairs {
        match states.iter_mut().find(|(state, _)| *state == queue_pair.state) {
            Some((_, number)) => *number += 1,
            None => states.push((queue_pair.state, 1)),
        }
    }
    let states: Vec<_> = states.iter().map(|(state, number)| format!("{number} {state}")).collect();
    let mut all = vec![counted(device.queue_pairs.len() as u64, "QP")];
    if !states.is_empty() {
        all[0] += &format!(" ({})", states.join(", "));
    }
    all.push(counted(device.completion_queues.len() as u64, "CQ"));
    let regions = counted(device.memory_regions.len() as u64, "MR");
    all.push(format!("{regions} of {}", bytes(device.memory_bytes)));
    all.push(counted(device.pds, "PD"));
    for (number, name) in
        [(device.shared_receive_queues.len() as u64, "SRQ"), (device.memory_windows, "MW")]
    {
        if number > 0 {
            all.push(counted(number, name));
        }
    }
    all.join(", ")
}

/// The latencies of all queue pairs of a device.
pub(super) fn all_latencies(device: &Device) -> Latency {
    let mut all = Latency::default();
    for queue_pair in &device.queue_pairs {
        all.add(&queue_pair.latency);
    }
    all
}

/// Percentiles of a latency; `None` if nothing was measured.
pub(super) fn latency(latency: &Latency) -> Option<String> {
    let shares = [("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("p99.9", 0.999)];
    let shown = |(name, share): (&str, f64)| {
        latency.quantile_ns(share).map(|nanos| format!("{name} {}", duration(nanos)))
    };
    let parts: Option<Vec<_>> = shares.into_iter().map(shown).collect();
    Some(format!("{} ({})", parts?.join(", "), counted(latency.count(), "sample")))
}

/// Counters that count no packets that arrived or left as they should.
const TRAFFIC: [&str; 8] = [
    "packets_in",
    "bytes_in",
    "packets_out",
    "bytes_out",
    "local_packets_in",
    "local_packets_out",
    "forwarded_in",
    "forwarded_out",
];

/// Everything that went wrong, or had to be recovered from: counters that are not zero.
pub(super) fn errors(process: &Process, device: &Device) -> Vec<String> {
    let counted = device.counters.iter().chain([("socket_drops", process.socket_drops)]);
    counted
        .filter(|(name, value)| *value > 0 && !TRAFFIC.contains(name))
        .map(|(name, value)| format!("{name} {}", count(value)))
        .collect()
}
