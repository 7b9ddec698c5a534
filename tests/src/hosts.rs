//! Two hosts: network namespaces with a link. They need root, and `ip` from iproute2.

use std::process::{Command, Stdio};

use ferroce_test_support::skip;

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

impl Drop for Hosts {
    fn drop(&mut self) {
        self.0.iter().for_each(|name| _ = ip(&format!("netns delete {name}")));
    }
}
