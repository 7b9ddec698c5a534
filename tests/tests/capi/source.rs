//! Lists parsed from the source of `crates/capi`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

fn read(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../crates/capi/src").join(name);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A symbol of the list in `export.rs`.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) version: String,
    pub(crate) name: String,
    /// The module and function that implement it.
    pub(crate) leads_to: String,
}

/// Returns the list of exports.
pub(crate) fn symbols() -> Vec<Symbol> {
    let source = read("export.rs");
    let list = source.split_once("exports! {\n").expect("the list of exports").1;
    let mut version = String::new();
    let mut symbols = Vec::new();
    for line in list.lines().map(str::trim) {
        if let Some((name, _)) = line.strip_prefix('"').and_then(|rest| rest.split_once("\" {")) {
            version = name.to_owned();
        } else if let Some((name, function)) = line.split_once(" => ") {
            symbols.push(Symbol {
                version: version.clone(),
                name: name.to_owned(),
                leads_to: function.split(['(', ';']).next().unwrap_or_default().to_owned(),
            });
        }
    }
    symbols
}

/// Returns the functions of `verbs/refuse.rs`, and their documented results.
pub(crate) fn refusals() -> BTreeMap<String, String> {
    let source = read("verbs/refuse.rs");
    let mut said = None;
    let mut found = BTreeMap::new();
    for line in source.lines() {
        if let Some(words) = line.strip_prefix("/// Matrix: ") {
            said = Some(words.to_owned());
        } else if let Some((_, rest)) = line.split_once("extern \"C\" fn ") {
            let name = rest.split('(').next().unwrap_or_default();
            let words = said.take().unwrap_or_else(|| panic!("refuse::{name} has no line Matrix"));
            found.insert(format!("refuse::{name}"), words);
        }
    }
    found
}

/// Returns the verbs that the header calls through tables of the context, and whether they are implemented.
pub(crate) fn verbs() -> BTreeMap<String, bool> {
    let (layout, context) = (read("abi/context.rs"), read("verbs/context.rs"));
    let fields = layout.lines().filter_map(|line| line.strip_prefix("        "));
    let mut verbs = BTreeMap::new();
    for (name, kind) in fields.filter_map(|line| line.split_once(": ")) {
        let is_verb = kind.starts_with("Absent") || kind.starts_with("Function");
        let is_hole = ["_compat", "placeholder", "private"].iter().any(|it| name.starts_with(it));
        if is_verb && !is_hole {
            verbs.insert(format!("ibv_{name}"), context.contains(&format!(" {name}: Some(")));
        }
    }
    verbs
}
