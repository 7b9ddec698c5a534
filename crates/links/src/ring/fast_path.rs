//! Records that were copied completely, for an RC QP from its peer: the receive fast path.

use ferroce_device::receive_fast;
use ferroce_proto::time::Instant;

use super::record::RecordBuffer;
use super::route::INFO;
use crate::embedder::Embedder;

/// Compares word by word, inline: comparing arrays would call a function. The last word overlaps the one before it.
#[inline(always)]
fn is_same(one: &[u8; INFO], other: &[u8; INFO]) -> bool {
    const { assert!(32 < INFO && INFO <= 40) };
    let differences = |at| word(one, at) ^ word(other, at);
    let first = differences(0) | differences(8) | differences(16) | differences(24);
    first | differences(INFO - 8) == 0
}

#[inline(always)]
fn word(bytes: &[u8; INFO], at: usize) -> u64 {
    bytes[at..].first_chunk().map_or(0, |word| u64::from_ne_bytes(*word))
}

impl RecordBuffer {
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
        let Some((info, packet)) = self.bytes[..length].split_first_chunk::<INFO>() else {
            return false;
        };
        let is_from_peer = H::peer_info(state).is_some_and(|known| is_same(&known, info));
        if !is_from_peer || !receive_fast(host, handle, state, packet, 1, now) {
            return false;
        }
        self.add(length - INFO);
        true
    }
}
