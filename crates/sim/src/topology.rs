//! The switches between the hosts: one, or a leaf-spine network with equal-cost multipath (ECMP) routing.

use crate::header;
use crate::host::HostId;

/// How the switches are connected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Topology {
    /// One switch, to which all hosts are connected.
    #[default]
    Star,
    /// Two tiers: every leaf switch is connected to every spine switch. A frame between hosts of different leaves
    /// crosses the spine that a hash of its addresses and UDP ports selects, so that a flow stays on one path.
    LeafSpine(LeafSpine),
}

/// The dimensions of a leaf-spine network. Hosts are assigned to leaves in the order in which they are added.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LeafSpine {
    /// Hosts of each leaf, at least 1.
    pub hosts_per_leaf: u32,
    /// Number of leaves, at least 1. Hosts beyond the last leaf are connected to it.
    pub leaves: u32,
    /// Number of spines, at least 1.
    pub spines: u32,
}

/// One direction of a link between switches. The links from leaves to spines come first, then those from spines to
/// leaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct TrunkId(pub u32);

impl TrunkId {
    pub(crate) const fn index(self) -> usize {
        self.0 as usize
    }
}

impl LeafSpine {
    /// Returns the leaf of a host.
    pub fn leaf(&self, host: HostId) -> u32 {
        (host.0 / self.hosts_per_leaf.max(1)).min(self.leaves.saturating_sub(1))
    }

    /// Returns the number of links between switches, counting each direction.
    pub fn trunks(&self) -> u32 {
        2 * self.leaves * self.spines
    }

    /// Returns the link from a leaf to a spine.
    pub fn up(&self, leaf: u32, spine: u32) -> TrunkId {
        TrunkId(leaf * self.spines + spine)
    }

    /// Returns the link from a spine to a leaf.
    pub fn down(&self, spine: u32, leaf: u32) -> TrunkId {
        TrunkId(self.leaves * self.spines + spine * self.leaves + leaf)
    }

    /// Returns both directions of the link between a leaf and a spine, the one to the spine first; `None` if there is no such
    /// leaf or spine.
    pub fn link(&self, leaf: u32, spine: u32) -> Option<[TrunkId; 2]> {
        let exists = leaf < self.leaves && spine < self.spines;
        exists.then(|| [self.up(leaf, spine), self.down(spine, leaf)])
    }

    /// Returns the name of a link: `leaf0 to spine1`, `spine1 to leaf0`.
    pub fn name(&self, trunk: TrunkId) -> String {
        match trunk.0.checked_sub(self.leaves * self.spines) {
            None => format!("leaf{} to spine{}", trunk.0 / self.spines, trunk.0 % self.spines),
            Some(down) => format!("spine{} to leaf{}", down / self.leaves, down % self.leaves),
        }
    }

    /// Returns the spine at which a link to a spine ends; `None` for a link to a leaf.
    pub(crate) fn spine_of(&self, trunk: TrunkId) -> Option<u32> {
        (trunk.0 < self.leaves * self.spines).then(|| trunk.0 % self.spines)
    }

    /// Returns the spine for a frame: a hash of addresses and ports. Frames without ports use the first.
    pub(crate) fn spine(&self, frame: &[u8], salt: u64) -> u32 {
        let Some(flow) = header::flow(frame) else { return 0 };
        // FNV-1a and a final mix, since only the low bits of a product depend on all input bits.
        let mut hash = flow.iter().fold(0xcbf2_9ce4_8422_2325 ^ salt, |hash: u64, byte| {
            (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3)
        });
        hash = (hash ^ (hash >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        ((hash ^ (hash >> 32)) % u64::from(self.spines.max(1))) as u32
    }
}
