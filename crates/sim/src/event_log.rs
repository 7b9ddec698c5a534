//! The event log: every frame as it was sent, as it was delivered, and where it was dropped.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ferroce_proto::time::Instant;

use crate::host::HostId;
use crate::statistics::DropCause;
use crate::topology::TrunkId;

/// Receives a record of every event of a frame, in order of time.
pub trait EventLog {
    /// Called when a host is added.
    fn host_added(&mut self, _host: HostId, _addresses: &[IpAddr]) {}

    /// Called when a frame is sent, delivered or dropped.
    fn record(&mut self, record: &FrameRecord<'_>);

    /// Called when a switch passes a frame to a link to another switch: as [`FrameEvent::Sent`], or with the reason why the
    /// link dropped it.
    fn crosses(&mut self, _trunk: TrunkId, _record: &FrameRecord<'_>) {}
}

/// Discards all records.
impl EventLog for () {
    #[inline]
    fn record(&mut self, _record: &FrameRecord<'_>) {}
}

/// Discards all records if `None`.
impl<T: EventLog> EventLog for Option<T> {
    fn host_added(&mut self, host: HostId, addresses: &[IpAddr]) {
        if let Some(event_log) = self {
            event_log.host_added(host, addresses);
        }
    }

    fn record(&mut self, record: &FrameRecord<'_>) {
        if let Some(event_log) = self {
            event_log.record(record);
        }
    }

    fn crosses(&mut self, trunk: TrunkId, record: &FrameRecord<'_>) {
        if let Some(event_log) = self {
            event_log.crosses(trunk, record);
        }
    }
}

/// One event of a frame.
#[derive(Clone, Copy, Debug)]
pub struct FrameRecord<'a> {
    /// The time of the event.
    pub time: Instant,
    /// The kind of event.
    pub event: FrameEvent,
    /// The sender, for a frame sent or dropped; the receiver, for a frame delivered.
    pub host: HostId,
    /// The bytes at that point: as sent, or with all ECN marks and flipped bits.
    pub frame: &'a [u8],
    /// The faults of the uplink for a frame sent; otherwise all faults so far.
    pub faults: &'a Faults,
}

/// Kinds of frame events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FrameEvent {
    /// A host sent it, and its uplink forwarded it.
    Sent,
    /// A host sent it, and its uplink dropped it.
    SentThenDropped(DropCause),
    /// The switch, the downlink or the receiver dropped it.
    Dropped(DropCause),
    /// It was delivered to a host.
    Delivered,
}

impl FrameEvent {
    /// Returns the code that enters the run hash.
    pub(crate) fn code(self) -> u64 {
        match self {
            Self::Sent => 0,
            Self::Delivered => 1,
            Self::SentThenDropped(cause) => 0x10 + cause as u64,
            Self::Dropped(cause) => 0x20 + cause as u64,
        }
    }

    /// Returns the cause if the frame was dropped.
    pub const fn cause(self) -> Option<DropCause> {
        match self {
            Self::Sent | Self::Delivered => None,
            Self::SentThenDropped(cause) | Self::Dropped(cause) => Some(cause),
        }
    }
}

/// The faults that were applied to a frame, other than drops.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// It was marked CE ("congestion experienced").
    pub marked: bool,
    /// A copy of it was made.
    pub duplicated: bool,
    /// It is such a copy itself.
    pub is_copy: bool,
    /// The bits that flipped, numbered from the first of the frame, most significant bit of a byte first.
    pub flipped: Vec<u32>,
    /// The extra delay, by which other frames may overtake it.
    pub delayed: Duration,
}

impl Faults {
    /// Whether no fault was applied.
    pub fn is_empty(&self) -> bool {
        let Self { marked, duplicated, is_copy, flipped, delayed } = self;
        !marked && !duplicated && !is_copy && flipped.is_empty() && delayed.is_zero()
    }

    /// Resets to no faults and keeps the allocation.
    pub(crate) fn clear(&mut self) {
        let mut flipped = std::mem::take(&mut self.flipped);
        flipped.clear();
        *self = Self { flipped, ..Self::default() };
    }

    /// Adds the faults of the next link.
    pub(crate) fn extend(&mut self, more: &Self) {
        self.marked |= more.marked;
        self.duplicated |= more.duplicated;
        self.is_copy |= more.is_copy;
        self.flipped.extend_from_slice(&more.flipped);
        self.delayed += more.delayed;
    }
}

/// Writes the faults as a capture comment: `duplicated, corrupted bit 123`.
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
