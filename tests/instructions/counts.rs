//! The committed counts, and the build that they belong to.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

#[derive(Debug, PartialEq)]
pub(crate) struct Counts {
    compiler: String,
    profile: String,
    valgrind: String,
    pub(crate) rows: BTreeMap<String, u64>,
}

impl Counts {
    /// No counts yet, of the compiler, profile and valgrind in use.
    pub(crate) fn of_this_build() -> Self {
        let profile = if cfg!(debug_assertions) { "dev" } else { "release" };
        let profile = profile.to_owned();
        let (compiler, valgrind) = (version("rustc"), version("valgrind"));
        Self { compiler, profile, valgrind, rows: BTreeMap::new() }
    }

    pub(crate) fn same_build(&self, other: &Self) -> bool {
        self.compiler == other.compiler && self.profile == other.profile
    }

    pub(crate) fn read(path: &Path) -> Option<Self> {
        let value: Value = serde_json::from_str(&std::fs::read_to_string(path).ok()?).ok()?;
        let text = |name: &str| value[name].as_str().map(str::to_owned);
        let rows = value["rows"].as_object()?.iter();
        let rows = rows.filter_map(|(name, count)| Some((name.clone(), count.as_u64()?)));
        Some(Self {
            compiler: text("compiler")?,
            profile: text("profile")?,
            valgrind: text("valgrind")?,
            rows: rows.collect(),
        })
    }

    pub(crate) fn write(&self, path: &Path) -> std::io::Result<()> {
        let Self { compiler, profile, valgrind, rows } = self;
        let value =
            json!({ "compiler": compiler, "profile": profile, "valgrind": valgrind, "rows": rows });
        std::fs::write(path, serde_json::to_string_pretty(&value)? + "\n")
    }
}

fn version(program: &str) -> String {
    let output = Command::new(program).arg("--version").output();
    let output = output.map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned());
    output.unwrap_or_else(|_| "unknown".to_owned())
}
