//! Checks the documents: the files that the glossary names exist, and so do the targets of relative links.

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// Returns the Markdown files of the repository's root and of the folders with documents.
fn documents() -> Vec<PathBuf> {
    let folders =
        ["", "docs", "docs/adr", "examples/c", "contrib"].map(|folder| root().join(folder));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("a folder"));
    let paths = entries.map(|entry| entry.expect("an entry").path());
    paths.filter(|path| path.extension().is_some_and(|extension| extension == "md")).collect()
}

/// Removes fenced code blocks, whose brackets are not links.
fn without_code(text: &str) -> String {
    let parts = text.split("```").enumerate();
    parts.filter(|(index, _)| index % 2 == 0).map(|(_, part)| part).collect()
}

/// Returns the targets of the links in a text: the parts between `](` and `)`.
fn links(text: &str) -> Vec<&str> {
    let starts = text.split("](").skip(1);
    starts.filter_map(|start| start.split_once(')')).map(|(target, _)| target).collect()
}

/// Returns the anchor that a renderer gives a heading: lower case, hyphens for spaces, no punctuation.
fn anchor(heading: &str) -> String {
    let kept = heading.chars().filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'));
    kept.collect::<String>().to_lowercase().replace(' ', "-")
}

fn has_anchor(text: &str, wanted: &str) -> bool {
    let headings = text.lines().filter(|line| line.starts_with('#'));
    headings.map(|line| line.trim_start_matches('#').trim()).any(|title| anchor(title) == wanted)
}

#[test]
fn the_files_that_the_glossary_names_exist() {
    let text = read(&root().join("docs/glossary.md"));
    let quoted = text.split('`').skip(1).step_by(2);
    let paths: Vec<_> = quoted.filter(|word| word.starts_with("crates/")).collect();
    assert!(paths.len() > 50, "only {} paths found", paths.len());
    let missing: Vec<_> = paths.iter().filter(|path| !root().join(path).exists()).collect();
    assert!(missing.is_empty(), "docs/glossary.md names files that do not exist: {missing:#?}");
}

#[test]
fn the_targets_of_relative_links_exist() {
    let mut broken = Vec::new();
    for document in documents() {
        let text = without_code(&read(&document));
        let folder = document.parent().expect("a folder");
        for link in links(&text).into_iter().filter(|link| !link.contains("://")) {
            let (path, heading) = link.split_once('#').unwrap_or((link, ""));
            let target = if path.is_empty() { document.clone() } else { folder.join(path) };
            let found =
                target.exists() && (heading.is_empty() || has_anchor(&read(&target), heading));
            if !found {
                broken.push(format!("{}: {link}", document.display()));
            }
        }
    }
    assert!(broken.is_empty(), "broken links: {broken:#?}");
}
