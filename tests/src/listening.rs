//! Detects when a librdmacm program listens: `tests/c/listening.c`, preloaded into it, shows its listeners in the table
//! of Unix sockets.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use crate::c;

/// Returns the library to preload.
pub fn library() -> &'static Path {
    static PATH: OnceLock<PathBuf> = OnceLock::new();
    PATH.get_or_init(|| c::preload("listening", "c/listening.c"))
}

/// Makes a program announce its listeners.
pub fn announce(command: &mut Command) -> &mut Command {
    command.env("LD_PRELOAD", library())
}

/// Makes a server listen as soon as it has bound a port.
pub fn at_once(command: &mut Command) -> &mut Command {
    announce(command).env("FERROCE_TEST_LISTEN_AT_ONCE", "1")
}

/// Makes a client wait for this many listeners on a port, one for each of its connections.
pub fn await_listeners(command: &mut Command, port: u16, listeners: u32) -> &mut Command {
    announce(command).env("FERROCE_TEST_LISTENERS", format!("{port}:{listeners}"))
}

/// Returns the value of `LD_PRELOAD` for this and another library.
pub fn and(other: &Path) -> String {
    format!("{}:{}", library().display(), other.display())
}

/// Returns the entry of a listener in the namespace's table of Unix sockets.
pub fn entry(port: u16) -> String {
    format!("@ferroce-test/listening/{port}/1")
}

/// Whether a program in a process's network namespace listens on a port.
pub fn is_announced(process: u32, port: u16) -> bool {
    let table = fs::read_to_string(format!("/proc/{process}/net/unix")).unwrap_or_default();
    let entry = entry(port);
    table.lines().any(|line| line.ends_with(&entry))
}
