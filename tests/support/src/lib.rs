//! Support for test binaries that open sockets.
//!
//! - [`namespace`]: before `main`, the process enters its own network namespace, with the loopback up.
//! - [`skip`]: reports that a test cannot run here; fails it where everything is required.
//! - [`browser`]: a real browser for web pages.
//! - [`built`]: the command and the libraries that tests run.
//! - [`notes`]: records skips and missing isolation in a file, which `scripts/test` summarises.
//!
//! A binary that uses none of the functions links it with `use ferroce_test_support as _;`. See
//! `docs/adr/0011-isolated-tests.md`.
#![deny(unsafe_code)]

pub mod browser;
pub mod built;
pub mod namespace;
pub mod notes;

use std::env;
use std::fmt::Display;
use std::path::PathBuf;

/// Whether a test that cannot run here fails: `FERROCE_REQUIRE_ALL` is 1, or `CI` is set and `FERROCE_REQUIRE_ALL` is
/// not 0.
pub fn all_required() -> bool {
    let set = |name: &str| env::var(name).ok().filter(|value| !value.is_empty());
    match set("FERROCE_REQUIRE_ALL") {
        Some(value) => value != "0",
        None => set("CI").is_some_and(|value| value != "0" && value != "false"),
    }
}

/// Records that the current test, or a part of it, does not run here, and why. The caller returns afterwards.
///
/// # Panics
/// Where everything is required: see [`all_required`].
pub fn skip(reason: impl Display) {
    assert!(!all_required(), "cannot run here, and CI or FERROCE_REQUIRE_ALL is set: {reason}");
    eprintln!("SKIPPED: {reason}");
    notes::add(notes::Kind::Skipped, &reason.to_string());
}

/// Returns the path of a program in `PATH`. Returns `None`, after a [`skip`], if it is not installed.
pub fn find_program(name: &str) -> Option<PathBuf> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path).map(|folder| folder.join(name)).find(|path| path.is_file());
    if found.is_none() {
        skip(format_args!("{name} is not installed: run `make setup`"));
    }
    found
}
