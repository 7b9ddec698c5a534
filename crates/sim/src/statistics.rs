//! Counters for each link, each host and the whole fabric.

use std::fmt;

/// Why a frame was dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DropCause {
    /// Random loss on a link.
    Lost,
    /// Burst loss on a link.
    Burst,
    /// The queue of a link was full.
    QueueFull,
    /// A partition separates sender and receiver.
    Partition,
    /// The switch has no route to the destination.
    Unroutable,
    /// The receiver was paused and dropped what arrived.
    HostPaused,
    /// The receiver had crashed.
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
    /// Returns the number of frames dropped for this cause.
    pub const fn of(&self, cause: DropCause) -> u64 {
        self.0[cause as usize]
    }

    /// Returns the number of frames dropped for any cause.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    /// Returns the causes that occurred, with their counts.
    pub fn iter(&self) -> impl Iterator<Item = (DropCause, u64)> {
        let counted = DropCause::ALL.into_iter().zip(self.0);
        counted.filter(|(_, count)| *count > 0)
    }

    pub(crate) fn add(&mut self, cause: DropCause) {
        self.0[cause as usize] += 1;
    }
}

/// Writes causes and counts: `3 lost, 1 queue full`.
impl fmt::Display for Drops {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (cause, count)) in self.iter().enumerate() {
            write!(f, "{}{count} {cause}", if at == 0 { "" } else { ", " })?;
        }
        if self.total() == 0 { f.write_str("none") } else { Ok(()) }
    }
}

/// Counters of one direction of a link.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkStatistics {
    /// Frames that entered the link.
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
    /// Frames that were given extra delay.
    pub delayed: u64,
    /// Frames, including copies, that overtook an earlier frame.
    pub reordered: u64,
    /// The peak of bytes in the queue.
    pub peak_backlog: usize,
    /// The sum, over all frames, of bytes times nanoseconds in the queue: divided by a time, the mean bytes queued.
    pub byte_nanoseconds: u128,
}

/// Counters of one host. Drops of its frames are counted here, wherever they happened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatistics {
    /// Frames it sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Frames it sent, or copies of them, that were dropped.
    pub dropped: Drops,
    /// Frames delivered to it.
    pub delivered: u64,
    /// Their bytes.
    pub delivered_bytes: u64,
    /// Timer expirations.
    pub timeouts: u64,
    /// Restarts after a crash.
    pub restarts: u64,
}

/// Counters of the whole fabric.
///
/// Frames are conserved: `sent + duplicated + replicated = delivered + dropped + in_flight`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Frames that hosts sent.
    pub sent: u64,
    /// Copies that links made.
    pub duplicated: u64,
    /// Copies that the switch made for multicast members after the first.
    pub replicated: u64,
    /// Frames delivered to hosts.
    pub delivered: u64,
    /// Frames that were dropped.
    pub dropped: Drops,
    /// Frames in flight, or queued for a host that is paused.
    pub in_flight: u64,
    /// Frames marked "congestion experienced".
    pub marked: u64,
    /// Frames with flipped bits; counted twice if both links corrupted the frame.
    pub corrupted: u64,
    /// Frames that overtook another on a link.
    pub reordered: u64,
}

impl Totals {
    /// Whether every frame is accounted for. If not, the simulator has a bug.
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
