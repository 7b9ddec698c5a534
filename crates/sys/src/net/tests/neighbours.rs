//! Next hops and their resolution, and notifications about changes.

use std::net::SocketAddr;

use super::namespace::{ip, run};
use super::{TEST_TIMEOUT, is_readable};
use crate::net::neighbour::{Neighbour, NeighbourState};
use crate::{NetlinkGroup, NetlinkMonitor, clock, interface};

fn next_hop(ip: &str) -> Option<Neighbour> {
    Neighbour::next_hop(SocketAddr::new(ip.parse().unwrap(), 4791)).unwrap()
}

#[test]
fn neighbours_are_resolved() {
    run("neighbours_are_resolved", || {
        for (there, absent, link) in [
            ("10.9.0.2", "10.9.0.7", "02:00:00:00:00:07"),
            ("fd09::2", "fd09::7", "02:00:00:00:00:07"),
        ] {
            let known = next_hop(there).unwrap();
            assert_eq!(known.state().unwrap(), NeighbourState::Resolved);
            let neighbour = next_hop(absent).unwrap();
            assert_eq!(neighbour.state().unwrap(), NeighbourState::Unresolved);
            neighbour.solicit();
            assert_eq!(neighbour.state().unwrap(), NeighbourState::Resolving);
            let monitor = NetlinkMonitor::new(NetlinkGroup::Neighbours).unwrap();
            monitor.set_subscribed(true).unwrap();
            assert!(ip(&format!(
                "neighbour replace {absent} lladdr {link} dev near nud permanent"
            )));
            assert!(is_readable(&monitor, clock::now() + TEST_TIMEOUT), "no notification");
            assert_eq!(neighbour.state().unwrap(), NeighbourState::Resolved);
            monitor.set_subscribed(false).unwrap();
            monitor.drain();
            assert!(ip(&format!("neighbour delete {absent} dev near")));
            assert!(!is_readable(&monitor, clock::now()), "notified without a subscription");
        }
    });
}

#[test]
fn the_next_hop_to_a_remote_network_is_the_router() {
    run("the_next_hop_to_a_remote_network_is_the_router", || {
        for (router, beyond) in [("10.9.0.2", "203.0.113.9"), ("fd09::2", "2001:db8::9")] {
            assert!(Neighbour::next_hop(SocketAddr::new(beyond.parse().unwrap(), 1)).is_err());
            assert!(ip(&format!("route add {beyond} via {router}")));
            assert_eq!(next_hop(beyond).unwrap().state().unwrap(), NeighbourState::Resolved);
        }
    });
}

#[test]
fn local_destinations_have_no_next_hop() {
    run("local_destinations_have_no_next_hop", || {
        super::namespace::wait_for_local_route("fd09::1");
        for ip in ["127.0.0.1", "::1", "10.9.0.1", "fd09::1", "239.9.8.7", "ff0e::9"] {
            assert_eq!(next_hop(ip), None, "{ip}");
        }
    });
}

#[test]
fn notifies_when_an_interface_goes_down_and_up() {
    run("notifies_when_an_interface_goes_down_and_up", || {
        let monitor = NetlinkMonitor::new(NetlinkGroup::Interfaces).unwrap();
        monitor.set_subscribed(true).unwrap();
        assert!(interface::is_active("near") && interface::is_active("lo"));
        assert!(ip("link set near down"));
        assert!(is_readable(&monitor, clock::now() + TEST_TIMEOUT), "no notification");
        assert!(!interface::is_active("near"));
        monitor.drain();
        assert!(ip("link set near up"));
        // It is up before it has a carrier; both changes are notified.
        while !interface::is_active("near") {
            assert!(is_readable(&monitor, clock::now() + TEST_TIMEOUT), "no notification");
            monitor.drain();
        }
        // It loses the carrier when the other end goes down.
        assert!(ip("link set far down"));
        while interface::is_active("near") {
            assert!(is_readable(&monitor, clock::now() + TEST_TIMEOUT), "no notification");
            monitor.drain();
        }
        assert!(ip("link delete near"));
        assert!(!interface::is_active("near"));
    });
}
