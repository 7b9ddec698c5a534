//! Completions and man pages, from the same definition as the parser.

use std::io::{self, Write};
use std::path::Path;

use clap::CommandFactory;
use clap_complete::Shell;

use crate::args::Cli;
use crate::exit::ExitStatus;
use crate::style::Screen;

/// Writes the completions for a shell to the standard output.
pub fn completions(shell: Shell, screen: &Screen) -> ExitStatus {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    // The generator panics when it cannot write, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    let result = io::stdout().lock().write_all(&script).map(|()| ExitStatus::Success);
    ExitStatus::of_output(result, screen)
}

/// Writes the man page of the command to the standard output, or all pages to a directory.
pub fn man(dir: Option<&Path>, screen: &Screen) -> ExitStatus {
    let Some(dir) = dir else {
        let page = clap_mangen::Man::new(Cli::command());
        let result = page.render(&mut io::stdout().lock()).map(|()| ExitStatus::Success);
        return ExitStatus::of_output(result, screen);
    };
    let written =
        std::fs::create_dir_all(dir).and_then(|()| clap_mangen::generate_to(Cli::command(), dir));
    match written {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            screen.complain(format_args!("{}: cannot write the man pages: {error}", dir.display()));
            ExitStatus::Failure
        }
    }
}
