//! `docs/porting.md`: its limits and variables.

use std::fs;
use std::process::{Command, Stdio};

use ferroce_test_support::{built, find_program};
use ferroce_tests::tool;

use crate::root;

fn document() -> String {
    fs::read_to_string(root().join("docs/porting.md")).expect("the document")
}

/// Returns the cells of the rows below a heading, without the backquotes.
fn rows(text: &str, heading: &str) -> Vec<Vec<String>> {
    let section = text.split_once(heading).expect("the heading").1;
    let section = section.split_once("\n## ").map_or(section, |(section, _)| section);
    let mut rows = Vec::new();
    for line in section.lines().filter(|line| line.starts_with("| `")) {
        let cells = line.split('|').skip(1).map(|cell| cell.replace('`', "").trim().to_owned());
        rows.push(cells.collect());
    }
    rows
}

#[test]
fn limits_are_those_of_a_device() {
    let Some(devinfo) = find_program("ibv_devinfo") else { return };
    let mut run = Command::new(built::folder().join("ferroce"));
    run.args(["run", "--device", "lo", "--"]).arg(devinfo).arg("-v").stdin(Stdio::null());
    let shown = String::from_utf8(tool::run(&mut run)).expect("text");
    let limits = rows(&document(), "\n## Limits");
    assert!(limits.len() > 8, "{limits:?}");
    // Also those that this process may not use.
    let cpus = tool::run(Command::new("nproc").arg("--all"));
    let cpus = String::from_utf8(cpus).expect("text");
    for row in limits {
        let wanted = match row[1].as_str() {
            "2 GiB" => "0x80000000",
            "the number of CPUs" => cpus.trim(),
            other => other,
        };
        let name = format!("{}:", row[0]);
        let line = shown.lines().map(str::trim).find(|line| line.starts_with(&name));
        let found = line.and_then(|line| line.split_whitespace().nth(1));
        assert_eq!(found, Some(wanted), "{}", row[0]);
    }
}

/// The largest inline capacity that the document states.
#[test]
fn inline_capacity_is_that_of_the_library() {
    let text = document();
    let stated = format!("up to {} bytes", ferroce::Limits::MAX_INLINE_DATA);
    assert!(text.contains(&stated), "'{stated}' is missing");
}

/// `ferroce doctor` warns of variables that it does not know.
#[test]
fn variables_exist() {
    let variables = rows(&document(), "\n## Variables");
    assert!(variables.len() > 8, "{variables:?}");
    let mut doctor = Command::new(built::folder().join("ferroce"));
    doctor.args(["doctor", "--json"]).stdin(Stdio::null());
    // Any value: unknown names are reported whatever they hold, and an empty value counts as not set.
    doctor.envs(variables.iter().map(|row| (row[0].as_str(), "")));
    let report = doctor.output().expect("the doctor runs").stdout;
    let report = String::from_utf8(report).expect("text");
    assert!(report.contains("\"devices"), "{report}");
    assert!(!report.contains("environment.unknown"), "{report}");
}
