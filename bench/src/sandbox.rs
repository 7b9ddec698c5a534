//! The inside of a sample: its network, and the processes that run there.
//!
//! The process is already in a new network and mount namespace: see [`crate::measure`].

use std::fs;
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use crate::process::Process;
use crate::program::{Program, Ready, command};
use crate::row::{Said, Side};

/// The network of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Network {
    /// One host, with a loopback only.
    Loopback,
    /// One host with `eth0` as well, which has the address 10.9.0.1.
    Host,
    /// Two hosts joined by a veth pair with this MTU; the server's address is 10.9.0.1.
    Hosts {
        /// The MTU of both interfaces.
        mtu: u32,
    },
    /// As the machine is: for programs that make their own, such as virtual machines.
    Machine,
}

/// The network, with its second host.
#[derive(Debug)]
pub(crate) struct Sandbox {
    network: Network,
    /// A process that holds the other host's namespace.
    other: Option<Process>,
}

impl Sandbox {
    /// Sets up the network.
    pub(crate) fn new(network: Network, until: Instant) -> Result<Self, String> {
        if network == Network::Machine {
            return Ok(Self { network, other: None });
        }
        // `/sys/class/net` shows the interfaces of the namespace of the process that mounted it. Without the mount,
        // programs that read it see the machine's interfaces.
        let _ = run("mount -t sysfs sysfs /sys");
        run("ip link set lo up")?;
        let mtu = match network {
            Network::Hosts { mtu } => mtu,
            Network::Host => 1500,
            Network::Loopback | Network::Machine => return Ok(Self { network, other: None }),
        };
        let mut hold = Command::new("unshare");
        hold.args(["--net", "--", "sh", "-c", "ip link set lo up && echo ready && exec cat"]);
        let mut other = Process::start(hold)?;
        other.wait_for("ready", until)?;
        let id = other.id();
        run(&format!("ip link add eth0 mtu {mtu} type veth peer name eth0 mtu {mtu} netns {id}"))?;
        for (enter, number) in [(String::new(), 1), (format!("nsenter -t {id} -n -- "), 2)] {
            run(&format!("{enter}ip address add 10.9.0.{number}/24 dev eth0"))?;
            // No link-local address: it would become another GID some time after the start.
            run(&format!("{enter}ip link set eth0 addrgenmode none up"))?;
        }
        for enter in [String::new(), format!("nsenter -t {id} -n -- ")] {
            while !run(&format!("{enter}ip -o link show eth0"))?.contains("state UP") {
                if Instant::now() > until {
                    return Err("eth0 has no carrier: timeout".to_owned());
                }
                thread::sleep(Duration::from_millis(10));
            }
        }
        Ok(Self { network, other: Some(other) })
    }

    fn start(&self, program: &Program, client: bool) -> Result<Process, String> {
        let mut words = Vec::new();
        if let (true, Network::Hosts { .. }, Some(other)) = (client, self.network, &self.other) {
            let enter = format!("nsenter -t {} -n --", other.id());
            words.extend(enter.split(' ').map(str::to_owned));
        }
        words.extend(program.words()?);
        let mut command = command(&words);
        command.envs(program.environment());
        Process::start(command)
    }

    /// Runs server and client, and returns what they printed.
    pub(crate) fn run(&self, side: &Side, until: Instant) -> Result<Said, String> {
        let Some((server, ready)) = &side.server else {
            let client = self.start(&side.client, true)?.finish(until)?;
            return Ok(Said { server: String::new(), client });
        };
        let mut process = self.start(server, false)?;
        match *ready {
            Ready::Once(port) | Ready::Serves(port) => process.wait_listening(port, until)?,
            Ready::Prints(text) => _ = process.wait_for(text, until)?,
        }
        let client = self.start(&side.client, true)?.finish(until);
        // The server of a client that failed may wait forever.
        let until = if client.is_ok() { until } else { Instant::now() };
        let server = match ready {
            Ready::Once(_) => process.finish(until),
            Ready::Serves(_) | Ready::Prints(_) => Ok(String::new()),
        };
        match (server, client) {
            (Ok(server), Ok(client)) => Ok(Said { server, client }),
            (Ok(_), Err(client)) => Err(format!("the client failed: {client}")),
            (Err(server), Ok(_)) => Err(format!("the server failed: {server}")),
            (Err(server), Err(client)) => {
                Err(format!("the client failed: {client}; the server: {server}"))
            }
        }
    }
}

/// Runs a command, and returns its output.
fn run(line: &str) -> Result<String, String> {
    let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
    let output = command(&words).stdin(Stdio::null()).output();
    match output {
        Ok(output) if output.status.success() => {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        }
        Ok(output) => Err(format!("{line}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{line}: {error}")),
    }
}

/// The datagrams that this network namespace dropped because a socket's receive buffer was full, over IPv4 and IPv6.
pub(crate) fn dropped() -> u64 {
    let read =
        |name: &str| fs::read_to_string(format!("/proc/self/net/{name}")).unwrap_or_default();
    crate::parse::snmp::receive_buffer_errors(&read("snmp"), &read("snmp6"))
}
