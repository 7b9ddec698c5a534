//! The result as charts (SVG) and as a page (HTML).

use std::fmt::Write;

use ferroce_figure::{Bar, BarChart, STYLE, Unit};
use ferroce_trace::render::units;

use super::output::{title, verification};
use super::result::{Comparison, MethodResult, Spread};

/// The colours: RDMA and TCP.
const RDMA: usize = 0;
const TCP: usize = 1;

/// The chart of the throughput.
pub(super) fn throughput(comparison: &Comparison) -> BarChart {
    const MIB: f64 = 1_048_576.0;
    let range = |spread: Spread| (spread.min * MIB, spread.max * MIB);
    chart(comparison, "Throughput", Unit::BytesPerSecond, |one| Bar {
        value: one.mib_per_second.median * MIB,
        range: Some(range(one.mib_per_second)),
        note: format!("{:.0} MiB/s", one.mib_per_second.median),
        ..Bar::default()
    })
}

fn cpu(comparison: &Comparison) -> BarChart {
    chart(
        comparison,
        "CPU time per GB, both sides together (sender + receiver)",
        Unit::Seconds,
        |one| Bar {
            value: one.cpu_seconds_per_gb.median,
            range: Some((one.cpu_seconds_per_gb.min, one.cpu_seconds_per_gb.max)),
            note: format!(
                "({:.3} + {:.3} s)",
                one.client_cpu_seconds_per_gb.median, one.server_cpu_seconds_per_gb.median
            ),
            ..Bar::default()
        },
    )
}

fn chunks(comparison: &Comparison) -> BarChart {
    chart(
        comparison,
        "Time of a chunk: median, and up to the 99th percentile",
        Unit::Seconds,
        |one| {
            let seconds = |nanoseconds: u64| nanoseconds as f64 / 1e9;
            let (p50, p99) = (seconds(one.chunk.p50_ns), seconds(one.chunk.p99_ns));
            let note = format!("p99 {}", units::duration(one.chunk.p99_ns));
            Bar { value: p50, range: Some((p50, p99)), note, ..Bar::default() }
        },
    )
}

fn chart(
    comparison: &Comparison,
    what: &str,
    unit: Unit,
    bar: impl Fn(&MethodResult) -> Bar,
) -> BarChart {
    let bars = comparison.methods.iter().map(|one| Bar {
        label: one.title.to_owned(),
        group: if one.method.is_rdma() { RDMA } else { TCP },
        ..bar(one)
    });
    BarChart { title: what.to_owned(), unit, bars: bars.collect() }
}

/// A page that refers to nothing else, and follows the reader's light or dark scheme.
pub(super) fn page(comparison: &Comparison) -> String {
    let mut page = String::new();
    let heading = "RDMA against TCP";
    let style = "\
:root{color-scheme:light dark}\
body{font:15px/1.5 system-ui,sans-serif;max-width:1080px;margin:2rem auto;padding:0 1rem;background:#fff;color:#24292f}\
table{border-collapse:collapse;width:100%}.scroll{overflow-x:auto}\
th,td{padding:.3rem .5rem;border-bottom:1px solid #d8dee4;text-align:right;white-space:nowrap}\
th:first-child,td:first-child{text-align:left}svg{max-width:100%;height:auto}\
.muted{color:#57606a}li{margin:.3rem 0}\
@media (prefers-color-scheme:dark){body{background:#0d1117;color:#e6edf3}th,td{border-color:#2a313c}.muted{color:#9198a1}}";
    let mut add = |text: &str| {
        page.push_str(text);
        page.push('\n');
    };
    add("<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">");
    // Nothing is loaded and no script runs, whatever the text contains.
    add(
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">",
    );
    add("<meta name=\"viewport\" content=\"width=device-width\">");
    add(&format!("<title>{heading}</title>\n<style>{style}{STYLE}</style>\n</head>\n<body>"));
    add(&format!("<h1>{heading}</h1>\n<p>{}</p>", escape(&title(comparison))));
    add(&format!("<p class=\"muted\">{}</p>", escape(&comparison.host.line())));
    add("<h2>Result</h2>\n<ul>");
    for verdict in &comparison.verdicts {
        add(&format!("<li>{}</li>", escape(&verdict.text)));
    }
    add("</ul>");
    for chart in [throughput(comparison), cpu(comparison), chunks(comparison)] {
        add(&chart.to_fragment());
    }
    add(&table(comparison));
    add(&rounds(comparison));
    add("<h2>Method</h2>\n<ul>");
    for one in &comparison.methods {
        add(&format!("<li>{}: {}</li>", escape(one.title), escape(one.description)));
    }
    for text in notes(comparison) {
        add(&format!("<li>{}</li>", escape(&text)));
    }
    add(&format!(
        "</ul>\n<p class=\"muted\">Measured by <code>ferroce compare</code>, version {}.</p>",
        escape(comparison.ferroce)
    ));
    add("</body>\n</html>");
    page
}

fn notes(comparison: &Comparison) -> Vec<String> {
    let mut notes = vec![
        format!("Verified: {}.", verification(comparison)),
        "The time is from handing over the first chunk until the sender knows that the last one is in the receiver's \
         memory: by the completion of the WRITE, or by a byte that the receiver returns over TCP. The time of a chunk \
         is measured the same way."
            .to_owned(),
        format!(
            "{} WRITEs are in flight; TCP has what its socket buffers hold.",
            comparison.plan.depth
        ),
        "A round transfers by all methods, in an order that rotates, over connections that stay. A first round does \
         not count. Bars and tables show the median of the rounds, lines across bars their range."
            .to_owned(),
        "CPU time is what the kernel charges to each process (getrusage). Retransmitted are packets of RDMA and \
         segments of TCP, in all rounds."
            .to_owned(),
    ];
    for capture in &comparison.captures {
        let path = capture.path.as_ref().map(|path| path.display().to_string());
        let note = capture.note.clone().unwrap_or_default();
        let packets = units::counted(capture.packets, "packet");
        notes.push(match path {
            Some(path) => {
                format!("Capture of {}: {path}, {packets}. {note}", capture.method.title())
            }
            None => format!("No capture of {}: {note}", capture.method.title()),
        });
    }
    notes
}

fn table(comparison: &Comparison) -> String {
    let mut table = String::from(
        "<div class=\"scroll\"><table>\n<tr><th></th><th>seconds</th><th>MiB/s</th><th>min–max</th><th>CPU s/GB \
         sender</th><th>receiver</th><th>chunk p50</th><th>p99</th><th>retransmitted</th></tr>\n",
    );
    for one in &comparison.methods {
        let rate = one.mib_per_second;
        // Writing to a string cannot fail.
        let _ = writeln!(
            table,
            "<tr><td>{}</td><td>{:.3}</td><td>{:.0}</td><td>{:.0}–{:.0}</td><td>{:.3}</td><td>{:.3}</td><td>{}</td><td>{}</td><td>{}</td></tr>",
            escape(one.title),
            one.seconds.median,
            rate.median,
            rate.min,
            rate.max,
            one.client_cpu_seconds_per_gb.median,
            one.server_cpu_seconds_per_gb.median,
            units::duration(one.chunk.p50_ns),
            units::duration(one.chunk.p99_ns),
            units::count(one.retransmissions),
        );
    }
    table + "</table></div>"
}

/// The throughput of every round.
fn rounds(comparison: &Comparison) -> String {
    let mut table =
        String::from("<h2>Rounds, MiB/s</h2>\n<div class=\"scroll\"><table>\n<tr><th></th>");
    for round in 1..=comparison.rounds {
        let _ = write!(table, "<th>{round}</th>");
    }
    table.push_str("</tr>\n");
    for one in &comparison.methods {
        let _ = write!(table, "<tr><td>{}</td>", escape(one.title));
        for round in &one.rounds {
            let _ = write!(table, "<td>{:.0}</td>", round.mib_per_second);
        }
        table.push_str("</tr>\n");
    }
    table + "</table></div>"
}

/// Text for HTML.
fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            other => escaped.push(other),
        }
    }
    escaped
}
