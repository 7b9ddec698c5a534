use super::*;

const V4: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 1, 2, 3));

fn v6() -> IpAddr {
    "fd00::9".parse().unwrap()
}

/// As rdma-core's structures lie in memory.
#[test]
fn headers_are_rdma_cores() {
    let data = Announcement { kind: Kind::Data, queue_pair: 0x12_3456 };
    let bytes = [0x55, 0x55, 0x55, 0x55, 4, 0, 16, 0, 0, 0x12, 0x34, 0x56, 10, 1, 2, 3];
    assert_eq!(data.write(V4), bytes);
    let answer = Announcement { kind: Kind::Answer, queue_pair: 2 }.write(v6());
    assert_eq!(answer.len(), 28);
    assert_eq!(answer[4..12], [6, 7, 28, 0, 0, 0, 0, 2]);
    assert_eq!(answer[12..], "fd00::9".parse::<Ipv6Addr>().unwrap().octets());
    let source = Source("10.1.2.3:513".parse().unwrap());
    assert_eq!(source.write(), [4, 8, 2, 1, 10, 1, 2, 3]);
    let source = Source("[fd00::9]:513".parse().unwrap()).write();
    assert_eq!((source.len(), &source[..8]), (24, &[6, 24, 2, 1, 0, 0, 0, 0][..]));
    assert_eq!(source[8..], "fd00::9".parse::<Ipv6Addr>().unwrap().octets());
}

#[test]
fn what_is_written_is_read() {
    for ip in [V4, v6()] {
        for kind in [Kind::Data, Kind::Answer] {
            let said = Announcement { kind, queue_pair: 77 };
            let mut bytes = said.write(ip);
            assert_eq!(Announcement::read(&bytes, ip), Some((said, &[][..])));
            bytes.extend(b"data");
            assert_eq!(Announcement::read(&bytes, ip), Some((said, &b"data"[..])));
        }
        let source = Source(SocketAddr::new(ip, 9));
        let mut bytes = source.write();
        let length = bytes.len();
        bytes.extend(b"data");
        assert_eq!(Source::read(&bytes), Some((source, length)));
    }
}

#[test]
fn announcements_that_are_none() {
    for ip in [V4, v6()] {
        let good = Announcement { kind: Kind::Data, queue_pair: 77 }.write(ip);
        for length in 0..good.len() {
            assert_eq!(Announcement::read(&good[..length], ip), None, "{length} bytes");
        }
        let mut refused = 0;
        // Tag, version, kind and length: no other byte may be there, but for the kind of an answer.
        for place in 0..7 {
            for value in 0..=255 {
                let mut bad = good.clone();
                bad[place] = value;
                let is_good = bad == good || (place, value) == (5, 7);
                assert_eq!(Announcement::read(&bad, ip).is_some(), is_good, "{place}: {value}");
                refused += usize::from(!is_good);
            }
        }
        assert_eq!(refused, 7 * 255 - 1);
        // Management's queue pairs are not a program's.
        for number in [0, 1] {
            let bad = Announcement { kind: Kind::Data, queue_pair: number }.write(ip);
            assert_eq!(Announcement::read(&bad, ip), None);
        }
        // A version that is not that of the datagram itself.
        let other = if ip.is_ipv4() { v6() } else { V4 };
        let bad = Announcement { kind: Kind::Data, queue_pair: 77 }.write(other);
        assert_eq!(Announcement::read(&bad, ip), None);
    }
}

#[test]
fn sources_that_are_none() {
    for ip in [V4, v6()] {
        let good = Source(SocketAddr::new(ip, 9)).write();
        for length in 0..good.len() {
            assert_eq!(Source::read(&good[..length]), None, "{length} bytes");
        }
        for place in 0..2 {
            for value in (0..=255).filter(|&value| value != good[place]) {
                let mut bad = good.clone();
                bad[place] = value;
                assert_eq!(Source::read(&bad), None, "{place}: {value}");
            }
        }
    }
}

/// rdma-core fills in the address of IPv6 from the wrong place: it must not matter.
#[test]
fn the_address_of_an_announcement_is_not_read() {
    let said = Announcement { kind: Kind::Answer, queue_pair: 9 };
    let mut bytes = said.write(v6());
    bytes[12..].fill(0xee);
    // Nor what is reserved.
    (bytes[7], bytes[8]) = (1, 1);
    assert_eq!(Announcement::read(&bytes, v6()), Some((said, &[][..])));
}

#[test]
fn addresses_of_both_families() {
    let v4: SocketAddr = "10.1.2.3:4".parse().unwrap();
    assert_eq!(plain(mapped(v4)), v4);
    let v6: SocketAddr = "[fd00::9]:4".parse().unwrap();
    assert_eq!((plain(v6), mapped(v6)), (v6, v6));
    let flows = SocketAddrV6::new("fd00::9".parse().unwrap(), 4, 5, 0);
    assert_eq!(plain(flows.into()), v6);
}

#[test]
fn how_much_fits() {
    assert_eq!(most_bytes(V4, 4096, 2048), 2032);
    assert_eq!(most_bytes(v6(), 4096, 2048), 2020);
    // udpong's default of 1000 bytes fits into the packets of Ethernet.
    assert_eq!(most_bytes(V4, 1024, 2048), 1016);
    assert_eq!(most_bytes(v6(), 1024, 2048), 1000);
    assert_eq!(most_bytes(V4, 0, 2048), 0);
}
