//! Two connected Ethernet interfaces in the network namespace of a test.
#![allow(dead_code, unreachable_pub)] // Each test binary uses some of it.

use std::process::Command;
use std::sync::OnceLock;
use std::thread;
use std::time::Duration;

use ferroce_test_support::{namespace, skip};

/// An unused address on the network of `eth0`.
pub const UNUSED_ADDRESS: &str = "10.9.0.77";

fn ip(arguments: &str) -> bool {
    let ran = Command::new("ip").args(arguments.split_whitespace()).status();
    ran.is_ok_and(|status| status.success())
}

/// Creates `eth0` with 10.9.0.1 and fd09::1, and `eth1` with 10.9.1.1 and a larger MTU. Returns false, after a skip, if
/// that is not permitted.
pub fn make() -> bool {
    static MADE: OnceLock<bool> = OnceLock::new();
    let made = *MADE.get_or_init(|| {
        // Not in the host's namespace. The peer is created first and has the lower index.
        let made = namespace::is_own()
            && ip("link add eth1 mtu 9000 type veth peer name eth0 mtu 1500")
            && ip("address add 10.9.0.1/24 dev eth0")
            && ip("address add fd09::1/64 dev eth0 nodad")
            && ip("address add 10.9.1.1/24 dev eth1")
            && ip("link set eth0 up")
            && ip("link set eth1 up");
        // The kernel reports the carrier with a delay.
        while made && !ferroce_sys::interface::is_active("eth0") {
            thread::sleep(Duration::from_millis(1));
        }
        made
    });
    if !made {
        skip("network interfaces cannot be created here, or iproute2 is not installed");
    }
    made
}
