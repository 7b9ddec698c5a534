//! A running hash over all frames sent, delivered and dropped: equal runs have equal hashes.

use crate::event_log::FrameRecord;

/// A 64-bit hash of a run. It is fast and depends on every bit; it is not cryptographic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RunHash(u64);

/// The odd constants of xxHash64.
const PRIMES: [u64; 4] =
    [0x9e37_79b1_85eb_ca87, 0xc2b2_ae3d_27d4_eb4f, 0x1656_67b1_9e37_79f9, 0x85eb_ca77_c2b2_ae63];

impl Default for RunHash {
    fn default() -> Self {
        Self(0x27d4_eb2f_1656_67c5)
    }
}

impl RunHash {
    /// Adds a number.
    #[inline]
    pub fn word(&mut self, word: u64) {
        let mixed = (self.0 ^ word).wrapping_mul(PRIMES[0]);
        self.0 = (mixed ^ (mixed >> 29)).wrapping_mul(PRIMES[1]).rotate_left(31);
    }

    /// Adds bytes and their count.
    pub fn bytes(&mut self, bytes: &[u8]) {
        // Four independent lanes, for instruction-level parallelism: payloads are most of the input.
        let mut lanes = PRIMES;
        let mut blocks = bytes.chunks_exact(32);
        for block in &mut blocks {
            for (lane, word) in lanes.iter_mut().zip(block.chunks_exact(8)) {
                *lane = (*lane ^ little_endian(word)).wrapping_mul(PRIMES[1]).rotate_left(31);
            }
        }
        for lane in lanes {
            self.word(lane);
        }
        for rest in blocks.remainder().chunks(8) {
            self.word(little_endian(rest));
        }
        self.word(bytes.len() as u64);
    }

    /// Adds an event of a frame: time, kind, host and bytes.
    pub fn record(&mut self, record: &FrameRecord<'_>) {
        self.word(record.time.as_nanos());
        self.word(record.event.code() << 32 | u64::from(record.host.0));
        self.bytes(record.frame);
    }

    /// As [`RunHash::record`], with only the first bytes of the frame, and its length.
    pub(crate) fn record_start(&mut self, record: &FrameRecord<'_>, bytes: usize) {
        let frame = &record.frame[..record.frame.len().min(bytes)];
        self.record(&FrameRecord { frame, ..*record });
        self.word(record.frame.len() as u64);
    }

    /// Returns the hash of everything added so far.
    pub fn value(self) -> u64 {
        let mixed = (self.0 ^ (self.0 >> 33)).wrapping_mul(PRIMES[2]);
        mixed ^ (mixed >> 29)
    }
}

/// Reads up to eight bytes as a little-endian number.
#[inline]
fn little_endian(bytes: &[u8]) -> u64 {
    let mut word = [0; 8];
    word[..bytes.len()].copy_from_slice(bytes);
    u64::from_le_bytes(word)
}
