//! Aggregates: consecutive packets of one message in one record, so that the path MTU does not limit how much is copied at once.
//!
//! An aggregate of MIDDLE packets has the header of the first, the ACK request of the last, and the payload of all. An aggregate of
//! all packets of a message or of a READ response is the ONLY packet that it would be with a larger MTU. The transport
//! handles either in one call (`QueuePair::handle_run`). Aggregates exist only in rings: where packets are captured or faults
//! are injected, each packet is separate.

#[cfg(test)]
mod tests;

use ferroce_device::tuning::shared_memory::MAX_PAYLOAD;
use ferroce_wire::number::Psn;
use ferroce_wire::opcode::{Opcode, Position, Transport};
use ferroce_wire::packet::ICRC_LEN as ICRC;
use ferroce_wire::transport::{Aeth, Bth};

/// The maximum number of packets in an aggregate.
#[inline]
pub(super) fn max_packets(mtu: u16) -> u32 {
    // A shift, because path MTUs are powers of two and division is slow.
    (MAX_PAYLOAD >> mtu.checked_ilog2().unwrap_or(0)) as u32
}

/// How many bytes longer the separate packets would be than the aggregate.
#[inline]
pub(super) fn overhead(bth: &Bth, packets: u32) -> usize {
    if packets == 1 {
        return 0;
    }
    // Both the first and the last packet of a READ response have an AETH.
    let is_read = bth.opcode == Opcode::RC_RDMA_READ_RESPONSE_ONLY;
    (packets as usize - 1) * (Bth::LEN + ICRC) + if is_read { Aeth::LEN } else { 0 }
}

/// The number of packets in an aggregate that starts with this header; 1 for a single packet.
#[inline]
pub(super) fn packets(bth: &Bth, payload: usize, mtu: u16) -> u32 {
    if is_single(payload, mtu) { 1 } else { packets_of_long(bth, payload, mtu) }
}

/// Whether a payload of this length fits in one packet, whatever its header.
#[inline]
pub(super) fn is_single(payload: usize, mtu: u16) -> bool {
    payload <= usize::from(mtu)
}

fn packets_of_long(bth: &Bth, payload: usize, mtu: u16) -> u32 {
    let mtu = usize::from(mtu).max(1);
    let packets = match opcodes(bth.opcode) {
        // The transport rejects a length that is not a multiple of the MTU.
        Some([middle, ..]) if middle == bth.opcode => payload / mtu,
        Some(_) => payload.div_ceil(mtu),
        None => 1,
    };
    packets.max(1) as u32
}

/// The opcodes of the first, middle and last packets of an aggregate with this opcode: FIRST, MIDDLE and LAST, or MIDDLE alone.
/// `None` if there are no aggregates with it.
fn opcodes(opcode: Opcode) -> Option<[Opcode; 3]> {
    Some(match opcode {
        Opcode::RC_SEND_ONLY => {
            [Opcode::RC_SEND_FIRST, Opcode::RC_SEND_MIDDLE, Opcode::RC_SEND_LAST]
        }
        Opcode::RC_RDMA_WRITE_ONLY => {
            [Opcode::RC_RDMA_WRITE_FIRST, Opcode::RC_RDMA_WRITE_MIDDLE, Opcode::RC_RDMA_WRITE_LAST]
        }
        Opcode::RC_RDMA_READ_RESPONSE_ONLY => [
            Opcode::RC_RDMA_READ_RESPONSE_FIRST,
            Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
            Opcode::RC_RDMA_READ_RESPONSE_LAST,
        ],
        opcode => {
            let info = opcode.info()?;
            let is_reliable = info.transport == Transport::ReliableConnection;
            (is_reliable && info.position == Position::Middle).then_some([opcode; 3])?
        }
    })
}

/// The payload length of a packet or aggregate with `behind` bytes after its BTH.
#[inline]
pub(super) fn payload(bth: &Bth, behind: usize) -> usize {
    let headers = bth.opcode.info().map_or(0, |info| info.extensions_len);
    behind.saturating_sub(headers + usize::from(bth.pad) + ICRC)
}

/// Calls `each` with every packet of an aggregate, from the BTH to the space for the ICRC.
pub(super) fn split(aggregate: &[u8], mtu: u16, mut each: impl FnMut(&mut [u8])) {
    let Some((header, rest)) = aggregate.split_first_chunk::<{ Bth::LEN }>() else { return };
    let bth = Bth::parse(header);
    let length = payload(&bth, rest.len());
    let Some(start) = rest.len().checked_sub(length + usize::from(bth.pad) + ICRC) else { return };
    let (extensions, body) = rest.split_at(start);
    let [first, middle, last] = opcodes(bth.opcode).unwrap_or([bth.opcode; 3]);
    let mut packet = Vec::with_capacity(Bth::LEN + extensions.len() + usize::from(mtu) + ICRC);
    let mut parts = body[..length].chunks(usize::from(mtu).max(1)).zip(0..).peekable();
    while let Some((part, index)) = parts.next() {
        let is_last = parts.peek().is_none();
        let opcode = match index {
            0 => first,
            _ if is_last => last,
            _ => middle,
        };
        let bth = Bth {
            opcode,
            psn: Psn::new(bth.psn.0.wrapping_add(index)),
            ack_request: bth.ack_request && is_last,
            solicited: bth.solicited && is_last,
            pad: if is_last { bth.pad } else { 0 },
            ..bth
        };
        packet.clear();
        packet.extend_from_slice(&bth.to_bytes());
        // The first and the last packet of a READ response have an AETH; only the first packet of a WRITE has a RETH.
        let has_headers = opcode.info().is_some_and(|info| info.extensions_len > 0);
        packet.extend_from_slice(if has_headers { extensions } else { &[] });
        packet.extend_from_slice(part);
        packet.resize(packet.len() + usize::from(bth.pad) + ICRC, 0);
        each(&mut packet);
    }
}
