//! The receive fast path, for records that hold a single-packet SEND or RDMA WRITE without immediate data, or a
//! positive ACK, for an RC QP from its peer. All other records, and those that fail a check here, take the slow path,
//! which makes the same decisions one by one.

use ferroce_device::{Object, ReceiveSource, State as _, is_default_partition};
use ferroce_proto::rc::Message;
use ferroce_proto::time::Instant;
use ferroce_wire::opcode::{Opcode, Operation};
use ferroce_wire::packet::ICRC_LEN as ICRC;
use ferroce_wire::transport::{Aeth, Bth, Reth};

use super::record::INFO;
use super::rx::RingReceiver;
use crate::embedder::Embedder;

/// Compares word by word, inline: comparing arrays would call a function.
#[inline(always)]
fn is_same(one: &[u8; INFO], other: &[u8; INFO]) -> bool {
    let words = one.chunks(8).zip(other.chunks(8));
    let word = |bytes: &[u8]| match bytes.first_chunk() {
        Some(whole) => u64::from_ne_bytes(*whole),
        None => bytes.iter().fold(0, |word, byte| word << 8 | u64::from(*byte)),
    };
    words.fold(0, |differences, (one, other)| differences | (word(one) ^ word(other))) == 0
}

impl RingReceiver {
    /// Handles a record of `length` bytes that was copied completely. Returns false, with no state changed, if the slow
    /// path has to handle it.
    #[inline]
    pub(super) fn receive_fast<H: Embedder>(
        &mut self,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        length: usize,
        now: Instant,
    ) -> bool {
        let Some((info, packet)) = self.record[..length].split_first_chunk::<INFO>() else {
            return false;
        };
        let Some((bth, rest)) = Bth::split(packet) else { return false };
        let behind = usize::from(bth.pad) + ICRC;
        let is_plain = bth.version == 0 && is_default_partition(bth.partition);
        let is_from_peer = H::peer_info(state).is_some_and(|known| is_same(&known, info));
        if !is_from_peer || !is_plain || rest.len() < behind {
            return false;
        }
        let rest = &rest[..rest.len() - behind];
        let endpoint = &mut state.queue_pair().endpoint;
        // Counted where the operation is a constant: it selects a counter.
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
                if !endpoint.handle_message(&message, 1, queue, memory) {
                    return false;
                }
                drop(receives);
                host.received_message(state, Operation::Send, rest.len(), now);
            }
            Opcode::RC_RDMA_WRITE_ONLY => {
                let Some((reth, payload)) = Reth::split(rest) else { return false };
                let message = Message { bth: &bth, reth: Some(&reth), payload };
                if !endpoint.handle_message(&message, 1, None, &mut host.memory(now)) {
                    return false;
                }
                host.received_message(state, Operation::Write, payload.len(), now);
            }
            _ => return false,
        }
        self.received.add(1, length - INFO);
        true
    }
}
