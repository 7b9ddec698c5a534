//! Ferroce's own variables and libraries.

use crate::doctor::finding::Finding;
use crate::doctor::system::System;

/// All variables that users may set, and those that `ferroce run` sets.
const KNOWN: [&str; 19] = [
    "FERROCE_CAPTURE",
    "FERROCE_CAPTURE_POLICY",
    "FERROCE_DEVICES",
    "FERROCE_FAULTS",
    "FERROCE_KEEPALIVE",
    "FERROCE_LEDGER",
    "FERROCE_LIB",
    "FERROCE_LOCAL",
    "FERROCE_LOG",
    "FERROCE_NAME",
    "FERROCE_RUN",
    "FERROCE_SHARDS",
    "FERROCE_SOCKETS_WAIT",
    "FERROCE_TOLD",
    "FERROCE_TRACE",
    "FERROCE_VERBS",
    "FERROCE_VIEW",
    "FERROCE_WATCH",
    "FERROCE_REQUIRE_ALL",
];

/// Prefixes of the variables of Ferroce's own tests.
const TESTS: [&str; 3] = ["FERROCE_TEST_", "FERROCE_NET_", "FERROCE_UPDATE_"];

/// Missing libraries are a problem if a program is to be run on Ferroce's devices; Rust programs and this command need none.
pub(super) fn check(system: &System, needs_libraries: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(libraries(system, needs_libraries));
    if let Some(faults) = system.variable("FERROCE_FAULTS") {
        findings.push(
            Finding::warning(
                "environment.faults",
                format!(
                    "FERROCE_FAULTS={faults}: devices drop, duplicate or damage packets on purpose"
                ),
            )
            .fix("unset FERROCE_FAULTS unless you test how programs cope with a bad network"),
        );
    }
    if let Some(path) = system.variable("FERROCE_CAPTURE") {
        findings.push(
            Finding::note("environment.capture", format!("FERROCE_CAPTURE={path}: every packet is recorded, which costs speed and disk space"))
                .fix("unset FERROCE_CAPTURE when you measure"),
        );
    }
    let is_known =
        |name: &str| KNOWN.contains(&name) || TESTS.iter().any(|prefix| name.starts_with(prefix));
    let unknown = system.environment.keys().filter(|name| name.starts_with("FERROCE_"));
    for name in unknown.filter(|name| !is_known(name)) {
        findings.push(
            Finding::warning("environment.unknown", format!("{name} is set, but Ferroce has no variable of that name"))
                .fix("correct or unset it; `ferroce help` and the documentation of ferroce::Options list them")
                .about(name.as_str()),
        );
    }
    findings
}

fn libraries(system: &System, needed: bool) -> Option<Finding> {
    const ID: &str = "libraries.found";
    Some(match system.libraries.as_ref()? {
        Ok(folder) => Finding::ok(ID, format!("`ferroce run` finds its libraries in {folder}")),
        Err(error) => {
            let (what, fix) = error.split_once(": ").unwrap_or((error, "build them"));
            let text = format!("`ferroce run` cannot work: {what}");
            let finding =
                if needed { Finding::problem(ID, text) } else { Finding::warning(ID, text) };
            finding.fix(fix)
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;
    use std::path::Path;

    use super::*;

    /// Names in quotes that start as our variables do.
    fn names(folder: &Path, found: &mut BTreeSet<String>) {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                names(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&path).unwrap();
                let parts = text.split('"').filter(|part| part.starts_with("FERROCE_"));
                let is_name = |part: &&str| {
                    part.bytes().all(|byte| byte.is_ascii_uppercase() || byte == b'_')
                };
                found.extend(parts.filter(is_name).map(str::to_owned));
            }
        }
    }

    #[test]
    fn every_variable_in_the_code_is_known() {
        let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        let mut found = BTreeSet::new();
        for entry in fs::read_dir(crates).unwrap() {
            let source = entry.unwrap().path().join("src");
            if source.is_dir() {
                names(&source, &mut found);
            }
        }
        // Spelled wrongly on purpose in the tests of this check, and the prefix itself.
        found.remove("FERROCE_CAPUTRE");
        found.remove("FERROCE_");
        found.retain(|name| !TESTS.iter().any(|prefix| name.starts_with(prefix)));
        let unknown: Vec<_> = found.iter().filter(|name| !KNOWN.contains(&name.as_str())).collect();
        assert!(unknown.is_empty(), "add to KNOWN: {unknown:?}");
        assert!(found.len() > 10, "{found:?}");
    }
}
