//! Port state changes, as ibv_asyncwatch and ibv_devinfo report them, in a network namespace.
//!
//! Needs root, and `ip` from iproute2: skipped with a message without them.

use std::time::{Duration, Instant};

use ferroce_tests::hosts::{self, Hosts};
use ferroce_tests::libraries;
use ferroce_tests::running::Running;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn port_state_changes_raise_async_events() {
    let Some(hosts) = Hosts::new("port") else { return };
    let start = |program: &str, arguments: &[&str]| {
        let mut command = libraries::program(program)?;
        command.env("FERROCE_LOG", "warn");
        Some(Running::start(hosts.command(0, command.args(arguments))))
    };
    let until = Instant::now() + LIMIT;
    // stdbuf, because stdout to a pipe would be block-buffered.
    if libraries::program("ibv_asyncwatch").is_none() {
        return;
    }
    let watch = ["-o0", "ibv_asyncwatch", "-d", "ferroce_eth0"];
    let Some(mut watcher) = start("stdbuf", &watch) else { return };
    watcher.wait_for(|line| line.contains("async event FD"), until);
    let state = |wanted: &str| {
        let said =
            start("ibv_devinfo", &["-d", "ferroce_eth0"]).map(|process| process.finish(until));
        assert!(said.as_ref().is_none_or(|said| said.contains(wanted)), "{said:?}");
    };
    state("PORT_ACTIVE");
    for (link, side, event) in [
        // Set down and up here, and at the other end of the link.
        ("down", 0, "IBV_EVENT_PORT_ERR"),
        ("up", 0, "IBV_EVENT_PORT_ACTIVE"),
        ("down", 1, "IBV_EVENT_PORT_ERR"),
        ("up", 1, "IBV_EVENT_PORT_ACTIVE"),
        ("down", 1, "IBV_EVENT_PORT_ERR"),
    ] {
        assert!(hosts::ip(&format!("-n {} link set eth0 {link}", hosts.name(side))));
        let line = watcher.wait_for(|line| line.contains("event"), until);
        assert!(line.contains(event) && line.contains("port 1"), "{link} at {side}: {line}");
    }
    // Without a carrier the device remains, and reports its state.
    state("PORT_DOWN");
    let (_, said) = watcher.end(Instant::now());
    assert!(said.contains("the port is down"), "{said}");
}
