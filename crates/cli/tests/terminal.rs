//! The real command on a terminal, which script(1) provides: its output is as wide as that.

use std::path::Path;
use std::process::{Command, Stdio};

use ferroce_test_support::skip;

const CAPTURE: &str = "tests/data/rxe/rnr.pcap";

/// What a shell command shows on a terminal of so many columns. `None`, after a skip, where there is none to be had.
fn shown(columns: usize, command: &str) -> Option<String> {
    // A terminal without rows, which it starts as, counts as one of unknown size.
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
    for (columns, command, least, most) in [
        (60, analyze.clone(), 50, 60),
        (140, analyze.clone(), 120, 140),
        // The environment goes first.
        (140, format!("COLUMNS=70 {analyze}"), 60, 70),
        // In a pager, as wide as its terminal, and 100 columns at most.
        (70, format!("{analyze} | cat"), 60, 70),
        (140, format!("{analyze} | cat"), 90, 100),
    ] {
        let Some(text) = shown(columns, &command) else { return };
        let widest = widest(&text);
        assert!((least..=most).contains(&widest), "{widest} of {columns}, {command}:\n{text}");
    }
}

#[test]
fn what_a_frame_is_fits_the_terminal() {
    let Some(text) = shown(40, &format!("$FERROCE decode {CAPTURE} 1")) else { return };
    let head = text.split("\n\n").next().expect("a head");
    let title = head.lines().skip_while(|line| !line.starts_with("RC SEND First"));
    let title: Vec<_> = title.collect();
    assert!(title.len() > 1 && widest(&title.join("\n")) <= 40, "{text}");
}
