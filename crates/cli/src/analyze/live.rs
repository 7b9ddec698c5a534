//! `ferroce analyze --live`: packets as they arrive, then the analysis.

use std::io::{self, Write};
use std::ops::ControlFlow;
use std::path::Path;

use ferroce_trace::analysis::anomaly::Severity;
use ferroce_trace::analysis::{self, PacketEvent, SCHEMA};
use ferroce_trace::dissect;
use ferroce_trace::render::ascii;
use ferroce_trace::render::sections;
use ferroce_wire::frame::IcrcVerdict;
use serde::Serialize;

use super::output::{Alphabet, Printable, print};
use super::{AnalyzeArgs, Analyzed, fail_on};
use crate::exit::ExitStatus;
use crate::input::{Decompressed, LiveInput};
use crate::live_output::LiveOutput;
use crate::packet_line::{PacketLine, PacketLines, note};
use crate::style::{Role, Screen};

/// Shows the packets of one input until it ends, and then the report.
pub(super) fn run(args: &AnalyzeArgs, screen: &Screen) -> ExitStatus {
    let [path] = args.files.as_slice() else {
        screen.complain("--live shows one file: give one FILE, or - for standard input");
        return ExitStatus::Failure;
    };
    let mut output = LiveOutput::new();
    let result = show(args, path, screen, &mut output);
    ExitStatus::of_output(result.and_then(|status| output.flush().map(|()| status)), screen)
}

fn show(
    args: &AnalyzeArgs,
    path: &Path,
    screen: &Screen,
    output: &mut LiveOutput,
) -> io::Result<ExitStatus> {
    let name = path.to_string_lossy();
    let input = match LiveInput::open(path, true, output.clone()) {
        Ok(input) => input,
        Err(error) => {
            screen.complain(format_args!("{}: cannot open it: {error}", Printable(&name)));
            return Ok(ExitStatus::Failure);
        }
    };
    let interrupted = input.interrupted();
    let mut printer = Printer {
        args,
        screen,
        output: output.clone(),
        alphabet: Alphabet::choose(args.ascii),
        lines: PacketLines::default(),
        shown: 0,
    };
    let mut failed = None;
    let mut observer = |event: &PacketEvent<'_>| {
        if let Err(error) = printer.packet(event) {
            failed = Some(error);
            return ControlFlow::Break(());
        }
        let found = event.anomalies.iter().any(|(kind, _)| fail_on::covers(&args.fail_on, *kind));
        match args.fail_fast && found {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    };
    let options = super::options(args);
    let input = Decompressed::new(input, args.decompression);
    let report = analysis::observe(&name, input, &options, &mut observer, &|| interrupted.get());
    if let Some(error) = failed {
        return Err(error);
    }
    let file = Analyzed { report, opened: true };
    if args.json {
        let files = [&file.report];
        line(output, &Event::Report { schema: SCHEMA, files })?;
    } else {
        if printer.shown > 0 {
            writeln!(output)?;
        }
        let lines = sections::report(&file.report, &super::view(args, screen));
        print(&lines, screen.paint, printer.alphabet, output)?;
    }
    output.flush()?;
    Ok(file.complain(args, screen))
}

/// Writes packets.
struct Printer<'a> {
    args: &'a AnalyzeArgs,
    screen: &'a Screen,
    output: LiveOutput,
    alphabet: Alphabet,
    lines: PacketLines,
    /// The number of packets shown.
    shown: u64,
}

impl Printer<'_> {
    fn packet(&mut self, event: &PacketEvent<'_>) -> io::Result<()> {
        self.shown += 1;
        let summary = match event.frame {
            Some(frame) => dissect::summary(frame),
            None => "not readable".to_owned(),
        };
        let explanation =
            event.frame.filter(|_| self.args.explain).map(dissect::explain).unwrap_or_default();
        if self.args.json {
            return line(&mut self.output, &Event::packet(event, &summary, &explanation));
        }
        let mut text = Vec::new();
        let malformed = event.frame.is_none_or(|frame| frame.problem.is_some());
        let packet = PacketLine {
            record: event.record,
            addresses: event.frame.and_then(|frame| frame.addresses()),
            summary: &summary,
            bad: malformed || matches!(event.icrc, Some(IcrcVerdict::Bad { .. })),
        };
        self.lines.packet(&mut text, self.screen, &packet)?;
        if !explanation.is_empty() {
            note(&mut text, self.screen, Role::Quiet, "", &explanation)?;
        }
        for (kind, why) in event.anomalies {
            let (role, mark) = match kind.severity() {
                Severity::Info => (Role::Value, "• "),
                Severity::Warning => (Role::Warning, "! "),
                Severity::Error => (Role::Bad, "✗ "),
            };
            note(&mut text, self.screen, role, mark, &format!("{}: {why}", kind.name()))?;
        }
        match self.alphabet {
            Alphabet::Unicode => self.output.write_all(&text),
            Alphabet::Ascii => {
                self.output.write_all(ascii(&String::from_utf8_lossy(&text)).as_bytes())
            }
        }
    }
}

/// A line of `--json`.
#[derive(Serialize)]
#[serde(tag = "event", rename_all = "snake_case")]
enum Event<'a> {
    Packet {
        frame: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        segment: Option<u32>,
        timestamp: Option<String>,
        source: Option<String>,
        destination: Option<String>,
        summary: &'a str,
        #[serde(skip_serializing_if = "str::is_empty")]
        explanation: &'a str,
        icrc: Option<&'static str>,
        anomalies: Vec<AnomalyEvent<'a>>,
    },
    Report {
        schema: &'static str,
        files: [&'a analysis::FileReport; 1],
    },
}

#[derive(Serialize)]
struct AnomalyEvent<'a> {
    kind: &'static str,
    severity: Severity,
    text: &'a str,
}

impl<'a> Event<'a> {
    fn packet(event: &'a PacketEvent<'_>, summary: &'a str, explanation: &'a str) -> Self {
        let addresses = event.frame.and_then(|frame| frame.addresses());
        let (source, destination) =
            addresses.map(|(from, to)| (from.to_string(), to.to_string())).unzip();
        let anomalies = event.anomalies.iter();
        Self::Packet {
            frame: event.record.number,
            segment: event.record.segment.map(|segment| segment.number),
            timestamp: event.record.timestamp.map(|time| time.to_string()),
            source,
            destination,
            summary,
            explanation,
            icrc: event.icrc.map(|verdict| match verdict {
                IcrcVerdict::Ok => "ok",
                IcrcVerdict::Bad { .. } => "bad",
                IcrcVerdict::Unverifiable => "unverifiable",
            }),
            anomalies: anomalies
                .map(|(kind, text)| AnomalyEvent {
                    kind: kind.name(),
                    severity: kind.severity(),
                    text,
                })
                .collect(),
        }
    }
}

fn line(output: &mut LiveOutput, event: &Event<'_>) -> io::Result<()> {
    serde_json::to_writer(&mut *output, event)?;
    writeln!(output)
}
