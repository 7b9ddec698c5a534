//! Tables of the objects of each device.

use ferroce_stat::snapshot::{Device, QueuePair, Snapshot, Traffic};
use ferroce_trace::render::table::{Align, Table};
use ferroce_trace::render::units::{bytes, count, duration};
use ferroce_trace::render::{Line, Tone};

use super::args::{Object, StatArgs};
use super::summary;

/// Draws the tables of the objects that were asked for.
pub(super) fn lines(snapshot: &Snapshot, args: &StatArgs, columns: usize) -> Vec<Line> {
    let objects = if args.objects.is_empty() {
        &[Object::Dev, Object::Qp, Object::Cq, Object::Mr, Object::Srq][..]
    } else {
        &args.objects
    };
    let mut lines = Vec::new();
    for process in &snapshot.processes {
        for device in &process.devices {
            if !lines.is_empty() {
                lines.push(Line::new());
            }
            let mut title = summary::title(process);
            title.push(Tone::Strong, format!("  {}", device.name));
            lines.push(title);
            for object in objects {
                match object {
                    Object::Dev => {
                        lines.extend(counters(device, process.socket_drops).lines(columns));
                        let reasons = [&device.last_reason, &process.last_reason];
                        lines.extend(reasons.into_iter().flatten().map(|reason| {
                            let text = summary::reason_text("  last error: ", reason);
                            Line::of(Tone::Bad, text)
                        }));
                    }
                    Object::Qp => {
                        lines.extend(queue_pairs(device, columns));
                        if args.verbose {
                            device.queue_pairs.iter().for_each(|one| details(one, &mut lines));
                        }
                    }
                    Object::Cq => lines.extend(completion_queues(device).lines(columns)),
                    Object::Mr => lines.extend(memory_regions(device).lines(columns)),
                    Object::Srq => lines.extend(receive_queues(device).lines(columns)),
                }
            }
        }
    }
    lines
}

fn plain(text: impl ToString) -> Line {
    Line::of(Tone::Plain, text.to_string())
}

/// A number that is faint if it is zero.
fn number(value: u64, tone: Tone) -> Line {
    Line::of(if value == 0 { Tone::Faint } else { tone }, count(value))
}

fn counters(device: &Device, socket_drops: u64) -> Table {
    let mut table = Table::new(&[("counter", Align::Left), ("value", Align::Right)]);
    for (name, value) in device.counters.iter().chain([("socket_drops", socket_drops)]) {
        table.row(vec![plain(name), number(value, Tone::Plain)]);
    }
    table
}

/// The tone of a QP state.
fn tone(state: &str) -> Tone {
    match state {
        "RTS" => Tone::Good,
        "ERR" | "SQE" => Tone::Bad,
        _ => Tone::Notice,
    }
}

/// The peer of a QP, as address and QPN.
pub(crate) fn peer(queue_pair: &QueuePair) -> String {
    match (queue_pair.remote_address, queue_pair.remote_number) {
        (Some(address), Some(number)) => format!("{address} {number:#08x}"),
        _ => "-".to_owned(),
    }
}

fn queue_pairs(device: &Device, columns: usize) -> Vec<Line> {
    let mut table = Table::new(&[
        ("QP", Align::Left),
        ("type", Align::Left),
        ("state", Align::Left),
        ("peer", Align::Left),
        ("link", Align::Left),
        ("MTU", Align::Right),
        ("SQ", Align::Right),
        ("RQ", Align::Right),
        ("in flight", Align::Right),
        ("sent", Align::Right),
        ("received", Align::Right),
        ("retrans", Align::Right),
        ("NAKs", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
    ]);
    for one in &device.queue_pairs {
        let quantile = |share| plain(one.latency.quantile_ns(share).map_or("-".into(), duration));
        let naks = one.naks_received.sum().saturating_add(one.naks_sent.sum());
        table.row(vec![
            plain(format!("{:#08x}", one.number)),
            plain(one.service),
            Line::of(tone(one.state), one.state),
            plain(peer(one)),
            plain(one.link),
            plain(one.path_mtu),
            plain(format!("{}/{}", one.send_outstanding, one.max_send_wr)),
            plain(match one.shared_receive_queue {
                Some(srq) => format!("SRQ {srq:#x}"),
                None => format!("{}/{}", one.recv_outstanding, one.max_recv_wr),
            }),
            plain(one.in_flight_packets),
            plain(bytes(one.tx.bytes)),
            plain(bytes(one.rx.bytes)),
            number(one.counters.get("retrans_pkts"), Tone::Warning),
            number(naks, Tone::Warning),
            quantile(0.5),
            quantile(0.99),
        ]);
    }
    let optional = ["p50", "MTU", "link", "RQ", "in flight", "type"];
    let mut lines = table.without_columns_that_do_not_fit(columns, &optional).lines(columns);
    for one in &device.queue_pairs {
        if let Some(reason) = &one.last_reason {
            let name = format!("  QP {:#08x} last error: ", one.number);
            lines.push(Line::of(Tone::Bad, summary::reason_text(&name, reason)));
        }
    }
    lines
}

/// Everything about a QP, below its line.
fn details(one: &QueuePair, lines: &mut Vec<Line>) {
    lines.push(Line::of(Tone::Strong, format!("  QP {:#08x}", one.number)));
    let mut row = |name: &str, text: String| {
        lines.push(Line::of(Tone::Faint, format!("    {name:<16}")).plain(text));
    };
    row("PSN", format!("sq {}, rq {}", one.sq_psn, one.rq_psn));
    row(
        "requests",
        format!(
            "{} posted, {} completions of the SQ, {} of the RQ, {} with an error{}",
            count(one.send_posted),
            count(one.send_completions),
            count(one.recv_completions),
            count(one.completion_errors),
            one.last_error.map(|error| format!(" (last: {error})")).unwrap_or_default()
        ),
    );
    for (name, direction) in [("sent", &one.tx), ("received", &one.rx)] {
        for (operation, traffic) in direction.operations.iter() {
            let Traffic { packets, bytes: payload, messages } = traffic;
            if packets > 0 {
                let (packets, messages) = (count(packets), count(messages));
                let text = format!("{packets} packets, {messages} messages, {}", bytes(payload));
                row(&format!("{name} {operation}"), text);
            }
        }
    }
    for (name, counters) in
        [("counters", &one.counters), ("NAKs in", &one.naks_received), ("NAKs out", &one.naks_sent)]
    {
        let all = counters.iter().filter(|(_, value)| *value > 0);
        let all: Vec<_> = all.map(|(name, value)| format!("{name} {}", count(value))).collect();
        if !all.is_empty() {
            row(name, all.join(", "));
        }
    }
    if let Some(text) = summary::latency(&one.latency) {
        row("latency", text);
        let most = one.latency.nonempty().map(|(.., count)| count).max().unwrap_or(1);
        for (from, _, samples) in one.latency.nonempty() {
            let bar = "█".repeat((samples * 40).div_ceil(most) as usize);
            row("", format!("{:>8}  {:>10}  {bar}", duration(from), count(samples)));
        }
    }
}

fn completion_queues(device: &Device) -> Table {
    let mut table = Table::new(&[
        ("CQ", Align::Right),
        ("entries", Align::Right),
        ("pending", Align::Right),
        ("completions", Align::Right),
        ("overruns", Align::Right),
        ("QPs", Align::Right),
    ]);
    for one in &device.completion_queues {
        let uses = |pair: &&QueuePair| pair.send_cq == one.id || pair.recv_cq == one.id;
        table.row(vec![
            plain(one.id),
            plain(count(one.capacity)),
            plain(count(one.pending)),
            plain(count(one.completions)),
            number(one.overruns, Tone::Bad),
            plain(device.queue_pairs.iter().filter(uses).count()),
        ]);
    }
    table
}

fn memory_regions(device: &Device) -> Table {
    let columns = [("MR of PD", Align::Right), ("length", Align::Right), ("access", Align::Rest)];
    let mut table = Table::new(&columns);
    for one in &device.memory_regions {
        let length = if one.length == u64::MAX { "null".to_owned() } else { bytes(one.length) };
        let access =
            if one.access.is_empty() { "local_read".into() } else { one.access.join(", ") };
        table.row(vec![plain(one.pd), plain(length), plain(access)]);
    }
    table
}

fn receive_queues(device: &Device) -> Table {
    let mut table = Table::new(&[
        ("SRQ", Align::Left),
        ("capacity", Align::Right),
        ("outstanding", Align::Right),
        ("posted", Align::Right),
        ("QPs", Align::Right),
    ]);
    for one in &device.shared_receive_queues {
        let uses = |pair: &&QueuePair| pair.shared_receive_queue == Some(one.number);
        table.row(vec![
            plain(format!("{:#08x}", one.number)),
            plain(count(one.capacity)),
            plain(count(one.outstanding)),
            plain(count(one.posted)),
            plain(device.queue_pairs.iter().filter(uses).count()),
        ]);
    }
    table
}
