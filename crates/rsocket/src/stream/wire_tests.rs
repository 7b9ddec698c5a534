use super::*;

const CONNECT: ConnectData = ConnectData {
    order: ByteOrder::Little,
    credits: 384,
    maps: Some(16),
    targets: Target { address: 0x0102_0304_0506_0708, key: 0x0a0b_0c0d, length: 2 },
    buffer: Target { address: 8192, key: 2, length: 65536 },
};

#[test]
fn every_message_round_trips_through_immediate_data() {
    let messages = [
        StreamMessage::Data(0),
        StreamMessage::Data(MAX_MESSAGE_BYTES),
        StreamMessage::Credits(0),
        StreamMessage::Credits(0xffff),
        StreamMessage::Mapped(7),
        StreamMessage::Disconnect,
        StreamMessage::KeepAlive,
        StreamMessage::Shutdown,
        StreamMessage::Unknown(0xe000_0003),
        StreamMessage::Unknown(0x4000_0000),
    ];
    for message in messages {
        assert_eq!(StreamMessage::from_immediate(message.immediate()), message);
    }
}

/// The numbers of rdma-core: RS_OP_DATA 0, RS_OP_SGL 4, RS_OP_IOMAP_SGL 6, RS_OP_CTRL 7.
#[test]
fn immediate_data_has_rdma_cores_numbers() {
    assert_eq!(StreamMessage::Data(5).immediate(), 5);
    assert_eq!(StreamMessage::Credits(5).immediate(), 0x8000_0005);
    assert_eq!(StreamMessage::Mapped(5).immediate(), 0xc000_0005);
    assert_eq!(StreamMessage::Disconnect.immediate(), 0xe000_0000);
    assert_eq!(StreamMessage::KeepAlive.immediate(), 0xe000_0001);
    assert_eq!(StreamMessage::Shutdown.immediate(), 0xe000_0002);
}

#[test]
fn a_carry_above_the_credit_limit_is_dropped() {
    assert_eq!(StreamMessage::from_immediate(0x8001_0005), StreamMessage::Credits(5));
}

#[test]
fn parsing_any_type_and_encoding_it_again_loses_nothing() {
    for kind in 0..8u32 {
        let parsed = StreamMessage::from_immediate(kind << 29 | 9);
        assert_eq!(parsed.immediate(), kind << 29 | 9, "{parsed:?}");
    }
}

#[test]
fn targets_are_written_in_the_readers_byte_order() {
    let target = CONNECT.targets;
    assert_eq!(target.write(ByteOrder::Big)[..2], [1, 2]);
    assert_eq!(target.write(ByteOrder::Little)[..2], [8, 7]);
    assert_eq!(target.write(ByteOrder::Big)[8..], [0xa, 0xb, 0xc, 0xd, 0, 0, 0, 2]);
    for order in [ByteOrder::Little, ByteOrder::Big] {
        assert_eq!(Target::read(&target.write(order), order), target);
    }
}

#[test]
fn io_maps_round_trip_in_both_byte_orders() {
    let map = IoMap { offset: 0x1122, target: CONNECT.buffer };
    for order in [ByteOrder::Little, ByteOrder::Big] {
        assert_eq!(IoMap::read(&map.write(order), order), map);
    }
    assert_eq!(map.write(ByteOrder::Big)[..8], [0, 0, 0, 0, 0, 0, 0x11, 0x22]);
}

#[test]
fn connect_data_round_trips_with_every_flag() {
    for order in [ByteOrder::Little, ByteOrder::Big] {
        for maps in [None, Some(0), Some(128), Some(768)] {
            let data = ConnectData { order, maps, ..CONNECT };
            assert_eq!(ConnectData::read(&data.write()), Some(data));
        }
    }
}

/// `struct rs_conn_data`: version, flags, credits, three reserved bytes, the scaled map count, then both targets.
#[test]
fn connect_data_lies_in_memory_as_rdma_cores_structure() {
    let bytes = CONNECT.write();
    assert_eq!(bytes[..8], [1, 2, 0x01, 0x80, 0, 0, 0, 16]);
    assert_eq!(bytes[8..24], CONNECT.targets.write(ByteOrder::Big));
    assert_eq!(bytes[24..], CONNECT.buffer.write(ByteOrder::Big));
}

#[test]
fn connect_data_of_another_version_is_refused() {
    let mut bytes = CONNECT.write();
    for version in (0..=255).filter(|&version| version != 1) {
        bytes[0] = version;
        assert_eq!(ConnectData::read(&bytes), None, "version {version}");
    }
}

#[test]
fn connect_data_that_is_too_short_is_refused() {
    let bytes = CONNECT.write();
    for length in 0..bytes.len() {
        assert_eq!(ConnectData::read(&bytes[..length]), None, "{length} bytes");
    }
}

/// The connection manager pads private data with zeroes.
#[test]
fn connect_data_ignores_bytes_after_it() {
    let mut bytes = CONNECT.write().to_vec();
    bytes.extend([0; 52]);
    assert_eq!(ConnectData::read(&bytes), Some(CONNECT));
}

#[test]
fn map_counts_are_rounded_down_to_what_a_byte_can_carry() {
    assert_eq!(
        [0, 1, 128, 129, 256, 1000, u16::MAX].map(round_to_scale),
        [0, 1, 128, 128, 256, 768, 127 << 8]
    );
    for value in 0..=u16::MAX {
        let rounded = round_to_scale(value);
        assert!(rounded <= value && round_to_scale(rounded) == rounded, "{value}");
    }
}
