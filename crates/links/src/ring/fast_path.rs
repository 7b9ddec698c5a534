//! Records that were copied completely, for an RC QP from its peer: the receive fast path.

use ferroce_device::receive_fast;
use ferroce_proto::time::Instant;

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
    pub(super) fn receive_from_peer<H: Embedder>(
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
        let is_from_peer = H::peer_info(state).is_some_and(|known| is_same(&known, info));
        if !is_from_peer || !receive_fast(host, handle, state, packet, 1, now) {
            return false;
        }
        self.received.add(1, length - INFO);
        true
    }
}
