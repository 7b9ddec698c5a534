//! What was counted: for each link, each host and all together.

use std::fmt;

/// Why a frame did not arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// Lost on a link, by itself.
    Lost,
    /// Lost on a link, in a burst.
    Burst,
    /// The queue of a link was full.
    QueueFull,
    /// A partition was in the way.
    Partition,
    /// The switch knows nobody of that address.
    Unroutable,
    /// The receiver was paused, and its buffer with it.
    HostPaused,
    /// The receiver was dead.
    HostDown,
}

impl DropCause {
    /// All causes.
    pub const ALL: [Self; 7] = [
        Self::Lost,
        Self::Burst,
        Self::QueueFull,
        Self::Partition,
        Self::Unroutable,
        Self::HostPaused,
        Self::HostDown,
    ];
}

impl fmt::Display for DropCause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Lost => "lost",
            Self::Burst => "lost in a burst",
            Self::QueueFull => "queue full",
            Self::Partition => "partitioned",
            Self::Unroutable => "no such destination",
            Self::HostPaused => "receiver paused",
            Self::HostDown => "receiver down",
        })
    }
}

/// Frames dropped, by cause.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops([u64; DropCause::ALL.len()]);

impl Drops {
    /// How many were dropped for this cause.
    pub const fn of(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }

    /// How many were dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Causes that occurred, and how often.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> {
        let counted = DropCause::ALL.into_iter().zip(self.0);
        counted.filter(|(_, count)| *count > 0)
    }

    pub(crate) fn add(&mut self, cause: DropCause) {
        self.0[cause as usize] += 1;
    }
}

/// Causes and counts: `3 lost, 1 queue full`.
impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (cause, count)) in self.iter().enumerate() {
            write!(f, "{}{count} {cause}", if at == 0 { "" } else { ", " })?;
        }
        if self.total() == 0 { f.write_str("none") } else { Ok(()) }
    }
}

/// One direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Frames that were given to it.
    pub frames: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Frames it dropped.
    pub dropped: Drops,
    /// Frames it marked "congestion experienced".
    pub marked: u64,
    /// Frames in which it flipped bits.
    pub corrupted: u64,
    /// Copies it made.
    pub duplicated: u64,
    /// Frames that took the longer way.
    pub delayed: u64,
    /// Frames, copies among them, that overtook one sent before them.
    pub reordered: u64,
    /// The most bytes that ever waited.
    pub peak_backlog: usize,
}

/// One host. What became of its frames is counted here, wherever it happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Frames it sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames it sent, or copies of them, that were dropped on their way.
    pub dropped: Drops,
    /// Frames that it was given.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Timeouts it was told of.
    pub timeouts: u64,
    /// Times it was started again.
    pub restarts: u64,
}

/// The whole fabric.
///
/// Frames are conserved: `sent + duplicated + replicated = delivered + dropped + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that hosts sent.
    pub sent: u64,
    /// Copies that links made.
    pub duplicated: u64,
    /// Copies that the switch made, for the members of a multicast group besides the first.
    pub replicated: u64,
    /// Frames that hosts were given.
    pub delivered: u64,
    /// Frames that were dropped.
    pub dropped: Drops,
    /// Frames that are on their way, or wait for a host that is paused.
    pub in_flight: u64,
    /// Frames marked "congestion experienced".
    pub marked: u64,
    /// Frames with flipped bits; twice if on both links.
    pub corrupted: u64,
    /// Frames that overtook another on a link.
    pub reordered: u64,
}

impl Totals {
    /// Whether every frame is accounted for. If not, the simulator is wrong.
    pub fn are_conserved(&self) -> bool {
        self.sent + self.duplicated + self.replicated
            == self.delivered + self.dropped.total() + self.in_flight
    }
}

impl fmt::Display for Totals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, duplicated, replicated, delivered, dropped, in_flight, .. } = self;
        write!(f, "{sent} sent, {duplicated} duplicated, {replicated} replicated, ")?;
        write!(f, "{delivered} delivered, {} dropped ({dropped}), ", dropped.total())?;
        write!(f, "{in_flight} in flight, {} marked, ", self.marked)?;
        write!(f, "{} corrupted, {} reordered", self.corrupted, self.reordered)
    }
}
