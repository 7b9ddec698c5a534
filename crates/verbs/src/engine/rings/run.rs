//! Runs: MIDDLE packets of one message that are one record, so that the path MTU does not limit what is copied at once.
//!
//! A run is the first of its packets with the payload of all, and its ACK request is that of the last. It is what the
//! transport handles as one (`QueuePair::handle_run`). It exists only in rings: where packets are captured or faults are
//! injected, each is a packet of its own.

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::{Position, Transport};
use ferroce_wire::transport::Bth;

use crate::headers::ICRC;

/// The payload of a run: enough that its headers do not matter, and little enough that both sides copy at the same time.
pub(super) const MAX_PAYLOAD: usize = 64 << 10;

/// The bytes that each packet of a run would have besides its payload.
pub(super) const OVERHEAD: usize = Bth::LEN + ICRC;

/// The packets of a run that starts with this header; 1 if it is a single packet.
#[inline]
pub(super) fn packets(bth: &Bth, payload: usize, mtu: u16) -> u32 {
    if is_single(payload, mtu) { 1 } else { packets_of_long(bth, payload, mtu) }
}

/// Whether so much payload is one packet, whatever its header.
#[inline]
pub(super) fn is_single(payload: usize, mtu: u16) -> bool {
    payload <= usize::from(mtu)
}

fn packets_of_long(bth: &Bth, payload: usize, mtu: u16) -> u32 {
    let mtu = usize::from(mtu);
    let Some(info) = bth.opcode.info() else { return 1 };
    let forms_runs =
        info.transport == Transport::ReliableConnection && info.position == Position::Middle;
    // The transport refuses what is not a multiple.
    if forms_runs && mtu > 0 { (payload / mtu).max(1) as u32 } else { 1 }
}

/// Calls `each` with the packets of a run, from the BTH to the place of the ICRC.
pub(super) fn split(run: &[u8], mtu: u16, mut each: impl FnMut(&mut [u8])) {
    let Some((header, rest)) = run.split_first_chunk::<{ Bth::LEN }>() else { return };
    let bth = Bth::parse(header);
    let payload = &rest[..rest.len().saturating_sub(ICRC)];
    let mut packet = Vec::with_capacity(Bth::LEN + usize::from(mtu) + ICRC);
    let mut parts = payload.chunks(usize::from(mtu).max(1)).zip(0..).peekable();
    while let Some((part, index)) = parts.next() {
        let ack_request = bth.ack_request && parts.peek().is_none();
        let bth = Bth { psn: Psn::new(bth.psn.0.wrapping_add(index)), ack_request, ..bth };
        packet.clear();
        packet.extend_from_slice(&bth.to_bytes());
        packet.extend_from_slice(part);
        packet.extend_from_slice(&[0; ICRC]);
        each(&mut packet);
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::opcode::Opcode;
    use ferroce_wire::packet::Packet;

    use super::*;

    fn bth(opcode: Opcode) -> Bth {
        Bth { opcode, ack_request: true, psn: Psn::new(0xff_ffff), ..Bth::default() }
    }

    #[test]
    fn only_middle_packets_of_rc_form_runs() {
        assert_eq!(packets(&bth(Opcode::RC_RDMA_WRITE_MIDDLE), 8192, 1024), 8);
        assert_eq!(packets(&bth(Opcode::RC_RDMA_READ_RESPONSE_MIDDLE), 2048, 1024), 2);
        assert_eq!(packets(&bth(Opcode::RC_SEND_MIDDLE), 1000, 1024), 1);
        for opcode in [Opcode::RC_RDMA_WRITE_FIRST, Opcode::UC_SEND_MIDDLE, Opcode(0xff)] {
            assert_eq!(packets(&bth(opcode), 8192, 1024), 1);
        }
    }

    #[test]
    fn the_packets_of_a_run_have_its_payload_and_their_own_psns() {
        let payload: Vec<u8> = (0..3 * 256).map(|index| (index / 7) as u8).collect();
        let header = bth(Opcode::RC_SEND_MIDDLE).to_bytes();
        let run = [&header[..], &payload, &[0; ICRC]].concat();
        let mut found = Vec::new();
        let mut flags = Vec::new();
        split(&run, 256, |bytes| {
            let packet = Packet::parse(bytes).unwrap();
            flags.push((packet.bth.psn.0, packet.bth.ack_request));
            found.extend_from_slice(packet.payload);
        });
        assert_eq!(found, payload);
        assert_eq!(flags, [(0xff_ffff, false), (0, false), (1, true)]);
        split(&run[..5], 256, |_| panic!("there is no header"));
    }
}
