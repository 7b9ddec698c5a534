//! The result as text.

use std::io::{self, Write};

use ferroce_trace::render::table::{Align, Table, cell};
use ferroce_trace::render::text::wrap;
use ferroce_trace::render::{Line, Tone, bar, units};

use super::result::{Comparison, MethodResult, Spread};
use crate::analyze::output::{Alphabet, print};
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::style::Screen;

/// The longest bar in columns.
const BAR: usize = 24;

/// Prints the result.
pub(super) fn write(comparison: &Comparison, screen: &Screen) -> ExitStatus {
    let lines = lines(comparison, screen.columns);
    let mut output = io::stdout().lock();
    let result = print(&lines, screen.paint, Alphabet::choose(false), &mut output)
        .and_then(|()| output.flush())
        .map(|()| ExitStatus::Success);
    ExitStatus::of_output(result, screen)
}

/// The title: what was transferred, and how often.
pub(super) fn title(comparison: &Comparison) -> String {
    let (size, chunk) = (Size(comparison.plan.size), Size(comparison.plan.chunk));
    let rounds = units::counted(comparison.rounds as u64, "round");
    format!("{size} in chunks of {chunk}, {rounds}, {}", place(comparison))
}

/// Where the ends were.
fn place(comparison: &Comparison) -> String {
    match comparison.own_server {
        true => format!("between two processes of this host ({})", comparison.server.ip()),
        false => format!("to {}", comparison.server),
    }
}

/// What was verified.
pub(super) fn verification(comparison: &Comparison) -> String {
    let total: u64 = comparison.methods.iter().map(|method| method.verified_bytes).sum();
    match comparison.verified {
        true => format!(
            "every byte of every transfer into memory, RDMA and TCP alike ({})",
            units::bytes(total)
        ),
        false => "nothing, neither RDMA nor TCP; --verify checks every byte of both".to_owned(),
    }
}

fn lines(comparison: &Comparison, columns: usize) -> Vec<Line> {
    let mut lines = vec![Line::of(Tone::Strong, title(comparison))];
    lines.push(Line::of(Tone::Faint, format!("  {}", comparison.host.line())));
    lines.push(Line::new());
    lines.extend(throughput(&comparison.methods).lines(columns));
    lines.push(Line::new());
    lines.extend(cost(&comparison.methods).lines(columns));
    lines.push(Line::new());
    for verdict in &comparison.verdicts {
        let tone = match verdict.winner {
            Some(winner) if winner == verdict.method => Tone::Good,
            Some(_) => Tone::Notice,
            None => Tone::Plain,
        };
        for line in wrap(&verdict.text, columns.saturating_sub(2)) {
            lines.push(Line::of(tone, format!("  {line}")));
        }
    }
    lines.push(Line::new());
    let mut notes = Table::new(&[("", Align::Left), ("", Align::Rest)]);
    notes.row(vec![cell("verified"), cell(verification(comparison))]);
    for capture in &comparison.captures {
        let path = capture.path.as_ref().map(|path| path.display().to_string());
        let text = match (path, &capture.note) {
            (Some(path), note) => {
                let packets = units::counted(capture.packets, "packet");
                let note = note.as_ref().map(|note| format!("; {note}")).unwrap_or_default();
                format!("{path}: {packets} of {}{note}", capture.method.title())
            }
            (None, note) => note.clone().unwrap_or_default(),
        };
        notes.row(vec![cell("capture"), cell(text)]);
    }
    notes.row(vec![cell("method"), cell(METHOD)]);
    lines.extend(notes.lines(columns));
    lines
}

/// What the figures mean, in one sentence.
const METHOD: &str = "values are medians, with the range of the rounds; from handing over the first chunk until \
    the sender knows that the last one is in the receiver's memory; a chunk's time is measured the same way; CPU \
    time is that of each process (getrusage); see docs/compare.md";

fn throughput(methods: &[MethodResult]) -> Table {
    let highest = methods.iter().map(|one| one.mib_per_second.median).fold(0.0, f64::max);
    let mut table = Table::new(&[
        ("", Align::Left),
        ("seconds", Align::Right),
        ("MiB/s", Align::Right),
        ("min–max", Align::Right),
        ("", Align::Left),
    ]);
    for one in methods {
        let rate = one.mib_per_second;
        let tone = if one.method.is_rdma() { Tone::Forth } else { Tone::Back };
        table.row(vec![
            cell(one.title),
            cell(format!("{:.3}", one.seconds.median)),
            cell(format!("{:.0}", rate.median)),
            cell(format!("{:.0}–{:.0}", rate.min, rate.max)),
            Line::of(tone, bar::horizontal(rate.median, highest, BAR)),
        ]);
    }
    table
}

fn cost(methods: &[MethodResult]) -> Table {
    let mut table = Table::new(&[
        ("CPU s per GB", Align::Left),
        ("sender", Align::Right),
        ("receiver", Align::Right),
        ("both, min–max", Align::Right),
        ("chunk p50", Align::Right),
        ("p99", Align::Right),
        ("retransmitted", Align::Right),
    ]);
    for one in methods {
        let seconds = |spread: Spread| format!("{:.3}", spread.median);
        let both = one.cpu_seconds_per_gb;
        table.row(vec![
            cell(one.title),
            cell(seconds(one.client_cpu_seconds_per_gb)),
            cell(seconds(one.server_cpu_seconds_per_gb)),
            cell(format!("{:.3}–{:.3}", both.min, both.max)),
            cell(units::duration(one.chunk.p50_ns)),
            cell(units::duration(one.chunk.p99_ns)),
            cell(units::count(one.retransmissions)),
        ]);
    }
    table
}
