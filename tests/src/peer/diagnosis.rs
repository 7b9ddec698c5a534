//! Network state of both sides, printed when a test fails.

use std::process::Command;

use super::Peer;

/// In the machine: the last lines show a network card that its kernel has given up on.
const MACHINE_COMMANDS: &str = "ip -s link show eth0; ip neigh show dev eth0; tc -s qdisc show dev eth0; \
     grep virtio /proc/interrupts; grep -h MemFree /proc/meminfo; rdma resource show qp; dmesg | tail -n 12";
const OUR_COMMANDS: &str = "ip -s link show eth0; ip neigh show dev eth0";
const BRIDGE_COMMANDS: &str = "ip -s link show tap1; ip -s link show ours";

impl Peer {
    /// Returns the state of the first machine, our side and the bridge. Never fails, because it is printed after a
    /// failure.
    pub fn diagnosis(&self) -> String {
        let machine = match self.run(MACHINE_COMMANDS) {
            Ok(output) => output.stdout + &output.stderr,
            Err(error) => error.to_string(),
        };
        let here = output_of(self.command_here("sh").args(["-c", OUR_COMMANDS]));
        let bridge = output_of(self.command_at_bridge("sh").args(["-c", BRIDGE_COMMANDS]));
        format!("in the machine:\n{machine}\non our side:\n{here}\nat the bridge:\n{bridge}")
    }
}

fn output_of(command: &mut Command) -> String {
    match command.output() {
        Ok(output) => {
            let both = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&both).into_owned()
        }
        Err(error) => error.to_string(),
    }
}
