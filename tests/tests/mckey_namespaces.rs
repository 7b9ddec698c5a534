//! mckey on our librdmacm between two hosts (network namespaces with a link), with IPv4 and IPv6 multicast groups.
//! Linux's connection manager rejects the latter on RoCEv2, so no other peer can test them.
//!
//! Needs root, and `ip` from iproute2: skipped with a message without them.

use std::process::Command;
use std::time::{Duration, Instant};

use ferroce_tests::hosts::Hosts;
use ferroce_tests::libraries;
use ferroce_tests::running::Running;

/// mckey sends after three seconds.
const LIMIT: Duration = Duration::from_secs(60);

/// Whether the first host has joined the group, according to the kernel's table.
fn joined(hosts: &Hosts, table: &str, group: &str) -> bool {
    let mut look = Command::new("cat");
    look.arg(table);
    let output = hosts.command(0, &look).output().expect("a table");
    String::from_utf8_lossy(&output.stdout).to_lowercase().contains(group)
}

/// Sends ten messages from the second host to the first.
fn send_ten_messages(
    tag: &str,
    group: &str,
    addresses: [&str; 2],
    (table, entry): (&str, &str),
    more: &[&str],
) {
    let Some(hosts) = Hosts::new(tag).map(Hosts::with_ipv6) else { return };
    let start = |side: usize, role: &[&str]| {
        let mut program = libraries::program("mckey")?;
        program.args(["-m", group, "-b", addresses[side], "-C", "10"]).args(role);
        let command = hosts.command(side, &program);
        Some(Running::start(command))
    };
    let until = Instant::now() + LIMIT;
    let Some(mut receiver) = start(0, &[]) else { return };
    receiver.wait_until(|_| joined(&hosts, table, entry), until);
    let sender = start(1, &[&["-s"], more].concat()).expect("it was found before");
    let sent = sender.good_end(until);
    // Without a sender it would wait forever.
    let received = receiver.good_end(if sent.is_ok() { until } else { Instant::now() });
    for end in [sent, received] {
        assert!(end.as_ref().is_ok_and(|said| said.contains("return status 0")), "{end:?}");
    }
}

const IPV4: [&str; 2] = ["10.9.0.1", "10.9.0.2"];
const IPV6: [&str; 2] = ["fd09::1", "fd09::2"];
const IGMP: (&str, &str) = ("/proc/net/igmp", "070809ef");
const MLD: (&str, &str) = ("/proc/net/igmp6", "ff0e0000000000000000000900080007");

#[test]
fn ipv4() {
    send_ten_messages("4", "239.9.8.7", IPV4, IGMP, &[]);
}

#[test]
fn ipv4_without_joining() {
    send_ten_messages("4o", "239.9.8.7", IPV4, IGMP, &["-o"]);
}

#[test]
fn ipv6() {
    send_ten_messages("6", "ff0e::9:8:7", IPV6, MLD, &[]);
}

#[test]
fn ipv6_without_joining() {
    send_ten_messages("6o", "ff0e::9:8:7", IPV6, MLD, &["-o"]);
}
