//! What a run shows of itself: every frame as it was sent, as it was delivered, and where it was dropped.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ferroce_proto::time::Instant;

use crate::host::HostId;
use crate::statistics::DropCause;

/// Sees everything that happens to frames, in the order of time.
pub trait Trace {
    /// A host was added.
    fn host_added(&mut self, _host: HostId, _addresses: &[IpAddr]) {}

    /// A frame was sent, delivered or dropped.
    fn record(&mut self, record: &Record<'_>);
}

/// Nobody looks.
impl Trace for () {
    #[inline]
    fn record(&mut self, _record: &Record<'_>) {}
}

/// Somebody may look.
impl<T: Trace> Trace for Option<T> {
    fn host_added(&mut self, host: HostId, addresses: &[IpAddr]) {
        if let Some(trace) = self {
            trace.host_added(host, addresses);
        }
    }

    fn record(&mut self, record: &Record<'_>) {
        if let Some(trace) = self {
            trace.record(record);
        }
    }
}

/// A frame at one point of its way.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// When.
    pub time: Instant,
    /// Which point.
    pub point: Point,
    /// Who sent it, or got it; for a frame dropped behind the uplink, who sent it.
    pub host: HostId,
    /// The frame as it was there: as sent, or with all marks and flipped bits.
    pub frame: &'a [u8],
    /// For a frame sent, what its uplink did to it; otherwise all that it has met.
    pub faults: &'a Faults,
}

/// A point of a frame's way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Point {
    /// A host gave it to its uplink.
    Sent,
    /// A host gave it to its uplink, and it went no further.
    SentInVain(DropCause),
    /// It was dropped behind its uplink.
    Dropped(DropCause),
    /// A host was given it.
    Delivered,
}

impl Point {
    /// A number for the hash.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Sent => 0,
            Self::Delivered => 1,
            Self::SentInVain(cause) => 0x10 + cause as u64,
            Self::Dropped(cause) => 0x20 + cause as u64,
        }
    }

    /// Why it was dropped, if it was.
    pub const fn cause(self) -> Option<DropCause> {
        match self {
            Self::Sent | Self::Delivered => None,
            Self::SentInVain(cause) | Self::Dropped(cause) => Some(cause),
        }
    }
}

/// What a frame met and survived.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// It was marked "congestion experienced".
    pub marked: bool,
    /// A copy of it was made.
    pub duplicated: bool,
    /// It is such a copy.
    pub is_copy: bool,
    /// The bits that flipped, counted from the frame's first, the most significant of a byte first.
    pub flipped: Vec<u32>,
    /// The longer way it took.
    pub delayed: Duration,
}

impl Faults {
    /// Whether it met nothing.
    pub fn is_empty(&self) -> bool {
        let Self { marked, duplicated, is_copy, flipped, delayed } = self;
        !marked && !duplicated && !is_copy && flipped.is_empty() && delayed.is_zero()
    }

    /// As new, keeping the allocation.
    pub(crate) fn clear(&mut self) {
        let mut flipped = std::mem::take(&mut self.flipped);
        flipped.clear();
        *self = Self { flipped, ..Self::default() };
    }

    /// Adds what the next link did.
    pub(crate) fn extend(&mut self, more: &Self) {
        self.marked |= more.marked;
        self.duplicated |= more.duplicated;
        self.is_copy |= more.is_copy;
        self.flipped.extend_from_slice(&more.flipped);
        self.delayed += more.delayed;
    }
}

/// For a comment: `duplicated, corrupted bit 123`.
impl fmt::Display for Faults {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.is_copy {
            parts.push("duplicate".to_owned());
        } else if self.duplicated {
            parts.push("duplicated".to_owned());
        }
        if self.marked {
            parts.push("marked CE".to_owned());
        }
        if let [first, more @ ..] = self.flipped.as_slice() {
            let bits = more.iter().fold(first.to_string(), |bits, bit| format!("{bits} {bit}"));
            parts.push(format!("corrupted bit{} {bits}", if more.is_empty() { "" } else { "s" }));
        }
        if !self.delayed.is_zero() {
            parts.push(format!("delayed {} ns", self.delayed.as_nanos()));
        }
        f.write_str(&parts.join(", "))
    }
}
