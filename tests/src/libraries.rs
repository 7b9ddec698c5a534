//! Our libibverbs and librdmacm, in a folder of their own, and programs that run on them.

use std::env;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;

/// What the surroundings set for Ferroce is not for the programs of tests.
const NOT_FOR_THEM: [&str; 5] =
    ["FERROCE_CAPTURE", "FERROCE_DEVICES", "FERROCE_FAULTS", "FERROCE_TRACE", "FERROCE_RUN"];

/// A folder for files of tests, which stays: cargo's `CARGO_TARGET_TMPDIR`, which only the tests themselves are told of.
pub(crate) fn temporary() -> PathBuf {
    // A test is TARGET/PROFILE/deps/NAME.
    let test = env::current_exe().expect("this program has a path");
    test.ancestors().nth(3).expect("cargo has started this program").join("tmp")
}

/// The folder, after they are built.
pub fn folder() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = temporary().join("libraries");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../scripts/libraries");
        let built = Command::new(script).arg(&folder).arg("dev").status();
        assert!(built.expect("the script runs").success(), "the libraries are built");
        folder
    })
}

/// Has a command run on our libraries.
pub fn give(command: &mut Command) -> &mut Command {
    for name in NOT_FOR_THEM {
        command.env_remove(name);
    }
    command.env("LD_LIBRARY_PATH", folder()).stdin(Stdio::null())
}

/// A program of the system's, with our libraries. `None`, and a word about it, when it is not installed.
pub fn program(name: &str) -> Option<Command> {
    let found = env::split_paths(&env::var_os("PATH")?)
        .map(|folder| folder.join(name))
        .find(|path| path.is_file());
    let Some(path) = found else {
        eprintln!("SKIPPED: {name} is not installed: run `make setup`");
        return None;
    };
    let mut command = Command::new(path);
    give(&mut command);
    Some(command)
}
