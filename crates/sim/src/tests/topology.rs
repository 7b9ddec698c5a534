//! Leaf-spine networks.

use std::collections::BTreeSet;

use super::toys::{ECT0, Station, roce, v4};
use crate::{Destination, Fabric, HostId, LeafSpine, Settings, Topology, TrunkId};

const NETWORK: LeafSpine = LeafSpine { hosts_per_leaf: 2, leaves: 2, spines: 4 };

/// Sends these frames from host 0.
fn fabric(frames: Vec<Vec<u8>>) -> Fabric<Station> {
    let topology = Topology::LeafSpine(NETWORK);
    let mut fabric = Fabric::new(1, Settings { topology, ..Settings::default() });
    let mut to_send = frames.into_iter().map(|frame| (Destination::Header, frame)).collect();
    for host in 0..4 {
        let station = Station { to_send: std::mem::take(&mut to_send), ..Station::default() };
        fabric.add_host(station, &[v4(host)]).unwrap();
    }
    let _ = fabric.run();
    fabric
}

/// A frame from host 0 with this UDP source port.
fn from_port(to: u32, port: u16) -> Vec<u8> {
    let mut frame = roce(v4(0), v4(to), ECT0, &[0; 16]);
    frame[34..36].copy_from_slice(&port.to_be_bytes());
    frame
}

/// Returns the links that carried frames.
fn used(fabric: &Fabric<Station>) -> BTreeSet<TrunkId> {
    fabric.trunks().filter(|(_, link)| link.frames > 0).map(|(trunk, _)| trunk).collect()
}

#[test]
fn ecmp_keeps_a_flow_on_one_path() {
    let fabric = fabric(vec![from_port(2, 0xc123); 100]);
    let used = used(&fabric);
    assert_eq!(used.len(), 2, "{used:?}");
    assert!(used.iter().all(|trunk| fabric.trunk_statistics(*trunk).unwrap().frames == 100));
    // The path goes up to a spine and down from the same.
    let spine = NETWORK.spine_of(*used.first().unwrap()).unwrap();
    assert_eq!(used, BTreeSet::from([NETWORK.up(0, spine), NETWORK.down(spine, 1)]));
    assert_eq!(fabric.totals().delivered, 100);
}

#[test]
fn ecmp_spreads_flows_by_source_port() {
    let fabric = fabric((0..400).map(|port| from_port(2, 0xc000 + port)).collect());
    for spine in 0..4 {
        let frames = fabric.trunk_statistics(NETWORK.up(0, spine)).unwrap().frames;
        assert!((50..150).contains(&frames), "spine {spine}: {frames}");
    }
    assert_eq!(fabric.totals().delivered, 400);
}

#[test]
fn hosts_of_a_leaf_need_no_spine() {
    let fabric = fabric(vec![from_port(1, 0xc000); 10]);
    assert!(used(&fabric).is_empty());
    assert_eq!(fabric.host_statistics(HostId(1)).unwrap().delivered, 10);
}

#[test]
fn links_have_names() {
    assert_eq!(NETWORK.name(NETWORK.up(1, 2)), "leaf1 to spine2");
    assert_eq!(NETWORK.name(NETWORK.down(3, 0)), "spine3 to leaf0");
}
