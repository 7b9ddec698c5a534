//! Documents that tests keep in step with themselves.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};

fn path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name)
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Where the chapter of this title, of the second level, is in a document.
fn chapter<'a>(document: &'a str, title: &str) -> Option<(&'a str, &'a str, &'a str)> {
    let mark = format!("## {title}\n");
    let start = document.match_indices(&mark).map(|(index, _)| index);
    let start = start.into_iter().find(|&at| at == 0 || document[..at].ends_with('\n'))?;
    let (before, rest) = document.split_at(start);
    let length = rest.find("\n## ").map_or(rest.len(), |index| index + 1);
    let (chapter, after) = rest.split_at(length);
    Some((before, chapter, after))
}

/// A chapter of `docs/differences-from-rxe.md`: all from its title, of the second level, to the next.
pub fn differences_from_rxe(title: &str) -> String {
    let path = path("differences-from-rxe.md");
    let document = read(&path);
    let found = chapter(&document, title);
    found.unwrap_or_else(|| panic!("{}: no chapter \"{title}\"", path.display())).1.to_owned()
}

/// Compares a chapter of a document with what it should be, its title excepted. With `FERROCE_UPDATE_DOCS` in the
/// environment, writes it there instead: chapters are written one after the other then, `command` says how.
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
        "docs/{name}, \"{title}\", is not as it is now: it differs first at (document, now)\n{differs:#?}\n\
         FERROCE_UPDATE_DOCS=1 {command} writes it anew"
    );
}

/// The titles of the allowed differences in a chapter: those of the fourth level.
pub fn titles(chapter: &str) -> Vec<&str> {
    chapter.lines().filter_map(|line| line.strip_prefix("#### ")).collect()
}
