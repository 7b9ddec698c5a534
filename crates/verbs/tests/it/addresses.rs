//! Addresses that an interface has but that cannot be used yet.

use std::process::Command;

use ferroce::*;
use ferroce_test_support::{namespace, skip};

use crate::support::{gid_index, options};

/// `IFA_F_TENTATIVE` in `/proc/net/if_inet6`.
const TENTATIVE: u32 = 0x40;

fn ip(arguments: &str) -> bool {
    let ran = Command::new("ip").args(arguments.split_whitespace()).status();
    ran.is_ok_and(|status| status.success())
}

fn is_tentative(interface: &str) -> bool {
    let list = std::fs::read_to_string("/proc/net/if_inet6").unwrap_or_default();
    let line = list.lines().find(|line| line.ends_with(&format!(" {interface}")));
    let flags = line.and_then(|line| line.split_whitespace().nth(4));
    flags.is_some_and(|flags| u32::from_str_radix(flags, 16).unwrap() & TENTATIVE != 0)
}

/// A link-local address that the kernel has just assigned: it is listed, and can be bound only after duplicate address
/// detection.
#[test]
fn a_device_whose_only_address_is_tentative_is_opened() {
    let made = namespace::is_own()
        && ip("link add new0 type veth peer name new1")
        && ip("link set new1 up")
        && ip("link set new0 up");
    if !made {
        return skip("network interfaces cannot be created here, or iproute2 is not installed");
    }
    let device = loop {
        match Device::named("new0") {
            Ok(device) => break device,
            // The kernel assigns the address when it notices the carrier.
            Err(OpenError::NoAddress { .. }) => std::thread::yield_now(),
            Err(error) => panic!("{error}"),
        }
    };
    assert!(is_tentative("new0"), "there was nothing to wait for");
    let context = Context::open(&device, &options()).unwrap();
    assert!(!is_tentative("new0"));
    assert!(gid_index(&context, true).is_some());
}
