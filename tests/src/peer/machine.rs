//! A machine that runs `rdma_rxe`, and commands in it.

use std::io::Write;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::process::{self, Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use super::{Error, program};

/// The port on which the agents listen: see `tests/peer/addresses`.
const AGENT_PORT: u16 = 7001;

/// The default timeout of a command.
const COMMAND_LIMIT: Duration = Duration::from_secs(60);

/// A machine. Its RDMA device is `rxe0`, port 1; its GID 1 is the IPv4 address and GID 2 the IPv6 address.
#[derive(Clone, Debug)]
pub struct Machine {
    number: u8,
    /// A process in the network namespace that the agents are reached from.
    fabric: u32,
    /// The program that calls the agents.
    agent: PathBuf,
}

/// The direction of a machine's packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Packets that it sends, before they reach the bridge: lost packets are in no capture.
    Leaving,
    /// Packets that it receives from the bridge: lost packets are in the captures.
    Arriving,
}

/// The result of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Output {
    /// The shell command.
    pub line: String,
    /// Its exit status: 124 after a timeout, 128 plus the signal number if a signal ended it.
    pub status: i32,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Output {
    /// Returns its standard output, unless it failed.
    pub fn success(self) -> Result<String, Error> {
        match self.status {
            0 => Ok(self.stdout),
            status => {
                let said = self.stdout + &self.stderr;
                Err(Error::Command { line: self.line, status, said })
            }
        }
    }

    fn new(line: &str, output: process::Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Self {
            line: line.to_owned(),
            status: output.status.code().unwrap_or(-1),
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

impl Machine {
    pub(super) fn new(number: u8, fabric: u32, image: &Path) -> Self {
        Self { number, fabric, agent: image.join("agent") }
    }

    /// Returns its address on the fabric.
    pub fn address_v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 47, 91, 10 + self.number)
    }

    /// Returns its address on the fabric.
    pub fn address_v6(&self) -> Ipv6Addr {
        Ipv6Addr::new(0xfd00, 0x4791, 0, 0, 0, 0, 0, 0x10 + u16::from(self.number))
    }

    /// Returns its address on the control network, which is not captured and loses nothing. Other machines reach it
    /// there: for tools that exchange their QP attributes over TCP.
    pub fn control_v4(&self) -> Ipv4Addr {
        Ipv4Addr::new(10, 47, 92, 10 + self.number)
    }

    /// Returns a command that runs a program in the machine, with its input, outputs and status. Killing it here ends
    /// it there.
    pub fn command(&self, words: &[&str], limit: Duration) -> Command {
        // Like `peer run`, which takes longer to start.
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/proc/{}/ns/net", self.fabric)).arg("--").arg(&self.agent);
        command.arg("run").arg(format!("{}:{AGENT_PORT}", self.control_v4()));
        command.arg(limit.as_secs().max(1).to_string()).args(words);
        command
    }

    /// Runs a shell command, for a minute at most. Background processes must redirect their outputs: a command has
    /// ended when its outputs are closed.
    pub fn run(&self, line: &str) -> Result<Output, Error> {
        self.spawn(line)?.wait()
    }

    /// Runs a shell command with this input.
    pub fn run_with_input(&self, line: &str, input: &[u8]) -> Result<Output, Error> {
        let mut remote = self.start(line, Stdio::piped(), COMMAND_LIMIT)?;
        let pipe = remote.child.as_mut().and_then(|child| child.stdin.take());
        thread::scope(|scope| {
            // The command may not read all of it.
            scope.spawn(|| pipe.into_iter().for_each(|mut pipe| drop(pipe.write_all(input))));
            remote.wait()
        })
    }

    /// Starts a shell command and does not wait for it. It is ended when the [`Remote`] is dropped, or after a minute.
    pub fn spawn(&self, line: &str) -> Result<Remote, Error> {
        self.start(line, Stdio::null(), COMMAND_LIMIT)
    }

    /// Waits until a shell command succeeds, for example one that checks that a program listens.
    pub fn wait_until(&self, line: &str, limit: Duration) -> Result<(), Error> {
        let repeated = format!("until {line}; do sleep 0.05; done");
        self.start(&repeated, Stdio::null(), limit)?.wait()?.success().map(drop)
    }

    /// Waits until a program listens on a TCP port: the pingpongs and perftest use 18515.
    pub fn wait_for_tcp(&self, port: u16, limit: Duration) -> Result<(), Error> {
        // Local address, remote address, state: 0A is LISTEN. Each process started costs the machine a tick or more.
        let line = format!("grep -qs ':{port:04X} [0-9A-F]*:0000 0A' /proc/net/tcp /proc/net/tcp6");
        self.wait_until(&line, limit)
    }

    /// Waits until a program listens with the connection manager on a port: rping uses 7174.
    pub fn wait_for_cm(&self, port: u16, limit: Duration) -> Result<(), Error> {
        self.wait_until(&format!("rdma resource show cm_id | grep -q 'LISTEN.*:{port}'"), limit)
    }

    /// Writes a file in the machine.
    pub fn write(&self, path: &str, data: &[u8]) -> Result<(), Error> {
        self.run_with_input(&format!("cat >'{path}' && chmod 755 '{path}'"), data)?.success()?;
        Ok(())
    }

    /// Impairs the network, with options of `tc-netem(8)`: `loss 5%`, `delay 2ms reorder 80%`, `duplicate 10%`. Each
    /// call replaces the previous setting of the direction.
    pub fn impair(&self, direction: Direction, netem: &str) -> Result<(), Error> {
        // The machine's kernel has netem; the host's may not.
        let line = match direction {
            Direction::Leaving => {
                format!("tc qdisc replace dev eth0 root netem limit 10000 {netem}")
            }
            // netem works on egress, so ingress is redirected through an ifb device.
            Direction::Arriving => format!(
                "set -e; if ! [ -e /sys/class/net/in0 ]; then ip link add in0 type ifb; \
                 ip link set in0 mtu $(cat /sys/class/net/eth0/mtu) up; tc qdisc add dev eth0 ingress; \
                 tc filter add dev eth0 parent ffff: matchall action mirred egress redirect dev in0; fi; \
                 tc qdisc replace dev in0 root netem limit 10000 {netem}"
            ),
        };
        self.run(&line)?.success().map(drop)
    }

    /// Removes all impairments.
    pub fn repair(&self) -> Result<(), Error> {
        let line =
            "tc qdisc del dev eth0 root; tc qdisc del dev eth0 ingress; ip link del in0; true";
        self.run(line)?.success().map(drop)
    }

    fn start(&self, line: &str, input: Stdio, limit: Duration) -> Result<Remote, Error> {
        let mut command = self.command(&["sh", "-c", line], limit);
        command.stdin(input).stdout(Stdio::piped()).stderr(Stdio::piped());
        let child = command.spawn().map_err(|error| Error::io(program(), error))?;
        Ok(Remote { child: Some(child), line: line.to_owned() })
    }
}

/// A command that runs in a machine. It is ended when this is dropped.
#[derive(Debug)]
pub struct Remote {
    child: Option<Child>,
    line: String,
}

impl Remote {
    /// Waits for it to exit.
    pub fn wait(mut self) -> Result<Output, Error> {
        let Some(child) = self.child.take() else { unreachable!("taken once, here") };
        let output = child.wait_with_output().map_err(|error| Error::io(program(), error))?;
        Ok(Output::new(&self.line, output))
    }
}

impl Drop for Remote {
    fn drop(&mut self) {
        if let Some(child) = &mut self.child {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
