use super::*;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

fn v6() -> IpAddr {
    "fd00::9".parse().unwrap()
}

/// The layout of rdma-core's structures.
#[test]
fn headers_have_rdma_cores_layout() {
    let data = Announcement { kind: Kind::Data, queue_pair: 0x12_3456 };
    let bytes = [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56, 10, 1, 2, 3];
    assert_eq!(data.write(V4), bytes);
    let reply = Announcement { kind: Kind::Reply, queue_pair: 2 }.write(v6());
    assert_eq!(reply.len(), 28);
    assert_eq!(reply[4..12], [6, 7, 28, 0, 0, 0, 0, 2]);
    assert_eq!(reply[12..], "fd00::9".parse::<Ipv6Addr>().unwrap().octets());
    let source = SourceHeader("10.1.2.3:513".parse().unwrap());
    assert_eq!(source.write(), [4, 8, 2, 1, 10, 1, 2, 3]);
    let source = SourceHeader("[fd00::9]:513".parse().unwrap()).write();
    assert_eq!((source.len(), &source[..8]), (24, &[6, 24, 2, 1, 0, 0, 0, 0][..]));
    assert_eq!(source[8..], "fd00::9".parse::<Ipv6Addr>().unwrap().octets());
}

#[test]
fn headers_round_trip() {
    for ip in [V4, v6()] {
        for kind in [Kind::Data, Kind::Reply] {
            let announcement = Announcement { kind, queue_pair: 77 };
            let mut bytes = announcement.write(ip);
            assert_eq!(Announcement::read(&bytes, ip), Some((announcement, &[][..])));
            bytes.extend(b"data");
            assert_eq!(Announcement::read(&bytes, ip), Some((announcement, &b"data"[..])));
        }
        let source = SourceHeader(SocketAddr::new(ip, 9));
        let mut bytes = source.write();
        let length = bytes.len();
        bytes.extend(b"data");
        assert_eq!(SourceHeader::read(&bytes), Some((source, length)));
    }
}

#[test]
fn malformed_announcements_are_refused() {
    for ip in [V4, v6()] {
        let good = Announcement { kind: Kind::Data, queue_pair: 77 }.write(ip);
        for length in 0..good.len() {
            assert_eq!(Announcement::read(&good[..length], ip), None, "{length} bytes");
        }
        let mut refused = 0;
        // Tag, version, kind and length have one valid value each, the kind two.
        for index in 0..7 {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[index] = value;
                let is_good = bad == good || (index, value) == (5, 7);
                assert_eq!(Announcement::read(&bad, ip).is_some(), is_good, "{index}: {value}");
                refused += usize::from(!is_good);
            }
        }
        assert_eq!(refused, 7 * 255 - 1);
        // QPs 0 and 1 are reserved for management.
        for number in [0, 1] {
            let bad = Announcement { kind: Kind::Data, queue_pair: number }.write(ip);
            assert_eq!(Announcement::read(&bad, ip), None);
        }
        // The version of the header differs from that of the datagram.
        let other = if ip.is_ipv4() { v6() } else { V4 };
        let bad = Announcement { kind: Kind::Data, queue_pair: 77 }.write(other);
        assert_eq!(Announcement::read(&bad, ip), None);
    }
}

#[test]
fn malformed_source_headers_are_refused() {
    for ip in [V4, v6()] {
        let good = SourceHeader(SocketAddr::new(ip, 9)).write();
        for length in 0..good.len() {
            assert_eq!(SourceHeader::read(&good[..length]), None, "{length} bytes");
        }
        for index in 0..2 {
            for value in (0..=255).filter(|&value| value != good[index]) {
                let mut bad = good.clone();
                bad[index] = value;
                assert_eq!(SourceHeader::read(&bad), None, "{index}: {value}");
            }
        }
    }
}

/// rdma-core writes a wrong IPv6 address.
#[test]
fn the_address_in_an_announcement_is_ignored() {
    let announcement = Announcement { kind: Kind::Reply, queue_pair: 9 };
    let mut bytes = announcement.write(v6());
    bytes[12..].fill(0xee);
    // So are the reserved bytes.
    (bytes[7], bytes[8]) = (1, 1);
    assert_eq!(Announcement::read(&bytes, v6()), Some((announcement, &[][..])));
}

#[test]
fn ipv4_addresses_are_mapped_and_back() {
    let v4: SocketAddr = "10.1.2.3:4".parse().unwrap();
    assert_eq!(canonical(mapped(v4)), v4);
    let v6: SocketAddr = "[fd00::9]:4".parse().unwrap();
    assert_eq!((canonical(v6), mapped(v6)), (v6, v6));
    let flows = SocketAddrV6::new("fd00::9".parse().unwrap(), 4, 5, 0);
    assert_eq!(canonical(flows.into()), v6);
}

#[test]
fn payload_is_limited_by_packet_and_slot() {
    assert_eq!(max_payload(V4, 4096, 2048), 2032);
    assert_eq!(max_payload(v6(), 4096, 2048), 2020);
    // udpong's default of 1000 bytes fits into a packet on Ethernet.
    assert_eq!(max_payload(V4, 1024, 2048), 1016);
    assert_eq!(max_payload(v6(), 1024, 2048), 1000);
    assert_eq!(max_payload(V4, 0, 2048), 0);
}
