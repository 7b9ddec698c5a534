//! Chapters of documents that tests compare with the code, or regenerate.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Splits a document at the level-2 chapter with this title: before, chapter, after.
fn chapter<'a>(document: &'a str, title: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let mark = format!("## {title}\n");
    let start = document.match_indices(&mark).map(|(index, _)| index);
    let start = start.into_iter().find(|&at| at == 0 || document[..at].ends_with('\n'))?;
    let (before, rest) = document.split_at(start);
    let length = rest.find("\n## ").map_or(rest.len(), |index| index + 1);
    let (chapter, after) = rest.split_at(length);
    Some((before, chapter, after))
}

/// Returns the level-2 chapter of `docs/differences-from-rxe.md` with this title.
pub fn differences_from_rxe(title: &str) -> String {
    let path = path("differences-from-rxe.md");
    let document = read(&path);
    let found = chapter(&document, title);
    found.unwrap_or_else(|| panic!("{}: no chapter \"{title}\"", path.display())).1.to_owned()
}

/// Compares the body of a chapter with `body`. If `FERROCE_UPDATE_DOCS` is set, writes it instead; tests that write the
/// same document must not run at the same time. `command` regenerates the chapter.
pub fn keep(name: &str, title: &str, body: &str, command: &str) {
    let path = path(name);
    let document = read(&path);
    let (before, found, after) = chapter(&document, title)
        .unwrap_or_else(|| panic!("{}: no chapter \"{title}\"", path.display()));
    let between = if after.is_empty() { "" } else { "\n" };
    let wanted = format!("## {title}\n{body}{between}");
    if env::var_os("FERROCE_UPDATE_DOCS").is_some() {
        fs::write(&path, format!("{before}{wanted}{after}"))
            .unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        return;
    }
    let differs = found.lines().zip(wanted.lines()).find(|(old, new)| old != new);
    assert!(
        found == wanted,
        "docs/{name}, chapter \"{title}\", is out of date; first difference (document, code):\n{differs:#?}\n\
         regenerate it with FERROCE_UPDATE_DOCS=1 {command}"
    );
}

/// Returns the titles of the allowed differences in a chapter: its level-4 headings.
pub fn titles(chapter: &str) -> Vec<&str> {
    chapter.lines().filter_map(|line| line.strip_prefix("#### ")).collect()
}
