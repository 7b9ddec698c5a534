//! Documents that tests keep in step with themselves.

use std::fs;
use std::path::Path;

/// A chapter of `docs/differences-from-rxe.md`: all from its title, of the second level, to the next.
pub fn differences_from_rxe(title: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/differences-from-rxe.md");
    let document = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let start = format!("## {title}\n");
    let chapters = document.split_inclusive('\n').skip_while(|line| *line != start);
    let (first, rest) = (chapters.clone().take(1), chapters.skip(1));
    let chapter: String = first.chain(rest.take_while(|line| !line.starts_with("## "))).collect();
    assert!(!chapter.is_empty(), "{}: no chapter \"{title}\"", path.display());
    chapter
}

/// The titles of the allowed differences in a chapter: those of the fourth level.
pub fn titles(chapter: &str) -> Vec<&str> {
    chapter.lines().filter_map(|line| line.strip_prefix("#### ")).collect()
}
