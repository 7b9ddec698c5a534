//! Names for connections and questions.

use ferroce_wire::cm::CommId;
use ferroce_wire::mad::TransactionId;

/// Gives out names: every number once before any comes back, in an order that follows from the seed.
#[derive(Debug)]
pub(super) struct Names {
    counter: u32,
    key: u32,
    transactions: u32,
    /// The top 8 bits of every name, where they are given.
    slot: Option<u8>,
}

impl Names {
    pub(super) fn new(seed: u64) -> Self {
        let [key, transactions] = [seed as u32, (seed >> 32) as u32];
        Self { counter: 0, key, transactions, slot: None }
    }

    /// The same with names whose top 8 bits are these.
    pub(super) fn within(seed: u64, slot: Option<u8>) -> Self {
        Self { slot, ..Self::new(seed) }
    }

    /// A name that is not in use. 0 is none's: it stands for "not known" in messages.
    pub(super) fn next(&mut self, in_use: impl Fn(CommId) -> bool) -> CommId {
        loop {
            self.counter = self.counter.wrapping_add(1);
            let number = self.counter ^ self.key;
            let id = CommId(match self.slot {
                None => scatter(number),
                Some(slot) => u32::from(slot) << 24 | scatter_24(number),
            });
            if id.0 != 0 && !in_use(id) {
                return id;
            }
        }
    }

    /// The transaction of the messages that this name begins (IBA 12.6): the name itself below a number of the
    /// manager's own, as Linux does.
    pub(super) fn transaction(&self, id: CommId) -> TransactionId {
        TransactionId(u64::from(self.transactions) << 32 | u64::from(id.0))
    }
}

/// A permutation of 32-bit numbers that leaves no order to see: odd factors and shifted exclusive-ors, each of which
/// can be undone.
const fn scatter(number: u32) -> u32 {
    let number = (number ^ number >> 16).wrapping_mul(0x7feb_352d);
    let number = (number ^ number >> 15).wrapping_mul(0x846c_a68b);
    number ^ number >> 16
}

/// The same for the low 24 bits: each step is undone by one of 24 bits, so the others play no part.
const fn scatter_24(number: u32) -> u32 {
    const LOW: u32 = 0x00ff_ffff;
    let number = number & LOW;
    let number = (number ^ number >> 12).wrapping_mul(0x7feb_352d) & LOW;
    let number = (number ^ number >> 11).wrapping_mul(0x846c_a68b) & LOW;
    number ^ number >> 12
}
