//! The receive fast path, for packets that a transmit queue hands over and that hold a whole SEND or RDMA WRITE without
//! immediate data, or a positive ACK. All others, and those that fail a check here, take the general way
//! ([`Device::arrive`](crate::Device::arrive)), which makes the same decisions one by one.

use ferroce_proto::rc::Message;
use ferroce_proto::time::Instant;
use ferroce_wire::opcode::{Opcode, Operation};
use ferroce_wire::packet::ICRC_LEN;
use ferroce_wire::transport::{Aeth, Bth, Reth};

use crate::arrival::is_default_partition;
use crate::host::Host;
use crate::queue_pair::{Object, ReceiveSource};

/// Gives a packet of its peer, from the BTH to the ICRC, to the transport of an RC QP. `packets`: how many the peer has sent
/// as this one. Returns false, with no state changed, if it has to go the general way.
#[inline]
pub fn receive_fast<H: Host>(
    host: &H,
    handle: &H::Handle,
    state: &mut H::State,
    packet: &[u8],
    packets: u32,
    now: Instant,
) -> bool {
    let Some((bth, rest)) = Bth::split(packet) else { return false };
    let behind = usize::from(bth.pad) + ICRC_LEN;
    let is_plain = bth.version == 0 && is_default_partition(bth.partition);
    if !is_plain || rest.len() < behind {
        return false;
    }
    let rest = &rest[..rest.len() - behind];
    let endpoint = &mut state.endpoint;
    // Told where the operation is a constant: it selects a counter.
    match bth.opcode {
        Opcode::RC_ACKNOWLEDGE => {
            let Some((aeth, [])) = Aeth::split(rest) else { return false };
            if !endpoint.handle_ack(now, bth.psn, aeth, &host.memory(now)) {
                return false;
            }
            host.received_message(state, Operation::Acknowledge, 0, now);
        }
        Opcode::RC_SEND_ONLY => {
            let message = Message { bth: &bth, reth: None, payload: rest };
            let mut receives = handle.receives().queue().lock();
            let (queue, memory) = (Some(&mut *receives), &mut host.memory(now));
            if !endpoint.handle_message(&message, packets, queue, memory) {
                return false;
            }
            drop(receives);
            host.received_message(state, Operation::Send, rest.len(), now);
        }
        Opcode::RC_RDMA_WRITE_ONLY => {
            let Some((reth, payload)) = Reth::split(rest) else { return false };
            let message = Message { bth: &bth, reth: Some(&reth), payload };
            if !endpoint.handle_message(&message, packets, None, &mut host.memory(now)) {
                return false;
            }
            host.received_message(state, Operation::Write, payload.len(), now);
        }
        _ => return false,
    }
    true
}
