//! The tables of the views, as rows of cells that can be sorted and searched.

use std::cmp::Ordering;

use ferroce_stat::snapshot::{Device, Process, QueuePair};
use ferroce_trace::render::units::{bits_per_second, bytes, count, duration, packets_per_second};

use super::app::{App, Key, View};
use crate::stat::since::device_key;
use crate::stat::{drops, peer};

/// A cell: its text, and what it is sorted by if that is a number.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Cell {
    pub(super) text: String,
    /// For columns that are too narrow.
    short: Option<String>,
    number: Option<f64>,
    pub(super) tone: Tone,
}

/// The colour of a cell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Tone {
    Plain,
    Faint,
    Good,
    Warning,
    Bad,
    Sent,
    Received,
}

impl Cell {
    fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), short: None, number: None, tone: Tone::Plain }
    }

    fn number(number: f64, text: impl Into<String>) -> Self {
        Self { number: Some(number), ..Self::text(text) }
    }

    /// A number of objects or events.
    fn count(number: u64) -> Self {
        Self { short: Some(scaled_count(number)), ..Self::number(number as f64, count(number)) }
    }

    /// A number of events: faint if there are none.
    fn events(number: u64, tone: Tone) -> Self {
        Self::count(number).with(if number == 0 { Tone::Faint } else { tone })
    }

    /// Its text in a column of this width. A number is rounded, and other text that is cut ends with `…`.
    pub(super) fn fitted(&self, width: u16) -> String {
        let width = usize::from(width);
        let fits = |text: &&String| text.chars().count() <= width;
        if let Some(text) = Some(&self.text).filter(fits).or(self.short.as_ref().filter(fits)) {
            return text.clone();
        }
        let cut = self.text.chars().take(width.saturating_sub(1));
        cut.chain(['…']).collect()
    }

    fn with(self, tone: Tone) -> Self {
        Self { tone, ..self }
    }

    pub(super) fn compare(&self, other: &Self) -> Ordering {
        match (self.number, other.number) {
            (Some(one), Some(other)) => one.total_cmp(&other),
            _ => self.text.cmp(&other.text),
        }
    }
}

/// A number with three significant digits, in at most five characters: `1.03M`.
fn scaled_count(number: u64) -> String {
    let mut value = number as f64;
    let mut units = ["", "k", "M", "G", "T", "P", "E"].into_iter();
    let mut unit = units.next().unwrap_or_default();
    while value >= 999.5 {
        let Some(next) = units.next() else { break };
        (value, unit) = (value / 1000.0, next);
    }
    match value {
        _ if unit.is_empty() => number.to_string(),
        ..9.995 => format!("{value:.2}{unit}"),
        ..99.95 => format!("{value:.1}{unit}"),
        _ => format!("{value:.0}{unit}"),
    }
}

/// A row, and the object it shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Row {
    pub(super) key: Key,
    pub(super) cells: Vec<Cell>,
}

impl Row {
    /// All its text, to search in.
    pub(super) fn text(&self) -> String {
        let cells: Vec<_> = self.cells.iter().map(|cell| cell.text.as_str()).collect();
        cells.join(" ")
    }
}

/// A column: its name, its width, and whether its cells are aligned right.
pub(super) type Column = (&'static str, u16, bool);

/// The columns of a view. Those at the end are left out first if the terminal is too narrow.
pub(super) const fn columns(view: View) -> &'static [Column] {
    match view {
        View::Devices => &[
            ("PID", 7, true),
            ("command", 16, false),
            ("device", 14, false),
            ("port", 6, false),
            ("QPs", 5, true),
            ("sent", 11, true),
            ("received", 11, true),
            ("pkt/s out", 10, true),
            ("pkt/s in", 10, true),
            ("p50", 8, true),
            ("p99", 8, true),
            ("retrans", 8, true),
            ("corrupt", 8, true),
            ("drops", 7, true),
            ("CQs", 5, true),
            ("MRs", 5, true),
            ("memory", 8, true),
            ("uid", 10, true),
        ],
        View::QueuePairs => &[
            ("PID", 7, true),
            ("command", 12, false),
            ("device", 12, false),
            ("QP", 8, false),
            ("type", 7, false),
            ("state", 6, false),
            ("peer", 24, false),
            ("SQ", 5, true),
            ("sent", 11, true),
            ("received", 11, true),
            ("p50", 8, true),
            ("p99", 8, true),
            ("retrans", 8, true),
            ("NAKs", 6, true),
            ("in flight", 10, true),
            ("link", 13, false),
        ],
        View::CompletionQueues => &[
            ("PID", 7, true),
            ("command", 16, false),
            ("device", 16, false),
            ("CQ", 8, true),
            ("entries", 8, true),
            ("pending", 8, true),
            ("completions", 14, true),
            ("overruns", 9, true),
            ("QPs", 5, true),
        ],
        View::MemoryRegions => &[
            ("PID", 7, true),
            ("command", 16, false),
            ("device", 16, false),
            ("PD", 6, true),
            ("length", 10, true),
            ("access", 60, false),
        ],
    }
}

/// The rows of the view, in no order.
pub(super) fn of(app: &App) -> Vec<Row> {
    let mut rows = Vec::new();
    for (process, index, device) in app.devices() {
        let key = |object| Key { pid: process.pid, device: device_key(process, index), object };
        if app.only.as_ref().is_some_and(|only| *only != key(None)) && app.view != View::Devices {
            continue;
        }
        match app.view {
            View::Devices => rows.push(device_row(app, process, index, key(None))),
            View::QueuePairs => rows.extend(device.queue_pairs.iter().map(|pair| {
                let key = key(Some(pair.number.into()));
                Row { cells: pair_cells(app, process, device, pair, &key), key }
            })),
            View::CompletionQueues => rows.extend(device.completion_queues.iter().map(|queue| {
                let uses = |pair: &&QueuePair| pair.send_cq == queue.id || pair.recv_cq == queue.id;
                let users = device.queue_pairs.iter().filter(uses).count();
                let mut cells = head(process, device);
                cells.extend([
                    Cell::number(queue.id as f64, queue.id.to_string()),
                    Cell::count(queue.capacity),
                    Cell::events(queue.pending, Tone::Plain),
                    Cell::count(queue.completions),
                    Cell::events(queue.overruns, Tone::Bad),
                    Cell::count(users as u64),
                ]);
                Row { key: key(Some(queue.id)), cells }
            })),
            View::MemoryRegions => {
                let regions = device.memory_regions.iter().enumerate();
                rows.extend(regions.map(|(index, region)| {
                    let mut cells = head(process, device);
                    let length = if region.length == u64::MAX {
                        "null".to_owned()
                    } else {
                        bytes(region.length)
                    };
                    cells.extend([
                        Cell::number(region.pd as f64, region.pd.to_string()),
                        Cell::number(region.length as f64, length),
                        Cell::text(region.access.join(" ")),
                    ]);
                    Row { key: key(Some(index as u64)), cells }
                }));
            }
        }
    }
    rows
}

/// The cells that every row begins with.
fn head(process: &Process, device: &Device) -> Vec<Cell> {
    let stopped = process.state == 'T';
    let name = crate::style::printable(&process.name).into_owned();
    let name = if stopped { format!("{name} (stopped)") } else { name };
    let tone = if stopped { Tone::Warning } else { Tone::Plain };
    vec![
        Cell::number(process.pid.into(), process.pid.to_string()),
        Cell::text(name).with(tone),
        Cell::text(&device.name),
    ]
}

/// The cells of rates: bits per second sent and received.
fn bandwidth(app: &App, key: &Key) -> [Cell; 2] {
    let rates = app.rates_of(key);
    let cell = |rate: f64, tone| {
        let tone = if rate == 0.0 { Tone::Faint } else { tone };
        Cell::number(rate, bits_per_second(rate * 8.0)).with(tone)
    };
    [
        cell(rates.map_or(0.0, |rates| rates.tx_bytes), Tone::Sent),
        cell(rates.map_or(0.0, |rates| rates.rx_bytes), Tone::Received),
    ]
}

/// The latency of the last interval.
fn latency(app: &App, key: &Key, share: f64) -> Cell {
    let nanos = app.rates_of(key).and_then(|rates| rates.latency.quantile_ns(share));
    match nanos {
        Some(nanos) => Cell::number(nanos as f64, duration(nanos)),
        None => Cell::number(-1.0, "-").with(Tone::Faint),
    }
}

fn device_row(app: &App, process: &Process, index: usize, key: Key) -> Row {
    let device = &process.devices[index];
    let mut cells = head(process, device);
    let (tone, state) = if device.active { (Tone::Good, "active") } else { (Tone::Bad, "down") };
    let counters = &device.counters;
    let drops = drops::drops(device).saturating_add(drops::of_kernel(process, index));
    let rate = |value: fn(&crate::stat::rates::Rates) -> f64| {
        let value = app.rates_of(&key).map_or(0.0, value);
        Cell::number(value, packets_per_second(value).trim_end_matches("/s").trim_end())
    };
    cells.extend([Cell::text(state).with(tone), Cell::count(device.queue_pairs.len() as u64)]);
    cells.extend(bandwidth(app, &key));
    cells.extend([
        rate(|rates| rates.tx_packets),
        rate(|rates| rates.rx_packets),
        latency(app, &key, 0.5),
        latency(app, &key, 0.99),
        Cell::events(counters.get("retrans_pkts"), Tone::Warning),
        Cell::events(drops::corrupt(device), Tone::Bad),
        Cell::events(drops, Tone::Bad),
        Cell::events(device.completion_queues.len() as u64, Tone::Plain),
        Cell::events(device.memory_regions.len() as u64, Tone::Plain),
        Cell::number(device.memory_bytes as f64, bytes(device.memory_bytes)),
        Cell::number(process.uid.into(), process.uid.to_string()),
    ]);
    Row { key, cells }
}

fn pair_cells(
    app: &App,
    process: &Process,
    device: &Device,
    pair: &QueuePair,
    key: &Key,
) -> Vec<Cell> {
    let tone = match pair.state {
        "RTS" => Tone::Good,
        "ERR" | "SQE" => Tone::Bad,
        _ => Tone::Warning,
    };
    let naks = pair.naks_received.sum().saturating_add(pair.naks_sent.sum());
    let mut cells = head(process, device);
    cells.extend([
        Cell::number(pair.number.into(), format!("{:#08x}", pair.number)),
        Cell::text(pair.service),
        Cell::text(pair.state).with(tone),
        Cell::text(peer(pair)),
        Cell::events(pair.send_outstanding, Tone::Plain),
    ]);
    cells.extend(bandwidth(app, key));
    cells.extend([
        latency(app, key, 0.5),
        latency(app, key, 0.99),
        Cell::events(pair.counters.get("retrans_pkts"), Tone::Warning),
        Cell::events(naks, Tone::Warning),
        Cell::events(pair.in_flight_packets, Tone::Plain),
        Cell::text(pair.link),
    ]);
    cells
}
