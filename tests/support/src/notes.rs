//! Notes for the summary of a run: which tests were skipped, and which were not isolated.

use std::env;
use std::fs::OpenOptions;
use std::io::Write;
use std::thread;

/// Names the file of notes. `scripts/test` sets it.
const FILE_ENV: &str = "FERROCE_TEST_NOTES";

/// The kind of a note.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A test, or a part of it, did not run.
    Skipped,
    /// A test ran in the machine's own network namespace.
    Shared,
}

/// Adds a line: kind, test and reason, with tabs between them.
pub fn add(kind: Kind, reason: &str) {
    let Some(path) = env::var_os(FILE_ENV).filter(|path| !path.is_empty()) else { return };
    let kind = match kind {
        Kind::Skipped => "skipped",
        Kind::Shared => "shared",
    };
    let reason = reason.replace(['\n', '\t'], " ");
    let line = format!("{kind}\t{}\t{reason}\n", test_name());
    // One write per short line, so that lines of other processes do not interleave.
    let file = OpenOptions::new().create(true).append(true).open(&path);
    if let Err(error) = file.and_then(|mut file| file.write_all(line.as_bytes())) {
        eprintln!("ferroce-test-support: {}: {error}", path.to_string_lossy());
    }
}

/// Returns the test's name: nextest starts one test as `BINARY --exact NAME …`, libtest names a thread after each.
fn test_name() -> String {
    let binary = env::current_exe().ok();
    let binary = binary.as_deref().and_then(|path| path.file_stem()).unwrap_or_default();
    // Without the hash that cargo appends.
    let binary = binary.to_string_lossy();
    let binary = binary.rsplit_once('-').map_or(&*binary, |(name, _)| name);
    let arguments: Vec<String> = env::args().collect();
    let named = arguments.iter().any(|argument| argument == "--exact");
    let filter = arguments.iter().skip(1).find(|argument| !argument.starts_with("--"));
    let test = match (thread::current().name(), filter) {
        (Some(name), _) if name != "main" => name.to_owned(),
        (_, Some(name)) if named => name.clone(),
        _ => "?".to_owned(),
    };
    format!("{binary} {test}")
}
