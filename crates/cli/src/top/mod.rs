//! `ferroce top`: a full-screen view of all processes that have a device open.
//!
//! | file | role |
//! |---|---|
//! | `app` | what is shown: snapshots, history, the chosen view, row and order |
//! | `rows` | the tables, as rows of cells that can be sorted and searched |
//! | `keys` | what keys do |
//! | `draw` | the frame |
//! | `detail` | a queue pair in detail |
//! | `ladder` | its packets |
//! | `screen` | the terminal, and its restoration |

mod app;
mod args;
mod detail;
mod draw;
mod keys;
mod ladder;
mod rows;
mod screen;
#[cfg(test)]
mod tests;

use std::io::{self, IsTerminal, Write};
use std::time::Duration;

use ferroce_stat::{Filter, read_all};
use ratatui::Terminal;
use ratatui::backend::TestBackend;

use crate::exit::ExitStatus;
use crate::stat;
use crate::style::Screen;
use app::App;
pub(crate) use args::{EXAMPLES, TopArgs};

/// Shows processes until the user quits.
pub(crate) fn run(args: &TopArgs, screen: &Screen) -> ExitStatus {
    let filter = Filter { pid: args.pid, device: args.device.clone() };
    let interval = Duration::from_nanos(args.interval.nanoseconds);
    if args.once || args.json {
        let before = read_all(&filter);
        std::thread::sleep(interval);
        let now = read_all(&filter);
        if args.json {
            return stat::json_with_rates(&before, &now, screen);
        }
        let mut app = App::new(before);
        app.update(now);
        let result = print(&app, screen.columns, &mut io::stdout().lock());
        return ExitStatus::of_output(result.map(|()| ExitStatus::Success), screen);
    }
    if !io::stdout().is_terminal() || !io::stdin().is_terminal() {
        screen.complain(
            "ferroce top needs a terminal; use --once to print one frame, or ferroce stat",
        );
        return ExitStatus::Failure;
    }
    match screen::run(&filter, interval) {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            screen.complain(format_args!("the terminal cannot be used: {error}; use --once"));
            ExitStatus::Failure
        }
    }
}

/// Prints a frame as text, as high as it needs to be.
fn print(app: &App, columns: usize, output: &mut impl Write) -> io::Result<()> {
    let width = u16::try_from(columns.clamp(40, 1000)).unwrap_or(100);
    for line in frame(app, width, draw::height(app))? {
        writeln!(output, "{line}")?;
    }
    output.flush()
}

/// The lines of a frame of this size, without colours.
fn frame(app: &App, width: u16, height: u16) -> io::Result<Vec<String>> {
    let mut terminal = Terminal::new(TestBackend::new(width, height))?;
    terminal.draw(|frame| draw::draw(frame, app))?;
    let buffer = terminal.backend().buffer();
    let line = |y| -> String {
        let text: String = (0..width).map(|x| buffer[(x, y)].symbol()).collect();
        text.trim_end().to_owned()
    };
    let mut lines: Vec<_> = (0..height).map(line).collect();
    while lines.last().is_some_and(String::is_empty) {
        lines.pop();
    }
    Ok(lines)
}
