//! The result as a table with bars.

use std::io::{self, Write};

use ferroce_trace::render::table::{Align, Table, cell};
use ferroce_trace::render::{Line, Tone, bar, units};

use super::args::Measure;
use super::result::{Outcome, Row};
use super::test::Amount;
use crate::analyze::output::{Alphabet, print};
use crate::session::bytes::Size;
use crate::style::{Role, Screen};

/// The width of the bars.
const BAR: usize = 16;

impl Outcome {
    pub(super) fn write(&self, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
        let paint = screen.paint;
        writeln!(output, "{}", paint.role(Role::Title, self.title()))?;
        let server = if self.own_server { "its own, on this host" } else { "" };
        let server = match server {
            "" => self.server.to_string(),
            own => format!("{own}, {}", self.server),
        };
        writeln!(output, "  server  {server}")?;
        writeln!(output, "  link    {}", self.link.name())?;
        writeln!(output, "  run     {}", self.run())?;
        writeln!(output)?;
        let table = match self.test {
            Measure::Lat => self.latencies(),
            Measure::Bw | Measure::Rate => self.rates(),
        };
        let optional = ["stdev", "Gbit/s", "", "MiB/s"];
        let table = table.without_columns_that_do_not_fit(screen.columns, &optional);
        print(&table.lines(screen.columns), paint, Alphabet::choose(false), output)?;
        self.write_notes(screen, output)
    }

    fn write_notes(&self, screen: &Screen, output: &mut impl Write) -> io::Result<()> {
        let paint = screen.paint;
        let sum = |of: fn(&Row) -> u64| self.results.iter().map(of).sum::<u64>();
        let (lost, verified) = (sum(|row| row.lost), sum(|row| row.verified_bytes));
        if lost > 0 || verified > 0 || self.interrupted.is_some() {
            writeln!(output)?;
        }
        if lost > 0 {
            let (lost, transport) = (units::counted(lost, "message"), self.transport.name());
            let text = format!("{lost} lost: {transport} does not retransmit");
            writeln!(output, "  {}", paint.role(Role::Warning, text))?;
        }
        if verified > 0 {
            let text = format!("verified {}, every byte correct", units::bytes(verified));
            writeln!(output, "  {}", paint.role(Role::Good, text))?;
        }
        if let Some(size) = self.interrupted {
            let text = format!("interrupted while measuring {}", Size(size));
            writeln!(output, "  {}", paint.role(Role::Warning, text))?;
        }
        Ok(())
    }

    /// The operation, test and transport.
    pub(super) fn title(&self) -> String {
        let what = match self.test {
            Measure::Bw => "bandwidth",
            Measure::Lat => "latency",
            Measure::Rate => "message rate",
        };
        format!("{} {what} over {}", self.operation.name(), self.transport.name())
    }

    /// The options that matter.
    fn run(&self) -> String {
        let of = &self.parameters;
        let mut parts = vec![match of.amount {
            Amount::Iterations(count) => format!("{} messages per QP", units::count(count)),
            Amount::Nanoseconds(time) => units::duration(time),
        }];
        parts.push(units::counted(of.qps.into(), "QP"));
        if of.threads > 1 {
            parts.push(format!("{} threads", of.threads));
        }
        if self.test != Measure::Lat {
            parts.push(format!("tx depth {}", of.tx_depth));
        }
        if of.post_list > 1 {
            parts.push(format!("lists of {}", of.post_list));
        }
        if of.bidirectional {
            parts.push("both directions".into());
        }
        parts.push(if of.events { "events" } else { "polling" }.into());
        if of.verify {
            parts.push("verified".into());
        }
        parts.join(", ")
    }

    fn rates(&self) -> Table {
        let mut table = Table::new(&[
            ("bytes", Align::Right),
            ("messages", Align::Right),
            ("MiB/s", Align::Right),
            ("Gbit/s", Align::Right),
            ("GB/s", Align::Right),
            ("Mpps", Align::Right),
            ("", Align::Left),
        ]);
        let of = |row: &Row| match (row.bandwidth, self.test) {
            (Some(rates), Measure::Rate) => rates.million_messages_per_second,
            (Some(rates), _) => rates.gb_per_second,
            (None, _) => 0.0,
        };
        let most = self.results.iter().map(of).fold(0.0, f64::max);
        for row in &self.results {
            let Some(rates) = row.bandwidth else { continue };
            table.row(vec![
                cell(row.size.to_string()),
                cell(units::count(row.messages)),
                cell(format!("{:.2}", rates.mib_per_second)),
                cell(format!("{:.3}", rates.gbit_per_second)),
                Line::of(Tone::Strong, format!("{:.3}", rates.gb_per_second)),
                Line::of(Tone::Strong, format!("{:.6}", rates.million_messages_per_second)),
                Line::of(Tone::Forth, bar::horizontal(of(row), most, BAR)),
            ]);
        }
        table
    }

    fn latencies(&self) -> Table {
        let right = Align::Right;
        let mut table = Table::new(&[
            ("bytes", right),
            ("messages", right),
            ("min µs", right),
            ("p50", right),
            ("p90", right),
            ("p99", right),
            ("p99.9", right),
            ("max", right),
            ("stdev", right),
            ("", Align::Left),
        ]);
        let median = |row: &Row| row.latency.map_or(0, |latency| latency.p50_ns) as f64;
        let most = self.results.iter().map(median).fold(0.0, f64::max);
        let micros = |time: f64| format!("{:.2}", time / 1e3);
        for row in &self.results {
            let Some(latency) = row.latency else { continue };
            let mut cells = vec![cell(row.size.to_string()), cell(units::count(row.messages))];
            for (name, time) in latency.quantiles() {
                let tone = if name == "p50" { Tone::Strong } else { Tone::Plain };
                cells.push(Line::of(tone, micros(time as f64)));
            }
            cells.push(Line::of(Tone::Faint, micros(latency.stdev_ns)));
            cells.push(Line::of(Tone::Forth, bar::horizontal(median(row), most, BAR)));
            table.row(cells);
        }
        table
    }
}
