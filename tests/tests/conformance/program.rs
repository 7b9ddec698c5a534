//! The program, compiled from `tests/conformance`.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use ferroce_tests::{c, libraries};

/// Returns its path. Returns `None`, after a skip, where it cannot be compiled.
pub(crate) fn file() -> Option<&'static Path> {
    static PATH: OnceLock<Option<PathBuf>> = OnceLock::new();
    let path = PATH.get_or_init(|| {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
        let files = fs::read_dir(&folder).expect("the program's source");
        let files = files.map(|file| file.expect("a file").path());
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
        c::compile("conformance", &files.collect::<Vec<_>>(), "infiniband/verbs.h")
    });
    path.as_deref()
}

/// Adds the arguments of a side that uses our library and has this address.
pub(crate) fn ours(command: &mut Command, address: IpAddr, arguments: &str) {
    libraries::give(command).args(["-a", &address.to_string()]).args(arguments.split_whitespace());
}
