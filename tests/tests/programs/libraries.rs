//! Our libraries, in a folder of their own.

use std::path::Path;
use std::process::{Command, Stdio};

/// The folder, after they are built.
pub(crate) fn folder() -> &'static Path {
    ferroce_tests::libraries::folder(env!("CARGO_TARGET_TMPDIR"))
}

/// A program of the system's, with our libraries. `None`, and a word about it, when it is not installed.
pub(crate) fn program(name: &str) -> Option<Command> {
    let found = std::env::split_paths(&std::env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    let Some(path) = found else {
        eprintln!("SKIPPED: {name} is not installed: run `make setup`");
        return None;
    };
    let mut command = Command::new(path);
    command.env("LD_LIBRARY_PATH", folder()).stdin(Stdio::null());
    // What the surroundings set for Ferroce is not for these.
    for name in ["FERROCE_CAPTURE", "FERROCE_FAULTS", "FERROCE_TRACE", "FERROCE_RUN"] {
        command.env_remove(name);
    }
    Some(command)
}
