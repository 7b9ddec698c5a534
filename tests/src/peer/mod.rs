//! Linux's `rdma_rxe` as a peer: machines in QEMU on a bridge of their own, beside a network namespace for our side.
//!
//! A [`Peer`] is one such network and all that runs on it. `tests/peer/peer` starts it and tells the rest; this is its
//! Rust side. When a `Peer` is dropped, or its process dies in any way, everything it started ends.
//! See `docs/interop.md`.

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

/// Our side's address.
pub const OUR_V4: Ipv4Addr = Ipv4Addr::new(10, 47, 91, 1);
/// Our side's address.
pub const OUR_V6: Ipv6Addr = Ipv6Addr::new(0xfd00, 0x4791, 0, 0, 0, 0, 0, 1);
/// Our side's network interface.
pub const OUR_INTERFACE: &str = "eth0";

/// Set in the environment of a test that runs on our side.
const INSIDE: &str = "FERROCE_PEER_INSIDE";

/// Whether this process was started by [`Peer::test_here`].
pub fn inside() -> bool {
    env::var_os(INSIDE).is_some()
}

/// What to start.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Machines that run `rdma_rxe`, 1 to 9.
    pub machines: u8,
    /// Bytes that an Ethernet frame carries: 1500 for RoCE's path MTU of 1024, 4200 or more for 4096. At most 9000.
    pub mtu: u16,
    /// How long the machines may take to start. Seconds are usual; a busy computer takes longer.
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

/// What the running fabric wrote down.
#[derive(Debug)]
struct State {
    /// A process in our side's network namespace.
    ours: u32,
    /// A process in the bridge's network namespace, which is the first of all.
    fabric: u32,
    /// Where the image is.
    image: PathBuf,
}

impl Peer {
    /// Starts a network and waits until its machines can be used.
    ///
    /// Is `None`, after a skip, where this cannot be: without root or without QEMU, for example.
    pub fn start(options: Options) -> Result<Option<Self>, Error> {
        let supervisor = match Supervisor::start(&options)? {
            Started::Running(supervisor) => supervisor,
            Started::Skipped(reason) => {
                // What it has said before that may be the whole log of a download.
                skip(reason.lines().last().unwrap_or("no peer can be started here"));
                return Ok(None);
            }
        };
        let state = State::read(supervisor.folder())?;
        let machines =
            (1..=options.machines).map(|number| Machine::new(number, state.fabric, &state.image));
        Ok(Some(Self { machines: machines.collect(), supervisor, state }))
    }

    /// A machine, counted from 1. Panics when there is no such.
    pub fn machine(&self, number: usize) -> &Machine {
        let machine = number.checked_sub(1).and_then(|index| self.machines.get(index));
        machine.unwrap_or_else(|| panic!("{} machines, and none is {number}", self.machines.len()))
    }

    /// Runs a shell's line in the first machine: see [`Machine::run`].
    pub fn run(&self, line: &str) -> Result<Output, Error> {
        self.machine(1).run(line)
    }

    /// Starts a shell's line in the first machine: see [`Machine::spawn`].
    pub fn spawn(&self, line: &str) -> Result<Remote, Error> {
        self.machine(1).spawn(line)
    }

    /// The first machine's address.
    pub fn address_v4(&self) -> Ipv4Addr {
        self.machine(1).address_v4()
    }

    /// The first machine's address.
    pub fn address_v6(&self) -> Ipv6Addr {
        self.machine(1).address_v6()
    }

    /// A program that will run on our side of the network.
    pub fn command_here(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(self.our_namespace_option()).arg("--").arg(program);
        command
    }

    /// A program that will run where the bridge and the control network are.
    pub fn command_at_bridge(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.state.fabric)).arg("--").arg(program);
        command
    }

    /// One of busybox's programs, `ping` for example, that will run on our side of the network.
    pub fn busybox_here(&self, applet: &str) -> Command {
        let mut command = self.command_here(self.state.image.join("busybox"));
        command.arg(applet);
        command
    }

    /// Waits until something listens on a TCP port on our side. To connect would be taken for the client.
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

    /// Waits until a table of our side's network, in `/proc/net`, has a text; or until it will never: `over`.
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

    /// A test of this test program, by its name, that will run on our side of the network, in a process of its own.
    /// [`inside`] tells it so: that it is not the one to start a peer.
    pub fn test_here(&self, test: &str) -> Result<Command, Error> {
        let program = env::current_exe().map_err(|error| Error::io("this program", error))?;
        let mut command = self.command_here(program);
        command.args([test, "--exact", "--nocapture", "--include-ignored"]);
        command.env(INSIDE, "1");
        Ok(command)
    }

    /// Records all RoCEv2 packets that pass the bridge, into a pcap file at the path once that is
    /// [finished](Capture::finish).
    pub fn capture(&self, path: impl Into<PathBuf>) -> Result<Capture<'_>, Error> {
        self.capture_filtered(path, "udp port 4791")
    }

    /// Records what passes the bridge and a filter in libpcap's language; an empty one passes everything.
    pub fn capture_filtered(
        &self,
        path: impl Into<PathBuf>,
        filter: &str,
    ) -> Result<Capture<'_>, Error> {
        Capture::start(&self.supervisor, path.into(), filter)
    }

    /// A process that lives as long as anything of this network does, for tests of its end.
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

/// The program that does the work.
fn program() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("peer/peer")
}
