//! The result as text.

use std::io::{self, Write};

use ferroce_trace::render::table::{Align, Table, cell};
use ferroce_trace::render::{Line, Tone, units};
use serde_json::Value;

use super::result::{MethodResult, Outcome};
use crate::analyze::output::{Alphabet, print};
use crate::exit::ExitStatus;
use crate::session::bytes::Size;
use crate::style::Screen;

/// Prints the result.
pub(super) fn write(outcome: &Outcome, screen: &Screen) -> ExitStatus {
    let lines = lines(outcome, screen.columns);
    let mut output = io::stdout().lock();
    let result = print(&lines, screen.paint, Alphabet::choose(false), &mut output)
        .and_then(|()| output.flush())
        .map(|()| ExitStatus::Success);
    ExitStatus::of_output(result, screen)
}

fn title(outcome: &Outcome) -> String {
    let traits = outcome.workload.traits();
    let count = units::counted(outcome.count, traits.count.0) + traits.count.1;
    let mut parts = vec![format!("{} ranks on this host", outcome.ranks), count];
    if let (Some(size), Some((what, ..))) = (outcome.size, traits.size) {
        parts.push(format!("{what} of {}", Size(size as u64)));
    }
    if let (Some(depth), Some((what, ..))) = (outcome.depth, traits.depth) {
        parts.push(format!("{what} {depth}"));
    }
    format!("{}: {}", outcome.workload.name(), parts.join(", "))
}

fn lines(outcome: &Outcome, columns: usize) -> Vec<Line> {
    let traits = outcome.workload.traits();
    let mut lines = vec![Line::of(Tone::Strong, title(outcome)), Line::new()];
    let optional = ["p90", "p99.9"];
    let table = figures(outcome).without_columns_that_do_not_fit(columns, &optional);
    lines.extend(table.lines(columns));
    let details = details(&outcome.methods);
    if let Some(details) = details {
        lines.push(Line::new());
        lines.extend(details.lines(columns));
    }
    lines.push(Line::new());
    let mut notes = Table::new(&[("", Align::Left), ("", Align::Rest)]);
    let verified = outcome.methods.iter().map(|one| one.totals.verified).sum();
    let (noun, how) = traits.verified;
    let verified = format!("{} {noun}, all correct: {how}", units::count(verified));
    notes.row(vec![cell("verified"), Line::of(Tone::Good, verified)]);
    notes.row(vec![cell("latency"), cell(format!("the time of {}", traits.latency))]);
    for path in &outcome.captures {
        notes.row(vec![cell("capture"), cell(path.display().to_string())]);
    }
    lines.extend(notes.lines(columns));
    lines
}

fn figures(outcome: &Outcome) -> Table {
    let right = Align::Right;
    let mut table = Table::new(&[
        ("", Align::Left),
        ("seconds", right),
        (outcome.workload.traits().operations, right),
        ("MB/s", right),
        ("p50", right),
        ("p90", right),
        ("p99", right),
        ("p99.9", right),
        ("max", right),
        ("CPU s", right),
    ]);
    for row in &outcome.methods {
        let (totals, latency) = (&row.totals, &row.totals.latency);
        let tone = if row.method.title().starts_with("RDMA") { Tone::Forth } else { Tone::Back };
        table.row(vec![
            Line::of(tone, row.method.title()),
            cell(format!("{:.3}", totals.seconds)),
            Line::of(Tone::Strong, format!("{:.0}", totals.operations_per_second)),
            cell(format!("{:.1}", totals.mb_per_second)),
            Line::of(Tone::Strong, units::duration(latency.p50_ns)),
            cell(units::duration(latency.p90_ns)),
            cell(units::duration(latency.p99_ns)),
            cell(units::duration(latency.p99_9_ns)),
            cell(units::duration(latency.max_ns)),
            cell(format!("{:.3}", totals.cpu_seconds)),
        ]);
    }
    table
}

/// The figures of the workload, by method.
fn details(methods: &[MethodResult]) -> Option<Table> {
    let mut names: Vec<&str> = Vec::new();
    for (name, _) in methods.iter().flat_map(|method| &method.totals.details) {
        if !names.contains(&name.as_str()) {
            names.push(name);
        }
    }
    let mut columns = vec![("", Align::Left)];
    columns.extend(methods.iter().map(|method| (method.method.title(), Align::Right)));
    let mut table = Table::new(&columns);
    for name in &names {
        let title = name.strip_suffix("_us").unwrap_or(name).replace('_', " ");
        let mut row = vec![cell(title)];
        row.extend(methods.iter().map(|method| cell(value_of(method, name))));
        table.row(row);
    }
    (!names.is_empty()).then_some(table)
}

fn value_of(method: &MethodResult, name: &str) -> String {
    let found = method.totals.details.iter().find(|(known, _)| known == name);
    match found.map(|(_, value)| value) {
        Some(Value::Number(number)) => match (number.as_u64(), number.as_f64()) {
            (Some(count), _) => units::count(count),
            (None, Some(time)) if name.ends_with("_us") => units::duration((time * 1e3) as u64),
            (None, Some(number)) => format!("{number:.6}"),
            _ => number.to_string(),
        },
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => String::new(),
    }
}
