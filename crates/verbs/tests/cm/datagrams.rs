//! UD queue pairs and multicast groups.

use std::net::{IpAddr, SocketAddr};
use std::process::Command;

use crate::ends::*;
use crate::other::Other;
use ferroce::cm::{CmId, ConnectParameters, EventKind, PortSpace, SidrStatus};
use ferroce::*;

#[test]
fn sidr_resolves_the_ud_queue_pair() {
    for ip in [V4, V6] {
        let (here, there) = (channel(), channel());
        let (listener, address) = listener(&there, PortSpace::Udp, ip, 0);
        let client = resolved(&here, PortSpace::Udp, address);
        let end = equip_with(&client, ServiceType::UnreliableDatagram);
        client.connect(&with_data(&[5; 180])).unwrap();
        let asked = request(&there, &listener);
        assert_eq!(asked.private_data, [5; 180]);
        let other = equip_with(&asked.id, ServiceType::UnreliableDatagram);
        other.receive(0, 2048);
        asked.id.accept(&with_data(b"me")).unwrap();
        let up = expect!(here, client, EventKind::Established(up) => up);
        assert_eq!(up.private_data, padded(b"me", 136));
        let peer = up.datagram.unwrap();
        assert_eq!(peer.queue_pair, other.queue_pair.number());
        assert_eq!(peer.queue_key, ferroce::cm::DATAGRAM_QUEUE_KEY);
        datagram(&end, &peer, b"a datagram");
        other.done();
        other.holds(40, b"a datagram");
        // A rejection, and a port without listener.
        let client = resolved(&here, PortSpace::Udp, address);
        client.connect(&ConnectParameters::default()).unwrap();
        request(&there, &listener).id.reject(&[]).unwrap();
        expect!(here, client, EventKind::Unreachable(Some(SidrStatus::REJECTED)));
        let client = resolved(&here, PortSpace::Udp, address);
        drop(listener);
        client.connect(&ConnectParameters::default()).unwrap();
        expect!(here, client, EventKind::Unreachable(Some(SidrStatus::UNSUPPORTED_SERVICE)));
    }
}

/// Two cm_ids at one address: one sends to the group that the other has joined.
fn group(ip: IpAddr, group: &str) {
    let group: IpAddr = group.parse().unwrap();
    let channel = channel();
    let [one, other] = [(); 2].map(|()| {
        let id = CmId::new(&channel, PortSpace::Udp).unwrap();
        let source = Some(SocketAddr::new(ip, 0));
        id.resolve_address(source, SocketAddr::new(group, 0), SECOND).unwrap();
        expect!(channel, id, EventKind::AddressResolved);
        id
    });
    let datagrams = ServiceType::UnreliableDatagram;
    let [end, listening] = [&one, &other].map(|id| equip_with(id, datagrams));
    assert!(one.join_multicast(V4).is_err());
    // Joining again opens another socket.
    for _ in 0..3 {
        listening.receive(0, 2048);
        other.join_multicast(group).unwrap();
        let joined = expect!(channel, other, EventKind::MulticastJoined(joined) => joined);
        assert_eq!(joined.gid, Gid::from_ip(group));
        assert_eq!(joined.peer.queue_pair, Qpn::MULTICAST);
        assert_eq!(joined.peer.address.hop_limit, 64, "beyond the first router");
        datagram(&end, &joined.peer, b"to all");
        assert_eq!(listening.done().id, WorkId(7));
        listening.holds(40, b"to all");
        assert!(other.leave_multicast(group));
        assert!(!other.leave_multicast(group));
    }
}

#[test]
fn a_group_on_the_loopback_receives_its_messages() {
    group(V4, "239.77.1.9");
}

/// The loopback has no route for IPv6 multicast, so this needs another interface.
#[test]
fn a_group_on_an_interface_receives_its_messages() {
    let set_up = "ip link set lo up && ip link add v0 type veth peer name v1 \
        && ip link set v0 addrgenmode none && ip link set v0 up \
        && ip link set v1 up && ip addr add 10.77.0.1/24 dev v0 \
        && ip addr add fd77::1/64 dev v0 nodad && exec \"$0\" \"$@\"";
    let mut unshare = Command::new("unshare");
    unshare.args(["--map-root-user", "--net", "sh", "-c", set_up]);
    unshare.arg(std::env::current_exe().unwrap());
    match Other::with(unshare, "datagrams::group_process").hear_any(&["in a group"]) {
        Some("in a group") => {}
        _ => ferroce_test_support::skip("no network namespace, or no veth in it, can be made here"),
    }
}

/// The other process of the test above.
#[test]
#[ignore = "a child process of another test"]
fn group_process() {
    group("10.77.0.1".parse().unwrap(), "239.77.1.9");
    group("fd77::1".parse().unwrap(), "ff12::77:9");
    println!("\nin a group");
}
