//! Programs under `ferroce run --sockets`, and what a capture says of them.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferroce_test_support::{built, find_program};
use ferroce_tests::capture;
use ferroce_tests::running::{Running, listens};

/// Beyond what anything here takes on a busy machine.
pub(crate) const LIMIT: Duration = Duration::from_secs(100);

/// A folder of a test's own, removed with this.
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

    /// A file that nothing compresses or repeats.
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

/// A program with its arguments. `None`, after a skip, when it is not installed.
pub(crate) fn program(line: &str) -> Option<Command> {
    let mut words = line.split_whitespace();
    let mut command = Command::new(find_program(words.next()?)?);
    command.args(words);
    Some(plain(command))
}

/// Without what the surroundings set for Ferroce or the dynamic linker.
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

/// The same program under `ferroce run --sockets`, with a capture of its packets if that is wanted. It waits for the
/// server's answer however busy the machine is.
pub(crate) fn over_rdma(program: &Command, capture: Option<&Path>) -> Command {
    let mut command = with_sockets(program, capture);
    command.env("FERROCE_SOCKETS_WAIT", LIMIT.as_millis().to_string());
    command
}

/// The same, and it waits as long as is usual.
pub(crate) fn with_sockets(program: &Command, capture: Option<&Path>) -> Command {
    let mut command = Command::new(built::folder().join("ferroce"));
    command.args(["run", "--sockets"]);
    command.args(capture.map(|path| format!("--capture={}", path.display())));
    command.arg("--").arg(program.get_program()).args(program.get_args());
    plain(command)
}

/// Starts a server, and waits until it listens. By then it listens for RDMA, too.
pub(crate) fn serve(command: Command, port: u16) -> Running {
    let mut server = Running::start_group(command);
    server.wait_until(|server| listens(server.id(), port), Instant::now() + LIMIT);
    assert!(server.status().is_none(), "the server has ended: {}", server.finish(Instant::now()));
    server
}

/// Runs a client to its good end, and returns what it printed.
pub(crate) fn finish(command: Command) -> String {
    Running::start_group(command).finish(Instant::now() + LIMIT)
}

/// Bytes of RDMA writes in a capture, headers not counted. A capture under load may miss packets, so this is at most
/// what was sent; over TCP it is 0.
pub(crate) fn written_bytes(path: &Path) -> usize {
    // Nothing was captured where no device was used.
    if !path.exists() {
        return 0;
    }
    let all = capture::read(path);
    let packets = all.iter().map(|recorded| recorded.frame().1.packet.expect("a packet"));
    packets.filter(|packet| packet.extensions.deth.is_none()).map(|one| one.payload.len()).sum()
}

/// Fails unless a good part of this many bytes went by RDMA.
pub(crate) fn assert_rdma(path: &Path, bytes: usize) {
    let written = written_bytes(path);
    assert!(written > bytes / 4, "{written} bytes by RDMA, of {bytes}");
}
