//! Output width on a terminal, which script(1) provides.

use std::path::Path;
use std::process::{Command, Stdio};

use ferroce_test_support::skip;

const CAPTURE: &str = "tests/data/rxe/rnr.pcap";

/// Returns the output of a shell command on a terminal of `columns` columns. `None`, after a skip, without script(1).
fn run_on_terminal(columns: usize, command: &str) -> Option<String> {
    // The terminal starts with zero rows, which counts as unknown size.
    let script = format!("stty rows 50 columns {columns}; {command}");
    let output = Command::new("script")
        .args(["--quiet", "--return", "--command", &script, "/dev/null"])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("../.."))
        .env("FERROCE", env!("CARGO_BIN_EXE_ferroce"))
        .env("LC_ALL", "C.UTF-8")
        .env("NO_COLOR", "1")
        .env_remove("COLUMNS")
        .stdin(Stdio::null())
        .output();
    let Ok(output) = output else {
        skip("script(1) is not installed");
        return None;
    };
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    assert!(output.status.success(), "{text}");
    Some(text.replace('\r', ""))
}

fn widest(text: &str) -> usize {
    text.lines().map(|line| line.chars().count()).max().expect("lines")
}

#[test]
fn reports_are_as_wide_as_the_terminal() {
    let analyze = format!("$FERROCE analyze --ladder {CAPTURE}");
    for (columns, command, min, max) in [
        (60, analyze.clone(), 50, 60),
        (140, analyze.clone(), 120, 140),
        // COLUMNS takes precedence.
        (140, format!("COLUMNS=70 {analyze}"), 60, 70),
        // In a pipe: the width of the terminal, at most 100 columns.
        (70, format!("{analyze} | cat"), 60, 70),
        (140, format!("{analyze} | cat"), 90, 100),
    ] {
        let Some(text) = run_on_terminal(columns, &command) else { return };
        let widest = widest(&text);
        assert!((min..=max).contains(&widest), "{widest} of {columns}, {command}:\n{text}");
    }
}

#[test]
fn the_title_of_a_frame_wraps_at_the_terminal_width() {
    let Some(text) = run_on_terminal(40, &format!("$FERROCE decode {CAPTURE} 1")) else { return };
    let head = text.split("\n\n").next().expect("a head");
    let title = head.lines().skip_while(|line| !line.starts_with("RC SEND First"));
    let title: Vec<_> = title.collect();
    assert!(title.len() > 1 && widest(&title.join("\n")) <= 40, "{text}");
}
