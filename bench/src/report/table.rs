//! The table, as Markdown that is readable in a terminal.

use super::numbers::{bar, ratio, summary, verdict};
use crate::row::Outcome;

const HEAD: [&str; 7] = ["measure", "Ferroce", "against", "figure", "ratio", "bar", "result"];

/// All rows, and what failed.
pub(crate) fn text(outcomes: &[Outcome<'_>]) -> String {
    let mut text = table(outcomes);
    let problems = problems(outcomes);
    if !problems.is_empty() {
        text += "\n";
        problems.iter().for_each(|problem| text += &format!("{problem}\n"));
    }
    text
}

/// The table.
pub(super) fn table(outcomes: &[Outcome<'_>]) -> String {
    let lines: Vec<[String; 7]> = outcomes.iter().flat_map(lines).collect();
    let mut widths = HEAD.map(|name| name.chars().count());
    for line in &lines {
        for (width, cell) in widths.iter_mut().zip(line) {
            *width = (*width).max(cell.chars().count());
        }
    }
    let print = |cells: &[String; 7]| {
        let cells: Vec<_> =
            cells.iter().zip(widths).map(|(cell, width)| format!("{cell:width$}")).collect();
        format!("| {} |\n", cells.join(" | "))
    };
    let rule: Vec<_> = widths.iter().map(|width| "-".repeat(width + 2)).collect();
    let mut text = print(&HEAD.map(str::to_owned)) + &format!("|{}|\n", rule.join("|"));
    lines.iter().for_each(|line| text += &print(line));
    text
}

fn lines<'a>(outcome: &'a Outcome<'_>) -> impl Iterator<Item = [String; 7]> + use<'a> {
    outcome.row.lines.iter().map(|line| {
        let (ours, theirs, of) = outcome.compare(line);
        let result = match &outcome.skipped {
            Some(_) => "skipped".to_owned(),
            None => verdict(line.bar.judge(ours, of)),
        };
        [
            format!("{}: {}", outcome.row.name, line.name),
            summary(ours, line.unit),
            line.against.as_ref().map_or_else(|| "–".to_owned(), |other| other.name.clone()),
            line.against.as_ref().map_or_else(|| "–".to_owned(), |_| summary(theirs, line.unit)),
            ratio(of),
            bar(line.bar, line.unit),
            result,
        ]
    })
}

/// What was skipped and what failed, one per line.
pub(super) fn problems(outcomes: &[Outcome<'_>]) -> Vec<String> {
    let of = |outcome: &Outcome<'_>| {
        let name = outcome.row.name;
        let skipped = outcome.skipped.iter().map(move |why| format!("{name}: skipped: {why}"));
        let failed = outcome.failures.iter().map(move |why| format!("{name}: failed: {why}"));
        skipped.chain(failed).collect::<Vec<_>>()
    };
    outcomes.iter().flat_map(of).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::parse::sample;
    use crate::program::Program;
    use crate::row::{Bar, Line, Row, Said, Side};

    fn row() -> Row {
        let side = |name| Side::alone(name, Program::plain("true"), |_: &Said| Ok(sample([])));
        Row {
            name: "lat",
            title: "latency",
            sides: vec![side("ferroce"), side("tcp")],
            lines: vec![
                Line::new("64 B", "typical", "µs", "ferroce")
                    .against("tcp")
                    .bar(Bar::RatioAtMost(1.1)),
            ],
            note: "",
        }
    }

    #[test]
    fn a_line_compares_medians() {
        let row = row();
        let samples = vec![vec![sample([("typical", 6.0)])], vec![sample([("typical", 3.0)])]];
        let outcome = Outcome { row: &row, samples, failures: Vec::new(), skipped: None };
        let text = text(&[outcome]);
        let line = text.lines().nth(2).unwrap();
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        let expected = [
            "",
            "lat: 64 B",
            "6.00 µs",
            "tcp",
            "3.00 µs",
            "2.00 ×",
            "≤ 1.10 ×",
            "not met, by 81.8 %",
            "",
        ];
        assert_eq!(cells, expected);
    }

    #[test]
    fn problems_are_listed_below() {
        let row = row();
        let samples = vec![Vec::new(), Vec::new()];
        let outcome =
            Outcome { row: &row, samples, failures: vec!["tcp: refused".into()], skipped: None };
        assert!(outcome.has_failed());
        assert!(text(&[outcome]).ends_with("\nlat: failed: tcp: refused\n"));
    }
}
