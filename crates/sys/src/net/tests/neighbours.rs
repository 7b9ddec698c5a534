//! Who is next on the way, as the kernel knows it.

use std::net::SocketAddr;

use super::namespace::{ip, run};
use super::{PATIENCE, is_readable};
use crate::net::neighbour::{Knowledge, Neighbour};
use crate::{NetlinkMonitor, Subject, clock, interface};

fn toward(ip: &str) -> Option<Neighbour> {
    Neighbour::toward(SocketAddr::new(ip.parse().unwrap(), 4791)).unwrap()
}

#[test]
fn neighbours_are_found_when_they_are_there() {
    run("neighbours_are_found_when_they_are_there", || {
        for (there, absent, link) in [
            ("10.9.0.2", "10.9.0.7", "02:00:00:00:00:07"),
            ("fd09::2", "fd09::7", "02:00:00:00:00:07"),
        ] {
            let known = toward(there).unwrap();
            assert_eq!(known.knowledge().unwrap(), Knowledge::Found);
            let neighbour = toward(absent).unwrap();
            assert_eq!(neighbour.knowledge().unwrap(), Knowledge::Nothing);
            neighbour.seek();
            assert_eq!(neighbour.knowledge().unwrap(), Knowledge::Sought);
            let news = NetlinkMonitor::of(Subject::Neighbours).unwrap();
            news.listen(true).unwrap();
            assert!(ip(&format!(
                "neighbour replace {absent} lladdr {link} dev near nud permanent"
            )));
            assert!(is_readable(&news, clock::now() + PATIENCE), "nobody was told");
            assert_eq!(neighbour.knowledge().unwrap(), Knowledge::Found);
            news.listen(false).unwrap();
            news.clear();
            assert!(ip(&format!("neighbour delete {absent} dev near")));
            assert!(!is_readable(&news, clock::now()), "somebody was told who does not listen");
        }
    });
}

#[test]
fn who_is_behind_a_router_has_the_router_for_a_neighbour() {
    run("who_is_behind_a_router_has_the_router_for_a_neighbour", || {
        for (router, beyond) in [("10.9.0.2", "203.0.113.9"), ("fd09::2", "2001:db8::9")] {
            assert!(Neighbour::toward(SocketAddr::new(beyond.parse().unwrap(), 1)).is_err());
            assert!(ip(&format!("route add {beyond} via {router}")));
            assert_eq!(toward(beyond).unwrap().knowledge().unwrap(), Knowledge::Found);
        }
    });
}

#[test]
fn at_home_there_is_nobody_to_find() {
    run("at_home_there_is_nobody_to_find", || {
        super::namespace::route_to_ourselves("fd09::1");
        for ip in ["127.0.0.1", "::1", "10.9.0.1", "fd09::1", "239.9.8.7", "ff0e::9"] {
            assert_eq!(toward(ip), None, "{ip}");
        }
    });
}

#[test]
fn an_interface_is_seen_to_go_down_and_up() {
    run("an_interface_is_seen_to_go_down_and_up", || {
        let news = NetlinkMonitor::of(Subject::Interfaces).unwrap();
        news.listen(true).unwrap();
        assert!(interface::is_active("near") && interface::is_active("lo"));
        assert!(ip("link set near down"));
        assert!(is_readable(&news, clock::now() + PATIENCE), "nobody was told");
        assert!(!interface::is_active("near"));
        news.clear();
        assert!(ip("link set near up"));
        // It is on before it has a carrier, and both are told.
        while !interface::is_active("near") {
            assert!(is_readable(&news, clock::now() + PATIENCE), "nobody was told");
            news.clear();
        }
        // Without the other end there is none.
        assert!(ip("link set far down"));
        while interface::is_active("near") {
            assert!(is_readable(&news, clock::now() + PATIENCE), "nobody was told");
            news.clear();
        }
        assert!(ip("link delete near"));
        assert!(!interface::is_active("near"));
    });
}
