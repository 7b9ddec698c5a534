//! Our libraries, in a folder of their own.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// The folder, after they are built.
pub(crate) fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("libraries");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/libraries");
        let built = Command::new(script).arg(&folder).arg("dev").status();
        assert!(built.expect("the script runs").success(), "the libraries are built");
        folder
    })
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
    command.env_remove("FERROCE_CAPTURE").env_remove("FERROCE_FAULTS");
    Some(command)
}
