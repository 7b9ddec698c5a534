//! `ferroce analyze`: explains what happened in capture files, as text or JSON.

mod args;
mod fail_on;
mod live;
pub(crate) mod output;

use std::io::{self, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use ferroce_trace::analysis::report::{FileReport, ProblemReport};
use ferroce_trace::analysis::{self, Options, SCHEMA};
use ferroce_trace::render::sections::{self, LadderView, View};

use crate::exit::ExitStatus;
use crate::input::Input;
use crate::progress::{Progress, Unit};
use crate::style::Screen;
pub(crate) use args::AnalyzeArgs;
use output::{Alphabet, Printable, print};

/// The maximum number of problems of a file printed on standard error.
const NAMED_PROBLEMS: usize = 10;

/// Analyses the files given as arguments.
pub(crate) fn run(args: &AnalyzeArgs, screen: &Screen) -> ExitStatus {
    if args.live {
        return live::run(args, screen);
    }
    let mut output = BufWriter::with_capacity(1 << 16, io::stdout().lock());
    let result =
        if args.json { json(args, screen, &mut output) } else { text(args, screen, &mut output) };
    ExitStatus::of_output(result.and_then(|status| output.flush().map(|()| status)), screen)
}

/// Prints the reports in sequence.
fn text(args: &AnalyzeArgs, screen: &Screen, output: &mut impl Write) -> io::Result<ExitStatus> {
    let view = view(args, screen);
    let alphabet = Alphabet::choose(args.ascii);
    let mut status = ExitStatus::Success;
    let mut first = true;
    for path in &args.files {
        let file = Analyzed::of(path, args);
        if file.opened && file.has_conversation(args.conversation) {
            if !std::mem::take(&mut first) {
                writeln!(output)?;
            }
            print(&sections::report(&file.report, &view), screen.paint, alphabet, output)?;
            // The report comes first, so that on a terminal the problems stand below it.
            output.flush()?;
        }
        status = status.and(file.complain(args, screen));
    }
    Ok(status)
}

/// Prints one JSON document, file by file, so that only one report is held in memory.
fn json(args: &AnalyzeArgs, screen: &Screen, output: &mut impl Write) -> io::Result<ExitStatus> {
    let mut status = ExitStatus::Success;
    write!(output, "{{\"schema\":\"{SCHEMA}\",\"files\":[")?;
    for (at, path) in args.files.iter().enumerate() {
        let file = Analyzed::of(path, args);
        if at > 0 {
            write!(output, ",")?;
        }
        serde_json::to_writer(&mut *output, &file.report)?;
        status = status.and(file.complain(args, screen));
    }
    writeln!(output, "]}}")?;
    Ok(status)
}

/// The report of one file.
struct Analyzed {
    report: FileReport,
    /// False for a file that could not be opened.
    opened: bool,
}

impl Analyzed {
    fn of(path: &Path, args: &AnalyzeArgs) -> Self {
        let name = path.to_string_lossy();
        match Input::open(path, args.decompression).and_then(|input| Self::read(path, input, args))
        {
            Ok(analyzed) => analyzed,
            Err(error) => {
                let text = format!("cannot open it: {error}");
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

    fn read(path: &Path, mut input: Input, args: &AnalyzeArgs) -> io::Result<Self> {
        let (name, length) = (path.to_string_lossy(), input.length);
        let mut options = options(args);
        // Packets do not name the queue pair that sent them. A pipe cannot be read twice.
        let twice = length.is_some() && !options.filter.queue_pairs.is_empty();
        let total = length.map(|length| if twice { length.saturating_mul(2) } else { length });
        let mut progress = Progress::new(&name, total, Unit::Bytes, args.quiet);
        let mut first_pass = 0;
        if twice {
            let count = input.count();
            let pairs =
                analysis::connected_pairs(input, &options, &mut |_| progress.show(count.get()));
            options.pairs = Arc::new(pairs);
            first_pass = count.get();
            input = Input::open(path, args.decompression)?;
        }
        let count = input.count();
        let mut report = analysis::analyze(&name, input, &options, &mut |_| {
            progress.show(first_pass.saturating_add(count.get()));
        });
        progress.erase();
        // A file that is not a capture is not read, but its size is known.
        report.file_bytes = report.file_bytes.max(length.unwrap_or(0));
        Ok(Self { report, opened: true })
    }

    /// Whether the requested conversation exists; true if none was requested.
    fn has_conversation(&self, wanted: Option<u32>) -> bool {
        wanted.is_none_or(|id| (1..=self.report.conversations_total).contains(&u64::from(id)))
    }

    /// Reports what could not be read and where, what was requested and does not exist, and the anomalies of
    /// `--fail-on`.
    fn complain(&self, args: &AnalyzeArgs, screen: &Screen) -> ExitStatus {
        let mut status = self.complain_of_problems(screen);
        let path = Printable(&self.report.path);
        let ladder = args.ladder.flatten();
        if let Some(id) = args.conversation.filter(|_| !self.has_conversation(args.conversation)) {
            if self.opened {
                let there = self.conversations();
                screen.complain(format_args!("{path}: no conversation {id}: {there}"));
            }
            status = status.and(ExitStatus::Failure);
        } else if let Some(id) = ladder.filter(|_| self.opened && !self.draws(ladder)) {
            let there = match args.conversation {
                Some(kept) => format!("--conversation selects {kept}"),
                None => self.conversations(),
            };
            screen.complain(format_args!("{path}: no ladder of conversation {id}: {there}"));
            status = status.and(ExitStatus::Failure);
        }
        if let Some(found) = fail_on::found(&args.fail_on, &self.report) {
            screen.complain(format_args!("{path}: anomalies named by --fail-on: {found}"));
            status = status.and(ExitStatus::Found);
        }
        status
    }

    /// Whether a ladder is drawn of this conversation.
    fn draws(&self, ladder: Option<u32>) -> bool {
        ladder.is_none_or(|id| self.report.conversations.iter().any(|it| it.id == id))
    }

    /// Lists the existing conversations, for a user who requested another.
    fn conversations(&self) -> String {
        match self.report.conversations_total {
            0 => "the file has none".to_owned(),
            1 => "the file has only conversation 1".to_owned(),
            total => format!("the file has conversations 1 to {total}"),
        }
    }

    fn complain_of_problems(&self, screen: &Screen) -> ExitStatus {
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
        filter: args.filter.filter(),
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
        columns: screen.columns,
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
