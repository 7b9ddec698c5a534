//! `docs/benchmarks.md`.

use std::fs;
use std::path::Path;

use super::table::{problems, table};
use crate::host;
use crate::row::Outcome;

const PATH: &str = "docs/benchmarks.md";

const INTRODUCTION: &str = "\
# Benchmarks

This file is written by `make bench`, which builds the release version and runs all rows. `target/release/ferroce-bench
--help` shows how to run some of them; `make microbench` runs the benchmarks of single functions.

All figures are of one run on one machine. **Ratios last, absolute figures do not**: they depend on the machine, the kernel
and everything else that runs. Each row measures its sides alternately and repeatedly. A figure is the median, followed by the
minimum and maximum; a ratio is that of the medians. A bar that is not met is stated with its distance;
[performance.md](performance.md) says what limits the figure and what was tried.

Every sample runs in a new network namespace, on its loopback unless the row says otherwise. Programs run unmodified, by
`ferroce run`, with everything on that users get: ICRC, checks and counters. 1 GB/s is 10⁹ bytes per second.
";

/// Writes the document.
pub(crate) fn write(outcomes: &[Outcome<'_>], repetitions: usize, load: f64) -> Result<(), String> {
    let path = Path::new(PATH);
    if !path.parent().is_some_and(Path::is_dir) {
        return Err(format!("cannot write {PATH}: run it in the root of the repository"));
    }
    let mut properties = host::properties();
    properties.push(("load average before the run".to_owned(), load.to_string()));
    fs::write(path, document(outcomes, repetitions, &properties))
        .map_err(|error| format!("cannot write {PATH}: {error}"))
}

fn document(outcomes: &[Outcome<'_>], repetitions: usize, host: &[(String, String)]) -> String {
    let mut text = INTRODUCTION.to_owned();
    text += &format!("\n## Results\n{repetitions} samples of each side.\n\n{}", table(outcomes));
    let problems = problems(outcomes);
    if !problems.is_empty() {
        text += "\nRows that did not run completely:\n\n";
        problems.iter().for_each(|problem| text += &format!("- {problem}\n"));
    }
    text += "\n## Machine\n\n| what | value |\n|---|---|\n";
    host.iter().for_each(|(name, value)| text += &format!("| {name} | {value} |\n"));
    text += "\n## Commands\n";
    for outcome in outcomes {
        text += &format!("\n### {}\n{}.", outcome.row.name, outcome.row.title);
        if !outcome.row.note.is_empty() {
            text += &format!(" {}", outcome.row.note);
        }
        text += "\n\n```\n";
        for side in &outcome.row.sides {
            for (index, program) in side.programs().enumerate() {
                let name = if index == 0 { side.name.as_str() } else { "" };
                text += &format!("{name:20} {}\n", program.shown());
            }
        }
        text += "```\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows;

    #[test]
    fn the_document_has_all_commands() {
        let all = rows::all();
        let outcomes: Vec<_> = all
            .iter()
            .map(|row| Outcome {
                row,
                samples: vec![Vec::new(); row.sides.len()],
                failures: Vec::new(),
                skipped: Some("a test".to_owned()),
            })
            .collect();
        let text = document(&outcomes, 5, &[("kernel".to_owned(), "6.1".to_owned())]);
        assert!(text.contains("| kernel | 6.1 |"));
        for side in all.iter().flat_map(|row| &row.sides) {
            assert!(text.contains(&side.client.shown()), "{}", side.name);
        }
    }
}
