//! C programs, compiled with Debian's headers and linked with our libraries, which also checks that our structures
//! match the headers.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{self, Command};

use ferroce_test_support::skip;

use crate::{libraries, tool};

/// Compiles sources, whose paths are relative to this package, to a program. Returns `None`, after a skip, if a header
/// that they include is not installed.
pub fn compile(name: &str, sources: &[impl AsRef<Path>], header: &str) -> Option<PathBuf> {
    if !Path::new("/usr/include").join(header).is_file() {
        let package = if header.starts_with("rdma/") { "librdmacm-dev" } else { "libibverbs-dev" };
        skip(format_args!("{package} is not installed: run `make setup`"));
        return None;
    }
    let package = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = libraries::temporary().join(name);
    // Tests are processes, which may compile at the same time: each renames a complete program into place.
    let new = path.with_extension(process::id().to_string());
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]);
    // Omitted fields of tables are zero on purpose.
    compiler
        .arg("-Wno-missing-field-initializers")
        .arg("-I")
        .arg(package.join("c"))
        .arg("-o")
        .arg(&new);
    compiler.args(sources.iter().map(|source| package.join(source)));
    compiler.arg("-Wl,--as-needed").arg("-L").arg(libraries::folder());
    tool::run(compiler.args(["-lrdmacm", "-libverbs", "-ldl", "-pthread"]));
    fs::rename(&new, &path).expect("the program in its place");
    Some(path)
}

/// Compiles a source to a library for `LD_PRELOAD`.
pub fn preload(name: &str, source: &str) -> PathBuf {
    let path = libraries::temporary().join(name).with_extension("so");
    let new = path.with_extension(process::id().to_string());
    let mut compiler = Command::new("cc");
    compiler.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-o"]);
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(source);
    tool::run(compiler.arg(&new).arg(source).arg("-ldl"));
    fs::rename(&new, &path).expect("the library in its place");
    path
}

/// Returns a command for such a program with our libraries.
pub fn command(program: &Path) -> Command {
    let mut command = Command::new(program);
    libraries::give(&mut command);
    command
}
