//! What both sides know about the network, for whoever must find out why it does not work.

use std::process::Command;

use super::Peer;

/// In the machine: a card that its kernel gives up on says so in the last lines.
const THERE: &str = "ip -s link show eth0; ip neigh show dev eth0; tc -s qdisc show dev eth0; \
     grep virtio /proc/interrupts; grep -h MemFree /proc/meminfo; rdma resource show qp; dmesg | tail -n 12";
const HERE: &str = "ip -s link show eth0; ip neigh show dev eth0";
const BRIDGE: &str = "ip -s link show tap1; ip -s link show ours";

impl Peer {
    /// What the first machine, our side and the bridge say of themselves. Never fails: it is printed where something has.
    pub fn diagnosis(&self) -> String {
        let there = match self.run(THERE) {
            Ok(output) => output.stdout + &output.stderr,
            Err(error) => error.to_string(),
        };
        let here = said(self.command_here("sh").args(["-c", HERE]));
        let bridge = said(self.command_at_bridge("sh").args(["-c", BRIDGE]));
        format!("in the machine:\n{there}\non our side:\n{here}\nat the bridge:\n{bridge}")
    }
}

fn said(command: &mut Command) -> String {
    match command.output() {
        Ok(output) => {
            let both = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&both).into_owned()
        }
        Err(error) => error.to_string(),
    }
}
