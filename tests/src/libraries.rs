//! Our libibverbs and librdmacm in their own folder, and programs that run on them.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use ferroce_test_support::{built, find_program};

/// Variables of the environment that must not reach the programs of tests.
const REMOVED_VARIABLES: [&str; 5] =
    ["FERROCE_CAPTURE", "FERROCE_DEVICES", "FERROCE_FAULTS", "FERROCE_TRACE", "FERROCE_RUN"];

/// Returns a persistent folder for test files: cargo's `CARGO_TARGET_TMPDIR`, which cargo sets only for the tests
/// themselves.
pub(crate) fn temporary() -> PathBuf {
    built::folder().parent().expect("it is in the target folder").join("tmp")
}

/// Returns the folder for `LD_LIBRARY_PATH`. All library names are links to one file, so that it is loaded once and
/// shares its state.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = temporary().join("libraries");
        fs::create_dir_all(&folder).expect("a folder for the libraries");
        for name in ["libibverbs.so.1", "libibverbs.so", "librdmacm.so.1", "librdmacm.so"] {
            let file = built::folder().join("libferroce_capi.so");
            let link = folder.join(name);
            if fs::read_link(&link).is_ok_and(|found| found == file) {
                continue;
            }
            // Renamed atomically: other tests do the same, and their programs must not find the system's library.
            let new = folder.join(format!(".{name}.{}", std::process::id()));
            let _ = fs::remove_file(&new);
            symlink(&file, &new).expect("a link to the library");
            fs::rename(&new, &link).expect("the link in its place");
        }
        folder
    })
}

/// Makes a command run on our libraries.
pub fn give(command: &mut Command) -> &mut Command {
    for name in REMOVED_VARIABLES {
        command.env_remove(name);
    }
    command.env("LD_LIBRARY_PATH", folder()).stdin(Stdio::null())
}

/// Returns a system program with our libraries. Returns `None`, after a skip, if it is not installed.
pub fn program(name: &str) -> Option<Command> {
    let mut command = Command::new(find_program(name)?);
    give(&mut command);
    Some(command)
}
