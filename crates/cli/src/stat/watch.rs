//! `ferroce stat --watch`: rates, at an interval.

use std::io::{self, Write};
use std::time::Duration;

use ferroce_stat::read_all;
use ferroce_stat::snapshot::Snapshot;
use ferroce_trace::render::table::{Align, Table};
use ferroce_trace::render::units::{bits_per_second, duration, packets_per_second};
use ferroce_trace::render::{Line, Tone};
use serde::Serialize;

use super::rates::{DeviceRates, between};
use super::{Document, StatArgs, show};
use crate::devices::json;
use crate::duration::Interval;
use crate::exit::ExitStatus;
use crate::style::Screen;

/// One line of the JSON output.
#[derive(Debug, Serialize)]
struct Watched<'a> {
    #[serde(flatten)]
    document: Document<'a>,
    /// Since the line before.
    rates: Vec<DeviceRates>,
}

/// Prints a snapshot, and the rates since an earlier one, as JSON.
pub(crate) fn json_with_rates(before: &Snapshot, now: &Snapshot, screen: &Screen) -> ExitStatus {
    let rates = between(before, now);
    json(&Watched { document: Document::new(now), rates }, screen)
}

/// Shows rates until the end of the program, or of the count.
pub(super) fn run(args: &StatArgs, interval: Interval, screen: &Screen) -> ExitStatus {
    let filter = args.filter();
    let mut before = read_all(&filter);
    let mut output = io::stdout().lock();
    for _ in 0..args.count.unwrap_or(u64::MAX) {
        std::thread::sleep(Duration::from_nanos(interval.nanoseconds));
        let now = read_all(&filter);
        let rates = between(&before, &now);
        let result = if args.json {
            let line = Watched { document: Document::new(&now), rates };
            serde_json::to_writer(&mut output, &line)
                .map_err(io::Error::from)
                .and_then(|()| writeln!(output))
                .and_then(|()| output.flush())
        } else {
            show(&lines(&rates, &now, screen.columns), screen, &mut output)
        };
        if let Err(error) = result {
            return ExitStatus::of_output(Err(error), screen);
        }
        before = now;
    }
    ExitStatus::Success
}

fn lines(rates: &[DeviceRates], now: &Snapshot, columns: usize) -> Vec<Line> {
    let mut table = Table::new(&[
        ("pid", Align::Right),
        ("command", Align::Left),
        ("device", Align::Left),
        ("QPs", Align::Right),
        ("sent", Align::Right),
        ("", Align::Right),
        ("received", Align::Right),
        (" ", Align::Right),
        ("retrans", Align::Right),
        ("p50", Align::Right),
        ("p99", Align::Right),
    ]);
    let plain = |text: String| Line::of(Tone::Plain, text);
    for one in rates {
        let shown = &one.rates;
        let quantile = |share| shown.latency.quantile_ns(share).map_or("-".into(), duration);
        table.row(vec![
            plain(one.pid.to_string()),
            plain(one.name.clone()),
            plain(one.device.clone()),
            plain(one.queue_pairs.len().to_string()),
            Line::of(Tone::Forth, bits_per_second(shown.tx_bytes * 8.0)),
            Line::of(Tone::Forth, packets_per_second(shown.tx_packets)),
            Line::of(Tone::Back, bits_per_second(shown.rx_bytes * 8.0)),
            Line::of(Tone::Back, packets_per_second(shown.rx_packets)),
            plain(packets_per_second(shown.retransmits)),
            plain(quantile(0.5)),
            plain(quantile(0.99)),
        ]);
    }
    let mut lines = table.without_columns_that_do_not_fit(columns, &["QPs", "p50"]).lines(columns);
    if now.processes.is_empty() {
        lines = vec![Line::of(Tone::Faint, "no process has a device open")];
    }
    lines.push(Line::new());
    lines
}
