//! `ferroce analyze`: what happened in capture files, as text or as JSON.

pub(crate) mod output;
pub(crate) mod progress;

use std::fs::File;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use ferroce_trace::analysis::report::{FileReport, ProblemReport};
use ferroce_trace::analysis::{self, Options, SCHEMA};
use ferroce_trace::render::sections::{self, LadderView, View};

use crate::args::AnalyzeArgs;
use crate::exit::ExitStatus;
use crate::style::Screen;
use output::{Alphabet, Printable, print};
use progress::Progress;

/// Columns of a report that does not go to a terminal.
pub(crate) const FILE_COLUMNS: usize = 100;

/// Problems of a file that are named on the standard error output.
const NAMED_PROBLEMS: usize = 10;

/// Analyses the files that the arguments name.
pub(crate) fn run(args: &AnalyzeArgs, screen: &Screen) -> ExitStatus {
    let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let result =
        if args.json { json(args, screen, &mut output) } else { text(args, screen, &mut output) };
    ExitStatus::of_output(result.and_then(|status| output.flush().map(|()| status)), screen)
}

/// The reports one below the other.
fn text(args: &AnalyzeArgs, screen: &Screen, output: &mut impl Write) -> io::Result<ExitStatus> {
    let view = view(args, screen);
    let alphabet = Alphabet::choose(args.ascii);
    let mut status = ExitStatus::Success;
    let mut first = true;
    for path in &args.files {
        let file = Analyzed::of(path, args);
        if file.opened {
            if !std::mem::take(&mut first) {
                writeln!(output)?;
            }
            print(&sections::report(&file.report, &view), screen.paint, alphabet, output)?;
            // What was readable comes first: on a terminal, what is wrong with it stands below.
            output.flush()?;
        }
        status = status.and(file.complain(screen));
    }
    Ok(status)
}

/// One document, written file by file: however many there are, one report is held at a time.
fn json(args: &AnalyzeArgs, screen: &Screen, output: &mut impl Write) -> io::Result<ExitStatus> {
    let mut status = ExitStatus::Success;
    write!(output, "{{\"schema\":\"{SCHEMA}\",\"files\":[")?;
    for (at, path) in args.files.iter().enumerate() {
        let file = Analyzed::of(path, args);
        if at > 0 {
            write!(output, ",")?;
        }
        serde_json::to_writer(&mut *output, &file.report)?;
        status = status.and(file.complain(screen));
    }
    writeln!(output, "]}}")?;
    Ok(status)
}

/// One file's report.
struct Analyzed {
    report: FileReport,
    /// False for a file that could not even be opened.
    opened: bool,
}

impl Analyzed {
    fn of(path: &Path, args: &AnalyzeArgs) -> Self {
        if path == Path::new("-") {
            return Self::read("-", io::stdin().lock(), None, args);
        }
        let name = path.to_string_lossy();
        match File::open(path) {
            Ok(file) => {
                let data = file.metadata().ok().filter(|data| data.is_file());
                Self::read(&name, file, data.map(|data| data.len()), args)
            }
            Err(error) => {
                let text = format!("cannot be opened: {error}");
                let report = FileReport {
                    path: name.into_owned(),
                    problems: vec![ProblemReport { frame: None, offset: None, text }],
                    problems_total: 1,
                    ..FileReport::default()
                };
                Self { report, opened: false }
            }
        }
    }

    fn read(name: &str, input: impl Read, length: Option<u64>, args: &AnalyzeArgs) -> Self {
        let mut progress = Progress::new(name, length, args.quiet);
        let report =
            analysis::analyze(name, input, &options(args), &mut |done| progress.show(done));
        progress.erase();
        Self { report, opened: true }
    }

    /// Says what could not be read, and where.
    fn complain(&self, screen: &Screen) -> ExitStatus {
        let path = Printable(&self.report.path);
        let problems = &self.report.problems;
        for problem in problems.iter().take(NAMED_PROBLEMS) {
            screen.complain(format_args!("{path}: {}", sections::problem(problem)));
        }
        let named = problems.len().min(NAMED_PROBLEMS) as u64;
        match self.report.problems_total.saturating_sub(named) {
            0 => {}
            1 => screen.complain(format_args!("{path}: 1 more problem")),
            more => screen.complain(format_args!("{path}: {more} more problems")),
        }
        match self.report.problems_total {
            0 => ExitStatus::Success,
            _ if !self.opened => ExitStatus::Failure,
            _ => ExitStatus::BadInput,
        }
    }
}

fn options(args: &AnalyzeArgs) -> Options {
    Options {
        packet_list: args.packets || args.ladder.is_some(),
        conversation: args.conversation,
        graph_interval_ns: args.graph_interval.map(|interval| interval.nanoseconds),
        max_packet_rows: args.max_packets,
        max_messages: args.max_messages,
        max_anomalies: args.max_anomalies,
        max_conversations: args.max_conversations,
        ..Options::default()
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
