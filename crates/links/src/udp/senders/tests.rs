use std::collections::HashSet;

use ferroce_test_support as _;

use super::*;

fn at(port: u16) -> Option<Socket> {
    let local = SocketAddr::from(([127, 0, 0, 1], port));
    Socket::source(local, &ferroce_sys::Options::default()).ok()
}

fn senders() -> Senders {
    Senders::new(at(0xc000).unwrap())
}

#[test]
fn ports_come_from_the_flow_label_or_from_both_numbers() {
    assert_eq!(source_port(0x0_0001, Qpn(5), Qpn(6)), 0xc001);
    // The six high bits of the label are folded into the fourteen low ones.
    assert_eq!(source_port(0xf_c001, Qpn(5), Qpn(6)), 0xc001 ^ 0x3f);
    assert_eq!(source_port(0, Qpn(0x11), Qpn(0x12)), 0xc000 + 0x11 * 0x12);
    let (one, other) = (Qpn(0x01_2345), Qpn(0x02_6789));
    assert_eq!(source_port(0, one, other), source_port(0, other, one));
    let ports: HashSet<_> = (16..116).map(|n| source_port(0, Qpn(0x1_0000 | n), other)).collect();
    assert!(ports.len() > 80, "{} ports for 100 queue pairs", ports.len());
    assert!(ports.iter().all(|port| SOURCE_PORTS.contains(port)));
}

#[test]
fn sockets_are_opened_when_needed_and_found_again() {
    let senders = senders();
    assert_eq!(senders.iter().count(), 1);
    let index = senders.index_of(0xd123, at);
    assert_eq!((index, senders.iter().count()), (1, 2));
    assert_eq!(senders.get(index).port(), 0xd123);
    assert_eq!(senders.index_of(0xd123, |_| panic!("it is open")), index);
    assert_eq!(senders.index_of(0xd124, at), 2);
}

#[test]
fn a_port_that_is_taken_is_replaced_by_another() {
    let other = at(0xd200).unwrap();
    let senders = senders();
    let index = senders.index_of(other.port(), at);
    let port = senders.get(index).port();
    assert!(port != other.port() && SOURCE_PORTS.contains(&port));
    assert_eq!(senders.index_of(other.port(), |_| panic!("it is open")), index);
}

#[test]
fn there_are_no_more_than_the_most() {
    let senders = senders();
    let indices: Vec<_> = (0..200).map(|n| senders.index_of(0xe000 + n, at)).collect();
    assert_eq!(senders.iter().count(), MAX_SENDERS);
    let used: HashSet<_> = indices.iter().collect();
    assert_eq!(used.len(), MAX_SENDERS, "all of them are used");
    let again: Vec<_> = (0..200).map(|n| senders.index_of(0xe000 + n, at)).collect();
    assert_eq!(indices, again, "a port keeps its socket");
}

#[test]
fn without_another_socket_the_first_does() {
    let senders = senders();
    assert_eq!(senders.index_of(0xe000, |_| None), 0);
    assert_eq!(senders.iter().count(), 1);
}
