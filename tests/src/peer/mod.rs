//! Linux's `rdma_rxe` as a peer: machines in QEMU on a bridge, beside a network namespace for our side.
//!
//! A [`Peer`] is one such network and everything that runs on it. `tests/peer/peer` starts it and documents the
//! details; this is its Rust interface. When a `Peer` is dropped, or its process ends in any way, everything it started
//! ends. See `docs/interop.md`.

mod capture;
mod diagnosis;
mod error;
mod machine;
mod supervisor;

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_test_support::skip;

pub use capture::Capture;
pub use error::Error;
pub use machine::{Direction, Machine, Output, Remote};
use supervisor::{Started, Supervisor};

/// The address of our side.
pub const OUR_V4: Ipv4Addr = Ipv4Addr::new(10, 47, 91, 1);
/// The address of our side.
pub const OUR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x4791, 0, 0, 0, 0, 0, 1);
/// The network interface of our side.
pub const OUR_INTERFACE: &str = "eth0";

/// Set in the environment of a test that runs on our side.
const INSIDE: &str = "FERROCE_PEER_INSIDE";

/// Whether this process was started by [`Peer::test_here`].
pub fn inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// The parameters of a network.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Machines that run `rdma_rxe`, 1 to 9.
    pub machines: u8,
    /// The Ethernet MTU: 1500 for RoCE's path MTU of 1024, 4200 or more for 4096. At most 9000.
    pub mtu: u16,
    /// The timeout for starting the machines. Usually they take seconds; on a busy computer longer.
    pub limit: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self { machines: 1, mtu: 4200, limit: Duration::from_secs(120) }
    }
}

/// A network with machines on it that run `rdma_rxe`.
#[derive(Debug)]
pub struct Peer {
    supervisor: Supervisor,
    machines: Vec<Machine>,
    state: State,
}

/// The state file of the running fabric.
#[derive(Debug)]
struct State {
    /// A process in our side's network namespace.
    ours: u32,
    /// A process in the bridge's network namespace, the first of all processes.
    fabric: u32,
    /// The folder of the image.
    image: PathBuf,
}

impl Peer {
    /// Starts a network and waits until its machines can be used.
    ///
    /// Returns `None`, after a skip, where this is not possible: without root or without QEMU, for example.
    pub fn start(options: Options) -> Result<Option<Self>, Error> {
        let supervisor = match Supervisor::start(&options)? {
            Started::Running(supervisor) => supervisor,
            Started::Skipped(reason) => {
                // The lines before may be the whole log of a download.
                skip(reason.lines().last().unwrap_or("no peer can be started here"));
                return Ok(None);
            }
        };
        let state = State::read(supervisor.folder())?;
        let machines =
            (1..=options.machines).map(|number| Machine::new(number, state.fabric, &state.image));
        Ok(Some(Self { machines: machines.collect(), supervisor, state }))
    }

    /// Returns a machine, counted from 1. Panics if it does not exist.
    pub fn machine(&self, number: usize) -> &Machine {
        let machine = number.checked_sub(1).and_then(|index| self.machines.get(index));
        machine.unwrap_or_else(|| {
            panic!("there are {} machines, but no machine {number}", self.machines.len())
        })
    }

    /// Runs a shell command in the first machine: see [`Machine::run`].
    pub fn run(&self, line: &str) -> Result<Output, Error> {
        self.machine(1).run(line)
    }

    /// Starts a shell command in the first machine: see [`Machine::spawn`].
    pub fn spawn(&self, line: &str) -> Result<Remote, Error> {
        self.machine(1).spawn(line)
    }

    /// Returns the first machine's address.
    pub fn address_v4(&self) -> Ipv4Addr {
        self.machine(1).address_v4()
    }

    /// Returns the first machine's address.
    pub fn address_v6(&self) -> Ipv6Addr {
        self.machine(1).address_v6()
    }

    /// Returns a command that runs a program on our side of the network.
    pub fn command_here(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.our_namespace_option()).arg("--").arg(program);
        command
    }

    /// Returns a command that runs a program in the namespace of the bridge and the control network.
    pub fn command_at_bridge(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.state.fabric)).arg("--").arg(program);
        command
    }

    /// Returns a command that runs a busybox applet, for example `ping`, on our side of the network.
    pub fn busybox_here(&self, applet: &str) -> Command {
        let mut command = self.command_here(self.state.image.join("busybox"));
        command.arg(applet);
        command
    }

    /// Waits until a program listens on a TCP port on our side. Connecting instead would look like the client.
    pub fn wait_for_tcp_here(&self, port: u16, limit: Duration) -> Result<(), Error> {
        // Local address, remote address, state: 0A is LISTEN.
        let wanted = format!(":{port:04X} ");
        let listens = |line: &str| {
            let mut fields = line.split_whitespace().skip(1);
            let local = fields.next().is_some_and(|local| format!("{local} ").ends_with(&wanted));
            local && fields.nth(1) == Some("0A")
        };
        let until = Instant::now() + limit;
        while Instant::now() < until {
            for table in ["tcp", "tcp6"] {
                let path = format!("/proc/{}/net/{table}", self.state.ours);
                let text = fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
                if text.lines().any(listens) {
                    return Ok(());
                }
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(Error::Start(format!("nothing on our side listens on TCP port {port}")))
    }

    /// Waits until a table in `/proc/net` of our side contains a text, or until `over` returns true.
    pub fn wait_for_text_here(
        &self,
        table: &str,
        text: &str,
        limit: Duration,
        mut over: impl FnMut() -> bool,
    ) -> Result<(), Error> {
        let path = format!("/proc/{}/net/{table}", self.state.ours);
        let until = Instant::now() + limit;
        while Instant::now() < until && !over() {
            let lines = fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
            if lines.contains(text) {
                return Ok(());
            }
            thread::sleep(Duration::from_millis(5));
        }
        Err(Error::Start(format!("no {text} in our side's /proc/net/{table}")))
    }

    /// Returns a command that runs a test of this binary, by name, in its own process on our side of the network. There
    /// [`inside`] is true, so that it does not start a peer.
    pub fn test_here(&self, test: &str) -> Result<Command, Error> {
        let program = env::current_exe().map_err(|error| Error::io("this program", error))?;
        let mut command = self.command_here(program);
        command.args([test, "--exact", "--nocapture", "--include-ignored"]);
        command.env(INSIDE, "1");
        Ok(command)
    }

    /// Captures all RoCEv2 packets that pass the bridge. The pcap file is at `path` once the capture is
    /// [finished](Capture::finish).
    pub fn capture(&self, path: impl Into<PathBuf>) -> Result<Capture<'_>, Error> {
        self.capture_filtered(path, "udp port 4791")
    }

    /// Captures packets that pass the bridge and match a libpcap filter; an empty filter matches all.
    pub fn capture_filtered(
        &self,
        path: impl Into<PathBuf>,
        filter: &str,
    ) -> Result<Capture<'_>, Error> {
        Capture::start(&self.supervisor, path.into(), filter)
    }

    /// Returns a process that runs as long as any part of this network, for tests of its end.
    pub fn first_process(&self) -> u32 {
        self.state.fabric
    }

    fn our_namespace_option(&self) -> String {
        format!("--net=/proc/{}/ns/net", self.state.ours)
    }
}

impl State {
    fn read(folder: &Path) -> Result<Self, Error> {
        let path = folder.join("state");
        let text = fs::read_to_string(&path).map_err(|error| Error::io(&path, error))?;
        let value = |name: &str| {
            let mut lines = text.lines().filter_map(|line| line.split_once('='));
            lines.find(|(key, _)| *key == name).map(|(_, value)| value)
        };
        let process = |name: &str| value(name).and_then(|value| value.parse().ok());
        let state = || {
            Some(Self {
                ours: process("ours")?,
                fabric: process("fabric")?,
                image: PathBuf::from(value("image")?),
            })
        };
        state().ok_or_else(|| Error::Start(format!("{} is not complete: {text}", path.display())))
    }
}

/// Returns the program that manages the network.
fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peer/peer")
}
