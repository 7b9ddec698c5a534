//! Programs in C, compiled with Debian's own header, linked with our library.

use std::path::{Path, PathBuf};
use std::process::Command;

use ferroce_tests::tool;

use super::libraries;

/// Compiles `tests/capi/NAME.c`. `None`, and a word about it, where the header is not installed.
pub(crate) fn compile(name: &str) -> Option<PathBuf> {
    if !Path::new("/usr/include/infiniband/verbs.h").exists() {
        eprintln!("SKIPPED: libibverbs-dev is not installed: run `make setup`");
        return None;
    }
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("capi").join(name).with_extension("c");
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let mut command = Command::new("cc");
    command.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-o"]);
    command.arg(&program).arg(source).arg("-L").arg(libraries::folder());
    tool::run(command.args(["-libverbs", "-ldl", "-pthread"]));
    Some(program)
}

/// It, with our libraries.
pub(crate) fn command(program: &Path) -> Command {
    libraries::program(&program.to_string_lossy()).expect("it was compiled")
}
