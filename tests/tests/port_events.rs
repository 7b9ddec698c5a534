//! A port that goes down and up again, as ibv_asyncwatch and ibv_devinfo see it, in a network namespace.
//!
//! Needs root, and `ip` from iproute2: skipped loudly without them.

use std::time::{Duration, Instant};

use ferroce_tests::hosts::{self, Hosts};
use ferroce_tests::libraries;
use ferroce_tests::running::Running;

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn a_port_goes_down_and_up() {
    let Some(hosts) = Hosts::new("port") else { return };
    let start = |program: &str, arguments: &[&str]| {
        let mut command = libraries::program(program)?;
        Some(Running::start(hosts.command(0, command.args(arguments))))
    };
    let until = Instant::now() + LIMIT;
    // By a pipe its lines would come when there are many.
    if libraries::program("ibv_asyncwatch").is_none() {
        return;
    }
    let watch = ["-o0", "ibv_asyncwatch", "-d", "ferroce_eth0"];
    let Some(mut watcher) = start("stdbuf", &watch) else { return };
    watcher.wait_for(|line| line.contains("async event FD"), until);
    let state = |wanted: &str| {
        let said = start("ibv_devinfo", &["-d", "ferroce_eth0"]).map(|one| one.finish(until));
        assert!(said.as_ref().is_none_or(|said| said.contains(wanted)), "{said:?}");
    };
    state("PORT_ACTIVE");
    for (link, side, event) in [
        // Switched off and on here, and at the other end of the cable.
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
    // Without a carrier it stays a device, and says how it is.
    state("PORT_DOWN");
}
