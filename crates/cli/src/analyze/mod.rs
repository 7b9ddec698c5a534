//! `ferroce analyze`: what happened in capture files, as text or as JSON.

mod output;
mod progress;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use ferroce_trace::analysis::report::{FileReport, ProblemReport};
use ferroce_trace::analysis::{self, Options, SCHEMA};
use ferroce_trace::render::sections::{self, LadderView, View};

use crate::args::AnalyzeArgs;
use crate::exit::ExitStatus;
use crate::style::Screen;
use output::{Alphabet, print};
use progress::Progress;

/// Columns of a report that does not go to a terminal.
const FILE_COLUMNS: usize = 100;

/// Problems of a file that are named on the standard error output.
const NAMED_PROBLEMS: usize = 10;

/// Analyses the files that the arguments name.
pub fn run(args: &AnalyzeArgs, screen: &Screen) -> ExitStatus {
    let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let result = if args.json {
        json(args, screen, &mut output)
    } else {
        text(args, screen, &mut output)
    };
    ExitStatus::of_output(result.and_then(|status| output.flush().map(|()| status)), screen)
}

/// The reports one below the other.
fn text(
    args: &AnalyzeArgs,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<ExitStatus> {
    let view = view(args, screen);
    let alphabet = Alphabet::choose(args.ascii);
    let mut status = ExitStatus::Success;
    for (at, path) in args.files.iter().enumerate() {
        let (report, found) = file(path, args, screen);
        if at > 0 {
            writeln!(output)?;
        }
        print(&sections::report(&report, &view), screen.paint, alphabet, output)?;
        // What was readable comes first: on a terminal, what is wrong with it stands below.
        output.flush()?;
        complain(&report, screen);
        status = status.and(found);
    }
    Ok(status)
}

/// One document, written file by file: however many there are, one report is held at a time.
fn json(
    args: &AnalyzeArgs,
    screen: &Screen,
    output: &mut impl Write,
) -> io::Result<ExitStatus> {
    let mut status = ExitStatus::Success;
    write!(output, "{{\"schema\":\"{SCHEMA}\",\"files\":[")?;
    for (at, path) in args.files.iter().enumerate() {
        let (report, found) = file(path, args, screen);
        if at > 0 {
            write!(output, ",")?;
        }
        serde_json::to_writer(&mut *output, &report)?;
        complain(&report, screen);
        status = status.and(found);
    }
    writeln!(output, "]}}")?;
    Ok(status)
}

/// Analyses one file.
fn file(path: &Path, args: &AnalyzeArgs, screen: &Screen) -> (FileReport, ExitStatus) {
    let options = Options {
        packet_list: args.packets || args.ladder.is_some(),
        conversation: args.conversation.or(args.ladder.flatten()),
        graph_interval_ns: args.graph_interval.map(|interval| interval.nanoseconds),
        max_packet_rows: args.max_packets,
        max_messages: args.max_messages,
        max_anomalies: args.max_anomalies,
        max_conversations: args.max_conversations,
        ..Options::default()
    };
    if path == Path::new("-") {
        return input("-", io::stdin().lock(), None, &options, args);
    }
    let name = path.to_string_lossy();
    match File::open(path) {
        Ok(opened) => {
            let length = opened.metadata().ok().filter(|file| file.is_file()).map(|file| file.len());
            input(&name, opened, length, &options, args)
        }
        Err(error) => {
            screen.complain(format_args!("{name}: {error}"));
            let problem = ProblemReport { frame: None, offset: 0, text: error.to_string() };
            let report = FileReport {
                path: name.into_owned(),
                problems: vec![problem],
                problems_total: 1,
                ..FileReport::default()
            };
            (report, ExitStatus::Failure)
        }
    }
}

fn input(
    name: &str,
    input: impl Read,
    length: Option<u64>,
    options: &Options,
    args: &AnalyzeArgs,
) -> (FileReport, ExitStatus) {
    let mut progress = Progress::new(name, length, args.quiet);
    let report = analysis::analyze(name, input, options, &mut |done| progress.show(done));
    progress.erase();
    let sound = report.problems_total == 0;
    (report, if sound { ExitStatus::Success } else { ExitStatus::BadInput })
}

/// Names the problems of a file. One that could not be opened has been named.
fn complain(report: &FileReport, screen: &Screen) {
    if report.format.is_empty() && report.file_bytes == 0 && report.packets == 0 {
        // Nothing of the file was read: there is no place to name but its start.
    }
    let path = &report.path;
    for problem in report.problems.iter().take(NAMED_PROBLEMS) {
        screen.complain(format_args!("{path}: {}", sections::problem(problem)));
    }
    let named = report.problems.len().min(NAMED_PROBLEMS) as u64;
    match report.problems_total.saturating_sub(named) {
        0 => {}
        1 => screen.complain(format_args!("{path}: and 1 more problem")),
        more => screen.complain(format_args!("{path}: and {more} more problems")),
    }
}

fn view(args: &AnalyzeArgs, screen: &Screen) -> View {
    View {
        columns: screen.width.unwrap_or(FILE_COLUMNS),
        all: args.all,
        anomalies: args.anomalies,
        messages: args.messages,
        packets: args.packets,
        ladder: args.ladder.map(|conversation| LadderView {
            conversation,
            rows: (!args.all).then_some(args.rows),
        }),
    }
}
