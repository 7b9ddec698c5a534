//! Programs under `ferroce run --sockets`, and the RDMA bytes in their captures.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferroce_test_support::{built, find_program};
use ferroce_tests::capture;
use ferroce_tests::running::{Running, listens};

/// Longer than any program here takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(100);

/// A test's own folder, removed when this is dropped.
pub(crate) struct Folder(PathBuf);

impl Folder {
    pub(crate) fn new(test: &str) -> Self {
        let name = format!("sockets-{test}-{}", std::process::id());
        let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
        fs::create_dir_all(&path).expect("a folder");
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Writes a file of incompressible data.
    pub(crate) fn write(&self, name: &str, length: usize) -> Vec<u8> {
        let words = (0..length as u32 / 4).map(|one| one.wrapping_mul(2_654_435_761));
        let data: Vec<u8> = words.flat_map(u32::to_le_bytes).collect();
        fs::write(self.path(name), &data).expect("the file is written");
        data
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a program with its arguments. Returns `None`, after a skip, if it is not installed.
pub(crate) fn program(line: &str) -> Option<Command> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(find_program(words.next()?)?);
    command.args(words);
    Some(plain(command))
}

/// Removes variables of the environment for Ferroce and the dynamic linker.
fn plain(mut command: Command) -> Command {
    for name in ["FERROCE_LIB", "FERROCE_DEVICES", "FERROCE_CAPTURE", "FERROCE_TRACE"] {
        command.env_remove(name);
    }
    for name in ["FERROCE_SOCKETS_WAIT", "LD_PRELOAD", "LD_LIBRARY_PATH", "http_proxy", "ALL_PROXY"]
    {
        command.env_remove(name);
    }
    command.stdin(Stdio::null());
    command
}

/// Wraps a program in `ferroce run --sockets`, with a capture if requested. It waits for the server's response however
/// busy the machine is.
pub(crate) fn over_rdma(program: &Command, capture: Option<&Path>) -> Command {
    let mut command = with_sockets(program, capture);
    command.env("FERROCE_SOCKETS_WAIT", LIMIT.as_millis().to_string());
    command
}

/// The same, with the default timeout for the server's response.
pub(crate) fn with_sockets(program: &Command, capture: Option<&Path>) -> Command {
    let mut command = Command::new(built::folder().join("ferroce"));
    command.args(["run", "--sockets"]);
    command.args(capture.map(|path| format!("--capture={}", path.display())));
    command.arg("--").arg(program.get_program()).args(program.get_args());
    plain(command)
}

/// Starts a server, and waits until it listens. By then it also listens for RDMA.
pub(crate) fn serve(command: Command, port: u16) -> Running {
    let mut server = Running::start_group(command);
    server.wait_until(|server| listens(server.id(), port), Instant::now() + LIMIT);
    assert!(server.status().is_none(), "the server has ended: {}", server.finish(Instant::now()));
    server
}

/// Runs a client to its successful exit, and returns its output.
pub(crate) fn finish(command: Command) -> String {
    Running::start_group(command).finish(Instant::now() + LIMIT)
}

/// Returns the payload bytes of RDMA WRITEs in a capture. A capture under load may miss packets, so this is at most
/// what was sent; over TCP it is 0.
pub(crate) fn written_bytes(path: &Path) -> usize {
    // If no device was used, there is no capture.
    if !path.exists() {
        return 0;
    }
    let all = capture::read(path);
    let packets = all.iter().map(|recorded| recorded.frame().1.packet.expect("a packet"));
    packets.filter(|packet| packet.extensions.deth.is_none()).map(|one| one.payload.len()).sum()
}

/// Asserts that at least a quarter of this many bytes were sent by RDMA.
pub(crate) fn assert_rdma(path: &Path, bytes: usize) {
    let written = written_bytes(path);
    assert!(written > bytes / 4, "{written} bytes by RDMA, of {bytes}");
}
