//! The program, compiled from `tests/conformance`.

use std::fs;
use std::net::{IpAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{self, Command, Stdio};
use std::sync::OnceLock;

use ferroce_tests::{libraries, tool};

fn path() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("conformance");
        let files = fs::read_dir(&source).expect("the program's source");
        let files = files.map(|file| file.expect("a file").path());
        let files = files.filter(|path| path.extension().is_some_and(|extension| extension == "c"));
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("conformance");
        // Tests are processes, which may compile at the same time: each puts a whole program in place.
        let new = path.with_extension(process::id().to_string());
        let mut compiler = Command::new("cc");
        compiler.args(["-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror"]);
        // What a table does not say is zero, and meant to be.
        compiler.arg("-Wno-missing-field-initializers").arg("-o").arg(&new);
        tool::run(compiler.args(files).arg("-libverbs"));
        fs::rename(&new, &path).expect("the program in its place");
        path
    })
}

/// The program's file.
pub(crate) fn bytes() -> Vec<u8> {
    fs::read(path()).expect("the program")
}

/// A side that uses our library and has the address.
pub(crate) fn ours(address: IpAddr, arguments: &str) -> Command {
    let mut command = Command::new(path());
    with_ours(&mut command, address, arguments);
    command
}

/// The same, by a command that starts another.
pub(crate) fn with_ours(command: &mut Command, address: IpAddr, arguments: &str) {
    command.args(["-a", &address.to_string()]).args(arguments.split_whitespace());
    command
        .env("LD_LIBRARY_PATH", libraries::folder(env!("CARGO_TARGET_TMPDIR")))
        .stdin(Stdio::null());
    command.env_remove("FERROCE_CAPTURE").env_remove("FERROCE_FAULTS");
}

/// Where the program is, for a command that starts another.
pub(crate) fn file() -> &'static Path {
    path()
}

/// A port that nobody listens on.
pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind("[::]:0").or_else(|_| TcpListener::bind("0.0.0.0:0"));
    listener.and_then(|listener| listener.local_addr()).expect("there is a port").port()
}
