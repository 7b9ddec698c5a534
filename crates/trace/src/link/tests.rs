use super::{
    Carried, ETHERTYPE_IPV4, ETHERTYPE_IPV6, LinkError, LinkField, LinkHeader, LinkType, header,
    network,
};

const PACKET: &[u8] = b"\x45 the packet";

fn with_packet(header: &[u8]) -> Vec<u8> {
    [header, PACKET].concat()
}

/// Value and meaning of a field.
fn field<'a>(header: &'a LinkHeader, name: &str) -> (&'a str, &'a str) {
    let field = header.fields.iter().find(|field| field.name == name).expect(name);
    (&field.value, &field.meaning)
}

/// Returns the header, checking that its fields cover it without gaps.
fn described(link: LinkType, data: &[u8]) -> LinkHeader {
    let header = header(link, data).unwrap().expect("a header");
    let mut end = 0;
    for field in &header.fields {
        assert_eq!(field.range.start, end, "{field:?}");
        end = field.range.end;
    }
    if let Ok(carried) = network(link, data) {
        assert_eq!(end, carried.offset());
    }
    header
}

/// Checks that every truncation of the link header is reported with its offset.
fn check_cuts(link: LinkType, data: &[u8]) {
    let offset = network(link, data).unwrap().offset();
    for length in 0..offset {
        for result in
            [network(link, &data[..length]).map(drop), header(link, &data[..length]).map(drop)]
        {
            let Err(LinkError::Truncated { offset, needed, available, .. }) = result else {
                panic!("cut at {length}: {result:?}");
            };
            assert_eq!(offset + available, length);
            assert!(available < needed);
        }
    }
    // A complete header without data is an empty packet.
    assert_eq!(network(link, &data[..offset]).unwrap().data(), b"");
}

#[test]
fn links_without_a_capture_header() {
    let ethernet = Carried::Ethernet { offset: 0, data: PACKET };
    assert_eq!(network(LinkType::ETHERNET, PACKET), Ok(ethernet));
    let infiniband = Carried::Infiniband { offset: 0, data: PACKET };
    assert_eq!(network(LinkType::INFINIBAND, PACKET), Ok(infiniband));
    for (link, ethertype) in [(LinkType::IPV4, ETHERTYPE_IPV4), (LinkType::IPV6, ETHERTYPE_IPV6)] {
        let expected = Carried::Network { ethertype, offset: 0, data: PACKET };
        assert_eq!(network(link, PACKET), Ok(expected));
    }
    for link in [LinkType::ETHERNET, LinkType::INFINIBAND, LinkType::IPV4, LinkType::RAW] {
        assert_eq!(header(link, b""), Ok(None));
    }
}

#[test]
fn raw_ip_is_identified_by_its_version() {
    for link in [LinkType::RAW, LinkType::RAW_BSD, LinkType::RAW_OPENBSD] {
        for (first, ethertype) in [(0x45, ETHERTYPE_IPV4), (0x60, ETHERTYPE_IPV6)] {
            let data: &[u8] = &[first, 1, 2];
            assert_eq!(network(link, data), Ok(Carried::Network { ethertype, offset: 0, data }));
        }
        assert_eq!(network(link, &[0x50]), Err(LinkError::NotIp { version: 5 }));
        assert!(matches!(network(link, b""), Err(LinkError::Truncated { needed: 1, .. })));
    }
}

#[test]
fn loopback_in_both_byte_orders() {
    for (family, ethertype) in [
        (2u32, ETHERTYPE_IPV4),
        (10, ETHERTYPE_IPV6),
        (24, ETHERTYPE_IPV6),
        (28, ETHERTYPE_IPV6),
        (30, ETHERTYPE_IPV6),
    ] {
        let expected = Carried::Network { ethertype, offset: 4, data: PACKET };
        for (link, family) in [
            (LinkType::NULL, family.to_le_bytes()),
            (LinkType::NULL, family.to_be_bytes()),
            (LinkType::LOOP, family.to_be_bytes()),
        ] {
            let data = with_packet(&family);
            assert_eq!(network(link, &data), Ok(expected));
            check_cuts(link, &data);
        }
    }
    let data = with_packet(&[2, 0, 0, 0]);
    let family = 0x0200_0000;
    assert_eq!(network(LinkType::LOOP, &data), Err(LinkError::UnknownFamily { family }));
    assert_eq!(
        described(LinkType::NULL, &data),
        LinkHeader {
            name: "BSD loopback",
            fields: vec![LinkField {
                name: "address family",
                range: 0..4,
                value: "2".into(),
                meaning: "IPv4".into()
            }],
        }
    );
    let other = described(LinkType::LOOP, &[0, 0, 0, 7]);
    assert_eq!(field(&other, "address family"), ("7", "not IP"));
}

/// Packet type 4, hardware 1, address 02:00:00:00:00:01 padded to 8, protocol.
fn cooked_v1(protocol: [u8; 2]) -> Vec<u8> {
    let start = [0, 4, 0, 1, 0, 6, 2, 0, 0, 0, 0, 1, 0, 0];
    with_packet(&[&start[..], &protocol].concat())
}

#[test]
fn cooked_version_1() {
    for (protocol, ethertype) in [
        ([0x08, 0x00], ETHERTYPE_IPV4),
        ([0x86, 0xdd], ETHERTYPE_IPV6),
        ([0x89, 0x15], 0x8915),
        ([0x81, 0x00], 0x8100),
    ] {
        let data = cooked_v1(protocol);
        let expected = Carried::Network { ethertype, offset: 16, data: PACKET };
        assert_eq!(network(LinkType::LINUX_SLL, &data), Ok(expected));
        check_cuts(LinkType::LINUX_SLL, &data);
    }
    let header = described(LinkType::LINUX_SLL, &cooked_v1([0x89, 0x15]));
    assert_eq!(header.name, "Linux cooked capture v1");
    assert_eq!(field(&header, "packet type"), ("4", "sent by this host"));
    assert_eq!(field(&header, "hardware"), ("1", "Ethernet"));
    assert_eq!(field(&header, "address"), ("02:00:00:00:00:01", ""));
    assert_eq!(field(&header, "protocol"), ("0x8915", "RoCE v1"));
}

#[test]
fn cooked_version_2() {
    let start = [0x08, 0x00, 0, 0, 0, 0, 1, 2, 0, 32, 0, 20, 1, 2, 3, 4, 5, 6, 7, 8];
    let data = with_packet(&start);
    let expected = Carried::Network { ethertype: ETHERTYPE_IPV4, offset: 20, data: PACKET };
    assert_eq!(network(LinkType::LINUX_SLL2, &data), Ok(expected));
    check_cuts(LinkType::LINUX_SLL2, &data);
    let header = described(LinkType::LINUX_SLL2, &data);
    assert_eq!(field(&header, "protocol"), ("0x0800", "IPv4"));
    assert_eq!(field(&header, "interface index"), ("258", ""));
    assert_eq!(field(&header, "hardware"), ("32", "InfiniBand"));
    assert_eq!(field(&header, "packet type"), ("0", "to this host"));
    let address = ("01:02:03:04:05:06:07:08", "the first 8 of 20 bytes");
    assert_eq!(field(&header, "address"), address);
}

#[test]
fn cooked_netlink_is_not_a_network() {
    let mut data = cooked_v1([0, 0]);
    data[2..4].copy_from_slice(&824u16.to_be_bytes());
    let error = network(LinkType::LINUX_SLL, &data).unwrap_err();
    assert_eq!(error, LinkError::NoEtherType { hardware: 824 });
    assert!(error.to_string().contains("netlink"));
    assert_eq!(field(&described(LinkType::LINUX_SLL, &data), "hardware"), ("824", "netlink"));
}

/// An ERF record of this type, extension headers, bytes before the packet and lengths.
fn erf(record_type: u8, extra: &[u8], record_len: u16, wire_len: u16) -> Vec<u8> {
    // 1,700,000,000.5 s.
    let mut data = (1_700_000_000u64 << 32 | 1 << 31).to_le_bytes().to_vec();
    data.extend([record_type, 0x4d]);
    data.extend(record_len.to_be_bytes());
    data.extend([0x00, 0x07]);
    data.extend(wire_len.to_be_bytes());
    data.extend(extra);
    with_packet(&data)
}

#[test]
fn erf_carries_infiniband() {
    let (length, start) = (PACKET.len() as u16, 16);
    let data = erf(21, &[], 16 + length, length);
    let expected = Carried::Infiniband { offset: start, data: PACKET };
    assert_eq!(network(LinkType::ERF, &data), Ok(expected));
    check_cuts(LinkType::ERF, &data);

    let data = erf(25, &[], 16 + length, length);
    let expected = Carried::InfinibandLink { offset: start, data: PACKET };
    assert_eq!(network(LinkType::ERF, &data), Ok(expected));

    for (record_type, ethertype) in [(22, ETHERTYPE_IPV4), (23, ETHERTYPE_IPV6)] {
        let data = erf(record_type, &[], 16 + length, length);
        let expected = Carried::Network { ethertype, offset: start, data: PACKET };
        assert_eq!(network(LinkType::ERF, &data), Ok(expected));
    }
}

#[test]
fn erf_has_extension_headers_and_ethernet_padding() {
    let length = PACKET.len() as u16;
    let extensions = [0x80 | 17, 1, 2, 3, 4, 5, 6, 7, 16, 0, 0, 0, 0, 0, 0, 1];
    let data = erf(0x80 | 21, &extensions, 32 + length, length);
    let expected = Carried::Infiniband { offset: 32, data: PACKET };
    assert_eq!(network(LinkType::ERF, &data), Ok(expected));
    check_cuts(LinkType::ERF, &data);

    let header = described(LinkType::ERF, &data);
    assert_eq!(header.fields.len(), 8);
    assert_eq!(field(&header, "timestamp").1, "2023-11-14T22:13:20.500000000Z");
    assert_eq!(field(&header, "type"), ("21", "INFINIBAND, extension headers follow"));
    let flags = "capture interface 5, varying record length, truncated";
    assert_eq!(field(&header, "flags"), ("0x4d", flags));
    assert_eq!(field(&header, "loss counter"), ("7", ""));
    assert_eq!(field(&header, "extension header"), ("0x9101020304050607", "host id"));

    for record_type in [2, 11, 16, 20] {
        let data = erf(record_type, &[0, 0], 18 + length, length);
        let expected = Carried::Ethernet { offset: 18, data: PACKET };
        assert_eq!(network(LinkType::ERF, &data), Ok(expected));
        check_cuts(LinkType::ERF, &data);
        let header = described(LinkType::ERF, &data);
        assert_eq!(field(&header, "Ethernet offset and padding"), ("00 00", ""));
        let counter = if record_type == 2 { "loss counter" } else { "color" };
        assert_eq!(field(&header, counter), ("7", ""));
    }
}

#[test]
fn erf_lengths_are_honoured() {
    let length = PACKET.len() as u16;
    let packet = |record_len, wire_len| {
        let data = erf(21, &[], record_len, wire_len);
        network(LinkType::ERF, &data).map(|carried| carried.data().len() as u16)
    };
    // Padding after the packet, by either length.
    assert_eq!(packet(16 + length, length - 3), Ok(length - 3));
    assert_eq!(packet(16 + length - 3, length), Ok(length - 3));
    // A record truncated by the capture file, and a packet truncated by the capture card.
    assert_eq!(packet(16 + length + 100, length + 100), Ok(length));
    assert_eq!(packet(16, length), Ok(0));
    // A record shorter than its headers.
    for (record_type, extra, minimum) in
        [(21, &[][..], 16), (2, &[0; 2], 18), (0x80 | 21, &[1, 0, 0, 0, 0, 0, 0, 0], 24)]
    {
        for record_len in [0, minimum - 1] {
            let data = erf(record_type, extra, record_len, 4);
            let error = network(LinkType::ERF, &data).unwrap_err();
            let (length, minimum) = (usize::from(record_len), usize::from(minimum));
            let of = "ERF record length";
            assert_eq!(error, LinkError::InvalidLength { of, offset: 10, length, minimum });
        }
    }
    // Extension headers without an end.
    let endless = erf(0x80 | 21, &[0xff; 64], 200, 100);
    assert!(matches!(network(LinkType::ERF, &endless[..80]), Err(LinkError::Truncated { .. })));
}

#[test]
fn unsupported_types_are_named() {
    let data = erf(27, &[], 30, 12);
    let error = network(LinkType::ERF, &data).unwrap_err();
    assert_eq!(error, LinkError::UnsupportedErf { erf_type: 27 });
    assert!(error.to_string().contains("META"), "{error}");
    assert_eq!(field(&described(LinkType::ERF, &data), "type"), ("27", "META"));

    let link = LinkType(105);
    assert_eq!(network(link, PACKET), Err(LinkError::Unsupported(link)));
    assert_eq!(header(link, PACKET), Err(LinkError::Unsupported(link)));
    assert_eq!(LinkError::Unsupported(link).to_string(), "link type 105 is not supported");
    assert_eq!(LinkType::ERF.to_string(), "ERF (197)");
}

proptest::proptest! {
    #[test]
    fn no_bytes_panic(
        link in proptest::sample::select(vec![0, 1, 12, 101, 108, 113, 197, 228, 247, 276]),
        data in proptest::collection::vec(proptest::num::u8::ANY, 0..80),
    ) {
        let link = LinkType(link);
        if let Ok(carried) = network(link, &data) {
            let end = carried.offset() + carried.data().len();
            assert_eq!(&data[carried.offset()..end], carried.data());
        }
        let _ = header(link, &data);
    }
}
