//! Two hosts: network namespaces with a link. They need root, and `ip` from iproute2.

use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use ferroce_test_support::skip;

use crate::tool;

/// Two namespaces and their link, deleted when this is dropped.
#[derive(Debug)]
pub struct Hosts([String; 2]);

/// Runs the command `ip`, and returns whether it succeeded.
pub fn ip(arguments: &str) -> bool {
    let ran = Command::new("ip").args(arguments.split_whitespace()).stderr(Stdio::null()).status();
    ran.is_ok_and(|status| status.success())
}

impl Hosts {
    /// Creates two hosts joined by `eth0`, with the addresses 10.9.0.1 and 10.9.0.2. Returns `None`, after a skip,
    /// where that is not permitted.
    pub fn new(tag: &str) -> Option<Self> {
        let names = ["a", "b"].map(|side| format!("ferroce-{}-{tag}{side}", std::process::id()));
        let [a, b] = names.clone();
        if !ip(&format!("netns add {a}")) {
            skip("network namespaces cannot be made here, or iproute2 is not installed");
            return None;
        }
        let hosts = Self(names);
        assert!(ip(&format!("netns add {b}")));
        assert!(ip(&format!("-n {a} link add eth0 type veth peer name eth0 netns {b}")));
        for (name, number) in [(a, 1), (b, 2)] {
            assert!(ip(&format!("-n {name} address add 10.9.0.{number}/24 dev eth0")));
            assert!(ip(&format!("-n {name} link set eth0 up")));
        }
        Some(hosts)
    }

    /// Adds the addresses fd09::1 and fd09::2.
    #[must_use]
    pub fn with_ipv6(self) -> Self {
        for (name, number) in self.0.iter().zip(1..) {
            assert!(ip(&format!("-n {name} address add fd09::{number}/64 dev eth0 nodad")));
        }
        self
    }

    /// Brings the loopback interfaces up, and waits until the kernel reports the link as up, which makes the ports active.
    #[must_use]
    pub fn ready(self) -> Self {
        for name in &self.0 {
            assert!(ip(&format!("-n {name} link set lo up")));
            wait_for_link(name);
        }
        self
    }

    /// Returns the name of a namespace.
    pub fn name(&self, side: usize) -> &str {
        &self.0[side]
    }

    /// Returns a command that runs a program in one of them.
    pub fn command(&self, side: usize, program: &Command) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.0[side]]).arg(program.get_program());
        command.args(program.get_args()).stdin(Stdio::null());
        for (name, value) in program.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command
    }
}

fn wait_for_link(name: &str) {
    for _ in 0..1000 {
        let mut command = Command::new("ip");
        let shown = tool::run(command.args(["-n", name, "link", "show", "eth0"]));
        if String::from_utf8_lossy(&shown).contains("state UP") {
            return;
        }
        thread::sleep(Duration::from_millis(10));
    }
    panic!("{name}: the link did not come up");
}

impl Drop for Hosts {
    fn drop(&mut self) {
        self.0.iter().for_each(|name| _ = ip(&format!("netns delete {name}")));
    }
}
