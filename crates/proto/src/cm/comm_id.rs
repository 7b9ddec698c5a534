//! Communication IDs of connections and resolutions.

use ferroce_wire::cm::CommId;
use ferroce_wire::mad::TransactionId;

/// Allocates IDs: every number once before any is reused, in an order that depends on the seed.
#[derive(Debug)]
pub(super) struct CommIds {
    counter: u32,
    key: u32,
    transactions: u32,
    /// Fixed top 8 bits of every ID, if any.
    slot: Option<u8>,
}

impl CommIds {
    pub(super) fn new(seed: u64) -> Self {
        let [key, transactions] = [seed as u32, (seed >> 32) as u32];
        Self { counter: 0, key, transactions, slot: None }
    }

    /// The same with fixed top 8 bits.
    pub(super) fn within(seed: u64, slot: Option<u8>) -> Self {
        Self { slot, ..Self::new(seed) }
    }

    /// Returns an unused ID. 0 is never used: it means "unknown" in messages.
    pub(super) fn next(&mut self, in_use: impl Fn(CommId) -> bool) -> CommId {
        loop {
            self.counter = self.counter.wrapping_add(1);
            let number = self.counter ^ self.key;
            let id = CommId(match self.slot {
                None => permute(number),
                Some(slot) => u32::from(slot) << 24 | permute_24(number),
            });
            if id.0 != 0 && !in_use(id) {
                return id;
            }
        }
    }

    /// The transaction ID of an exchange that starts with this ID (IBA 12.6): the ID below a manager-specific number,
    /// as in Linux.
    pub(super) fn transaction(&self, id: CommId) -> TransactionId {
        TransactionId(u64::from(self.transactions) << 32 | u64::from(id.0))
    }
}

/// A permutation of 32-bit numbers without a visible order: multiplications by odd factors and xor-shifts, each
/// invertible.
const fn permute(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x7feb_352d);
    let number = (number ^ number >> 15).wrapping_mul(0x846c_a68b);
    number ^ number >> 16
}

/// The same for 24 bits: each step is invertible on the low 24 bits.
const fn permute_24(number: u32) -> u32 {
    const MASK_24: u32 = 0x00ff_ffff;
    let number = number & MASK_24;
    let number = (number ^ number >> 12).wrapping_mul(0x7feb_352d) & MASK_24;
    let number = (number ^ number >> 11).wrapping_mul(0x846c_a68b) & MASK_24;
    number ^ number >> 12
}
