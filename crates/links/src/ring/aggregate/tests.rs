use ferroce_wire::number::Msn;
use ferroce_wire::packet::Packet;
use ferroce_wire::transport::Reth;

use super::*;

fn bth(opcode: Opcode) -> Bth {
    Bth { opcode, ack_request: true, psn: Psn::new(0xff_ffff), ..Bth::default() }
}

#[test]
fn middle_packets_and_whole_messages_of_rc_form_runs() {
    assert_eq!(packets(&bth(Opcode::RC_RDMA_WRITE_MIDDLE), 8192, 1024), 8);
    assert_eq!(packets(&bth(Opcode::RC_RDMA_READ_RESPONSE_MIDDLE), 2048, 1024), 2);
    assert_eq!(packets(&bth(Opcode::RC_SEND_MIDDLE), 1000, 1024), 1);
    assert_eq!(packets(&bth(Opcode::RC_SEND_ONLY), 1025, 1024), 2);
    assert_eq!(packets(&bth(Opcode::RC_RDMA_WRITE_ONLY), 8192, 1024), 8);
    assert_eq!(packets(&bth(Opcode::RC_RDMA_READ_RESPONSE_ONLY), 8193, 1024), 9);
    for opcode in [
        Opcode::RC_RDMA_WRITE_FIRST,
        Opcode::RC_SEND_ONLY_WITH_IMMEDIATE,
        Opcode::UC_SEND_MIDDLE,
        Opcode::UC_SEND_ONLY,
        Opcode(0xff),
    ] {
        assert_eq!(packets(&bth(opcode), 8192, 1024), 1);
    }
}

#[test]
fn the_packets_of_a_whole_message_are_those_of_the_specification() {
    let reth = Reth { length: 601, ..Reth::default() };
    let header = Bth { pad: 3, solicited: true, ..bth(Opcode::RC_RDMA_WRITE_ONLY) };
    let payload: Vec<u8> = (0..601).map(|index| (index / 7) as u8).collect();
    let aggregate = [&header.to_bytes()[..], &reth.to_bytes(), &payload, &[0; 3 + ICRC]].concat();
    let mut found = Vec::new();
    let mut packets = Vec::new();
    split(&aggregate, 256, |bytes| {
        let Packet { bth, extensions, payload, .. } = Packet::parse(bytes).unwrap();
        packets.push((bth.opcode, bth.psn.0, bth.ack_request, bth.solicited, extensions.reth));
        found.extend_from_slice(payload);
    });
    assert_eq!(found, payload);
    let expected = [
        (Opcode::RC_RDMA_WRITE_FIRST, 0xff_ffff, false, false, Some(reth)),
        (Opcode::RC_RDMA_WRITE_MIDDLE, 0, false, false, None),
        (Opcode::RC_RDMA_WRITE_LAST, 1, true, true, None),
    ];
    assert_eq!(packets, expected);
}

#[test]
fn the_first_and_the_last_packet_of_a_read_response_have_an_aeth() {
    let header = bth(Opcode::RC_RDMA_READ_RESPONSE_ONLY).to_bytes();
    let aeth = Aeth { msn: Msn(7), ..Aeth::default() };
    let aggregate = [&header[..], &aeth.to_bytes(), &[1; 700], &[0; ICRC]].concat();
    let mut found = Vec::new();
    let mut bytes_in_all = 0;
    split(&aggregate, 256, |bytes| {
        let Packet { bth, extensions, payload, .. } = Packet::parse(bytes).unwrap();
        found.push((bth.opcode, extensions.aeth, payload.len()));
        bytes_in_all += bytes.len();
    });
    assert_eq!(bytes_in_all, aggregate.len() + overhead(&Bth::parse(&header), 3));
    let expected = [
        (Opcode::RC_RDMA_READ_RESPONSE_FIRST, Some(aeth), 256),
        (Opcode::RC_RDMA_READ_RESPONSE_MIDDLE, None, 256),
        (Opcode::RC_RDMA_READ_RESPONSE_LAST, Some(aeth), 188),
    ];
    assert_eq!(found, expected);
}

#[test]
fn the_packets_of_a_run_have_its_payload_and_their_own_psns() {
    let payload: Vec<u8> = (0..3 * 256).map(|index| (index / 7) as u8).collect();
    let header = bth(Opcode::RC_SEND_MIDDLE).to_bytes();
    let aggregate = [&header[..], &payload, &[0; ICRC]].concat();
    let mut found = Vec::new();
    let mut flags = Vec::new();
    split(&aggregate, 256, |bytes| {
        let packet = Packet::parse(bytes).unwrap();
        flags.push((packet.bth.psn.0, packet.bth.ack_request));
        found.extend_from_slice(packet.payload);
    });
    assert_eq!(found, payload);
    assert_eq!(flags, [(0xff_ffff, false), (0, false), (1, true)]);
    split(&aggregate[..5], 256, |_| panic!("there is no header"));
}
