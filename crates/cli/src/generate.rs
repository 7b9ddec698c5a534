//! Completions and man pages, generated from the parser's definition.

use std::io::{self, Write};
use std::path::Path;

use clap::{Command, CommandFactory};
use clap_complete::Shell;
use clap_mangen::Man;

use crate::args::Cli;
use crate::exit::ExitStatus;
use crate::style::Screen;

/// Prints the completions for a shell.
pub(crate) fn completions(shell: Shell, screen: &Screen) -> ExitStatus {
    let mut command = Cli::command();
    let name = command.get_name().to_owned();
    // The generator panics on write errors, so it writes to memory.
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut command, name, &mut script);
    let result = io::stdout().lock().write_all(&script).map(|()| ExitStatus::Success);
    ExitStatus::of_output(result, screen)
}

/// Prints the man page of the command, or writes all pages to a directory.
pub(crate) fn man(dir: Option<&Path>, screen: &Screen) -> ExitStatus {
    let mut command = Cli::command().disable_help_subcommand(true);
    command.build();
    let Some(dir) = dir else {
        let result = page(&command, &mut io::stdout().lock()).map(|()| ExitStatus::Success);
        return ExitStatus::of_output(result, screen);
    };
    match pages(&command, dir) {
        Ok(()) => ExitStatus::Success,
        Err(error) => {
            screen.complain(format_args!("{}: cannot write the man pages: {error}", dir.display()));
            ExitStatus::Failure
        }
    }
}

fn pages(command: &Command, dir: &Path) -> io::Result<()> {
    std::fs::create_dir_all(dir)?;
    for command in std::iter::once(command).chain(command.get_subcommands()) {
        let mut text = Vec::new();
        page(command, &mut text)?;
        std::fs::write(dir.join(Man::new(command.clone()).get_filename()), text)?;
    }
    Ok(())
}

/// Builds one page. The text below the options in the help (examples, exit status) becomes sections.
fn page(command: &Command, out: &mut dyn Write) -> io::Result<()> {
    let page = Man::new(command.clone());
    page.render_title(out)?;
    page.render_name_section(out)?;
    page.render_synopsis_section(out)?;
    page.render_description_section(out)?;
    page.render_options_section(out)?;
    if command.has_subcommands() {
        page.render_subcommands_section(out)?;
    }
    let after = command.get_after_help().map(|text| text.to_string()).unwrap_or_default();
    for block in after.split("\n\n") {
        let (title, lines) = block.split_once('\n').unwrap_or((block, ""));
        writeln!(out, ".SH \"{}\"\n.nf", title.trim_end_matches(':').to_uppercase())?;
        for line in lines.lines() {
            writeln!(out, "{}", escaped(line))?;
        }
        writeln!(out, ".fi")?;
    }
    Ok(())
}

/// Escapes a line of text for roff, in which backslashes, dashes and leading characters are special.
fn escaped(line: &str) -> String {
    let line = line.strip_prefix("  ").unwrap_or(line);
    format!("\\&{}", line.replace('\\', "\\\\").replace('-', "\\-").replace('\'', "\\(aq"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_definition_is_valid() {
        Cli::command().debug_assert();
    }

    #[test]
    fn every_man_page_has_its_sections() {
        let mut command = Cli::command();
        command.build();
        for command in std::iter::once(&command).chain(command.get_subcommands()) {
            if command.get_name() == "help" {
                continue;
            }
            let mut text = Vec::new();
            page(command, &mut text).unwrap();
            let text = String::from_utf8(text).unwrap();
            for section in [".SH NAME", ".SH SYNOPSIS", ".SH OPTIONS", ".SH \"EXIT STATUS\""] {
                assert!(text.contains(section), "{}: {section}", command.get_name());
            }
            // `run`, whose status is that of its command, and `doctor`, which reads no input.
            let own = !["run", "doctor"].contains(&command.get_name());
            assert_eq!(text.contains("invalid input"), own, "{}", command.get_name());
        }
    }
}
