//! `ferroce report`: a capture as a web page.

mod args;
mod input;

use std::cell::RefCell;
use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use ferroce_report::model::{FilePage, Page, SCHEMA};
use ferroce_report::{Options, build, html};
use ferroce_trace::render::units;

use crate::capture::create_private;
use crate::exit::ExitStatus;
use crate::progress::{Progress, Unit};
use crate::style::{Screen, printable};
pub(crate) use args::{EXAMPLES, ReportArgs};
use input::Input;

/// The page that is written if no other is named.
const DEFAULT_OUTPUT: &str = "report.html";

/// Problems of a file printed on standard error.
const NAMED_PROBLEMS: usize = 10;

/// Reads the captures, then writes the page and the figures.
pub(crate) fn run(args: &ReportArgs, screen: &Screen) -> ExitStatus {
    let mut status = ExitStatus::Success;
    let mut options = Options { packets: args.packets, ..Options::default() };
    let mut files = Vec::new();
    for path in &args.files {
        match read(path, args, &mut options) {
            Ok(file) => {
                status = status.and(complain(&file, screen));
                files.push(file);
            }
            Err(error) => {
                let path = path.display().to_string();
                screen.complain(format_args!("{}: cannot read it: {error}", printable(&path)));
                status = status.and(ExitStatus::Failure);
            }
        }
    }
    if files.is_empty() {
        return status;
    }
    let page = Page { schema: SCHEMA, version: env!("CARGO_PKG_VERSION"), files };
    for wanted in &args.svg {
        let figure = wanted.figure.draw(&page.files);
        status = status
            .and(write_file(&wanted.path, screen, |output| output.write_all(figure.as_bytes())));
    }
    if args.json {
        let written = print(|output| serde_json::to_writer(output, &page).map_err(io::Error::from));
        status = status.and(ExitStatus::of_output(written, screen));
    }
    let default = (args.svg.is_empty() && !args.json).then(|| Path::new(DEFAULT_OUTPUT));
    match args.output.as_deref().or(default) {
        Some(path) if path == Path::new("-") => {
            let written = print(|output| html::page(&page, output));
            status.and(ExitStatus::of_output(written, screen))
        }
        Some(path) => {
            let written = write_file(path, screen, |output| html::page(&page, output));
            if written == ExitStatus::Success && !args.json {
                status = status
                    .and(ExitStatus::of_output(print(|out| written_to(path, &page, out)), screen));
            }
            status.and(written)
        }
        None => status,
    }
}

fn read(path: &Path, args: &ReportArgs, options: &mut Options) -> io::Result<FilePage> {
    let input = Input::open(path, args.decompression)?;
    let name = path.to_string_lossy();
    let length = input.len();
    // The capture is read twice.
    let both = length.map(|length| length.saturating_mul(2));
    let mut progress = Progress::new(&name, both, Unit::Bytes, args.quiet);
    let input = RefCell::new(input);
    let page = build(&name, &mut || input.borrow_mut().reader(), options, &mut |_| {
        progress.show(input.borrow().bytes_read());
    });
    progress.erase();
    let mut page = page?;
    // A file that is not a capture is not read, but its size is known.
    page.file_bytes = page.file_bytes.max(length.unwrap_or(0));
    Ok(page)
}

/// Reports what could not be read.
fn complain(file: &FilePage, screen: &Screen) -> ExitStatus {
    let path = printable(&file.path);
    for problem in file.problems.iter().take(NAMED_PROBLEMS) {
        screen.complain(format_args!("{path}: {problem}"));
    }
    let named = file.problems.len().min(NAMED_PROBLEMS) as u64;
    match file.problems_total.saturating_sub(named) {
        0 => {}
        more => screen.complain(format_args!("{path}: {}", units::counted(more, "more problem"))),
    }
    if file.problems_total > 0 { ExitStatus::BadInput } else { ExitStatus::Success }
}

/// Writes a file with access for its owner only: pages contain payload and keys.
fn write_file(
    path: &Path,
    screen: &Screen,
    write: impl FnOnce(&mut BufWriter<File>) -> io::Result<()>,
) -> ExitStatus {
    let written = create_private(path).and_then(|file| {
        let mut output = BufWriter::new(file);
        write(&mut output)?;
        output.flush()
    });
    match written {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            screen.complain(format_args!("cannot write {}: {error}", path.display()));
            ExitStatus::Failure
        }
    }
}

fn print(
    write: impl FnOnce(&mut BufWriter<io::StdoutLock<'static>>) -> io::Result<()>,
) -> io::Result<ExitStatus> {
    let mut output = BufWriter::new(io::stdout().lock());
    write(&mut output)?;
    output.flush()?;
    Ok(ExitStatus::Success)
}

/// States what was written, and the diagnosis in a line per file.
fn written_to(path: &Path, page: &Page, output: &mut impl Write) -> io::Result<()> {
    for file in &page.files {
        let packets = units::counted(file.packets, "packet");
        let shown = match file.shown.len() as u64 {
            all if all == file.packets => "all shown".to_owned(),
            shown => format!("{} shown one by one", units::count(shown)),
        };
        writeln!(output, "{}  {packets}, {shown}", printable(&file.path))?;
        for topic in &file.topics {
            writeln!(output, "  {}", topic.title)?;
        }
        if file.topics.is_empty() && file.roce_packets > 0 {
            writeln!(output, "  no problems found")?;
        }
    }
    let size = std::fs::metadata(path).map_or(0, |data| data.len());
    writeln!(output, "written to {}, {}", path.display(), units::bytes(size))
}
