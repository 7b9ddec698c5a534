//! The receive fast path, for records that hold a single-packet SEND or RDMA WRITE without immediate data, or a
//! positive ACK, for an RC QP from its peer. All other records, and those that fail a check here, take the slow path,
//! which makes the same decisions one by one.

use ferroce_device::is_default_partition;
use ferroce_proto::rc::Message;
use ferroce_proto::time::Instant;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ICRC_LEN as ICRC;
use ferroce_wire::transport::{Aeth, Bth, Reth};

use super::super::adapter::Adapter;
use super::super::qp_stats::Class;
use super::super::queue_pair::{Core, Inner};
use super::{INFO, RingState};

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

impl RingState {
    /// Handles a record of `length` bytes that was copied completely. Returns false, with no state changed, if the slow
    /// path has to handle it.
    #[inline]
    pub(super) fn receive_fast(
        &mut self,
        adapter: &Adapter,
        core: &Core,
        inner: &mut Inner,
        length: usize,
        now: Instant,
    ) -> bool {
        let Some((info, packet)) = self.record[..length].split_first_chunk::<INFO>() else {
            return false;
        };
        let Some((bth, rest)) = Bth::split(packet) else { return false };
        let behind = usize::from(bth.pad) + ICRC;
        let is_plain = bth.version == 0 && is_default_partition(bth.partition);
        let is_from_peer = inner.peer_info.is_some_and(|known| is_same(&known, info));
        if !is_from_peer || !is_plain || rest.len() < behind {
            return false;
        }
        let rest = &rest[..rest.len() - behind];
        let (class, payload) = match bth.opcode {
            Opcode::RC_ACKNOWLEDGE => {
                let Some((aeth, [])) = Aeth::split(rest) else { return false };
                if !inner.endpoint.handle_ack(now, bth.psn, aeth, &&*adapter.memory) {
                    return false;
                }
                (Class::Ack, 0)
            }
            Opcode::RC_SEND_ONLY => {
                let message = Message { bth: &bth, reth: None, payload: rest };
                let mut receives = core.receives.queue.lock();
                let (queue, memory) = (Some(&mut *receives), &mut &*adapter.memory);
                if !inner.endpoint.handle_message(&message, 1, queue, memory) {
                    return false;
                }
                (Class::Send, rest.len())
            }
            Opcode::RC_RDMA_WRITE_ONLY => {
                let Some((reth, payload)) = Reth::split(rest) else { return false };
                let message = Message { bth: &bth, reth: Some(&reth), payload };
                if !inner.endpoint.handle_message(&message, 1, None, &mut &*adapter.memory) {
                    return false;
                }
                (Class::Write, payload.len())
            }
            _ => return false,
        };
        inner.heard = Some(now);
        inner.stats.received_whole(class, payload);
        self.received.add(1, length - INFO);
        true
    }
}
