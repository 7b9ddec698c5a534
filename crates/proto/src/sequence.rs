//! PSNs wrap at 2^24 and have no total order, but the packets of one connection do: internally they are numbered in
//! 64 bits.

use ferroce_wire::number::Psn;

/// A packet's position in the sequence of its sender. Its low 24 bits are the PSN.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Sequence(u64);

impl Sequence {
    /// The first position of a sequence that starts with this PSN. The offset leaves room for the earlier PSNs that a
    /// stray packet may carry.
    pub(crate) const fn starting(psn: Psn) -> Self {
        Self((1 << 32) + psn.0 as u64)
    }

    pub(crate) const fn psn(self) -> Psn {
        Psn::new(self.0 as u32)
    }

    /// The position with this PSN that is nearest to `self` (IBA 9.7.2: half of the PSN space in either direction).
    pub(crate) const fn near(self, psn: Psn) -> Self {
        Self(self.0.wrapping_add_signed(psn.distance(self.psn()) as i64))
    }

    pub(crate) const fn plus(self, packets: u32) -> Self {
        Self(self.0 + packets as u64)
    }

    pub(crate) const fn before(self) -> Self {
        Self(self.0 - 1)
    }

    /// Packets from `earlier` to this one.
    pub(crate) const fn since(self, earlier: Self) -> u32 {
        self.0.saturating_sub(earlier.0) as u32
    }
}
