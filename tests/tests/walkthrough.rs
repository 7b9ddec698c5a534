//! Follows docs/walkthrough line by line: runs every command, in the order of the book, and compares what it prints.
//!
//! A block of kind `console` has commands (`$ …`, continued by a backslash) and what they print. Of the output, the book
//! shows some lines; a line with only `…` stands for those left out. Numbers, keys, times and bars differ from run to
//! run, so only the rest of a line is compared. With FERROCE_UPDATE_DOCS=1, the lines shown and the figures are
//! replaced by those of this run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_test_support::{built, find_program};

fn book() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/walkthrough")
}

/// Whether the book is to be written anew.
fn updates() -> bool {
    std::env::var_os("FERROCE_UPDATE_DOCS").is_some_and(|value| !value.is_empty())
}

/// A line without what differs from run to run: numbers, units behind them, bars and spaces.
fn shape(line: &str) -> String {
    let mut shape = String::new();
    // A capture of TCP on a busy host lacks some frames, and says how many.
    let line = match line.split_once("; ") {
        Some((line, rest)) if rest.contains("frames are missing") => line,
        _ => line,
    };
    for word in line.split_whitespace() {
        let word = word.trim_matches(|c: char| "█▉▊▋▌▍▎▏─═┊│├┤┼▶◀▁▂▃▄▅▆▇┄╌".contains(c));
        let bare = word.trim_matches(|c: char| "(),".contains(c));
        let is_unit = matches!(bare, "ns" | "µs" | "ms" | "s" | "B" | "kB" | "MB" | "KiB" | "MiB");
        if word.is_empty() || is_unit || word.contains("bit/s") {
            continue;
        }
        // A byte in a hexadecimal dump may have no digit.
        let is_byte = word.len() == 2 && word.chars().all(|c| c.is_ascii_hexdigit());
        let is_number = is_byte || word.contains(|c: char| c.is_ascii_digit());
        shape.push(' ');
        shape.push_str(if is_number { "#" } else { word });
    }
    shape
}

/// Finds the lines of the book in the output, in order. Returns the book's lines with those of the output in their place.
fn follow<'a>(shown: &[&'a str], output: &[&'a str]) -> Result<Vec<&'a str>, String> {
    let (mut at, mut found) = (0, Vec::new());
    for line in shown {
        if line.trim() == "…" || line.trim().is_empty() {
            found.push(*line);
            continue;
        }
        let wanted = shape(line);
        match output[at..].iter().position(|line| shape(line) == wanted) {
            Some(index) => {
                at += index + 1;
                found.push(output[at - 1]);
            }
            None => return Err(format!("not printed, or not in this order: {line}")),
        }
    }
    Ok(found)
}

/// Runs a command of the book in the reader's folder.
fn run(command: &str, folder: &Path) -> String {
    let path = std::env::var("PATH").unwrap_or_default();
    let examples = built::folder().join("examples");
    let path = format!("{}:{}:{path}", built::folder().display(), examples.display());
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("{{ {command}\n}} 2>&1")).current_dir(folder).stdin(Stdio::null());
    // Wide enough that the place where a line is wrapped does not depend on its numbers.
    shell.env("PATH", path).env("COLUMNS", "200").env("LC_ALL", "C.UTF-8");
    for name in ["FERROCE_CAPTURE", "FERROCE_FAULTS", "FERROCE_LOCAL", "FERROCE_LIB"] {
        shell.env_remove(name);
    }
    let output = shell.output().expect("a shell");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "`{command}`: {}\n{text}", output.status);
    text
}

/// Follows one chapter, and returns its text with the output of this run.
fn chapter(name: &str, text: &str, folder: &Path) -> String {
    let mut new = Vec::new();
    let mut lines = text.lines().peekable();
    while let Some(line) = lines.next() {
        new.push(line.to_owned());
        if line != "```console" {
            continue;
        }
        while let Some(first) = lines.next_if(|line| *line != "```") {
            let command = first.strip_prefix("$ ");
            let command = command.unwrap_or_else(|| panic!("{name}: no command: {first}"));
            new.push(first.to_owned());
            let mut command = command.to_owned();
            while command.ends_with('\\') {
                let more = lines.next().expect("a continued command");
                new.push(more.to_owned());
                command = command.trim_end_matches('\\').to_owned() + more.trim_start();
            }
            let mut shown = Vec::new();
            while let Some(line) = lines.next_if(|line| *line != "```" && !line.starts_with("$ ")) {
                shown.push(line);
            }
            let output = run(&command, folder);
            let output: Vec<&str> = output.lines().collect();
            let found = follow(&shown, &output).unwrap_or_else(|missing| {
                panic!("{name}: `{command}`: {missing}\nprinted:\n{}", output.join("\n"))
            });
            new.extend(found.into_iter().map(|line| line.trim_end().to_owned()));
        }
    }
    new.join("\n") + "\n"
}

/// The chapters in their order, from the book's table of contents.
fn chapters() -> Vec<String> {
    let summary = fs::read_to_string(book().join("SUMMARY.md")).expect("SUMMARY.md");
    let links = summary.split("](").skip(1).filter_map(|rest| rest.split_once(')'));
    links.map(|(file, _)| file.to_owned()).collect()
}

#[test]
fn every_command_of_the_walkthrough_prints_what_it_shows() {
    if find_program("ib_write_bw").is_none() {
        return;
    }
    let folder = std::env::temp_dir().join(format!("ferroce-walkthrough-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let chapters = chapters();
    assert!(chapters.len() >= 8, "{chapters:?}");
    for name in &chapters {
        let path = book().join(name);
        let text = fs::read_to_string(&path).unwrap_or_else(|error| panic!("{name}: {error}"));
        let new = chapter(name, &text, &folder);
        if updates() {
            fs::write(&path, new).expect("the chapter can be written");
        }
        for figure in text.split("](images/").skip(1).filter_map(|rest| rest.split_once(')')) {
            let (made, kept) = (folder.join(figure.0), book().join("images").join(figure.0));
            assert!(made.exists(), "{name}: no command makes {}", figure.0);
            if updates() {
                fs::create_dir_all(book().join("images")).expect("a folder");
                fs::copy(&made, &kept).expect("the figure can be written");
            }
            assert!(kept.exists(), "{name}: {} is missing", kept.display());
        }
    }
    fs::remove_dir_all(folder).expect("the folder is removed");
}

/// Code in the book is that of the examples.
#[test]
fn code_in_the_walkthrough_is_that_of_the_examples() {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/verbs/examples");
    let read = |name| fs::read_to_string(examples.join(name)).expect("an example");
    let code = read("minimal_server.rs") + &read("minimal_client.rs");
    let code: Vec<&str> = code.lines().map(str::trim).collect();
    let mut lines = 0;
    for name in chapters() {
        let text = fs::read_to_string(book().join(&name)).expect("a chapter");
        for block in text.split("```rust\n").skip(1).filter_map(|rest| rest.split_once("```")) {
            for line in block.0.lines().map(str::trim).filter(|line| !line.is_empty()) {
                assert!(code.contains(&line), "{name}: not in an example: {line}");
                lines += 1;
            }
        }
    }
    assert!(lines > 6, "{lines} lines");
}

#[test]
fn lines_are_compared_without_what_differs() {
    let line = "  14.858 [client cm] ADDR_RESOLVED: routed through ferroce_lo  (944 µs)";
    let later = "   9.1 [client cm] ADDR_RESOLVED: routed through ferroce_lo  (1.2 ms)";
    assert_eq!(shape(line), shape(later));
    assert_ne!(shape(line), shape("  14.858 [client cm] ROUTE_RESOLVED: path MTU 4096  (12.0 µs)"));
    let output = ["a 1", "b", "c 22"];
    assert_eq!(follow(&["a 7", "…", "c 3"], &output), Ok(vec!["a 1", "…", "c 22"]));
    assert!(follow(&["c 3", "a 7"], &output).is_err());
    assert!(follow(&["d"], &output).is_err());
}
