//! The requests of one requester that are not yet finished, by PSN.
//!
//! PSNs wrap at 2^24, so they are counted on in 64 bits here: a *sequence* orders where a PSN cannot.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::{Opcode, OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;

use super::sink::Stamp;

/// Most requests kept for one requester.
const MOST: usize = 65_536;

/// Most requests kept for all requesters together, but for the few that each may always keep. A quarter of a kilobyte
/// each.
const MOST_TOGETHER: usize = 1 << 19;

/// Requests that each requester may keep.
const ALWAYS: usize = 4;

/// How many requests all windows hold together, so that no capture can make them hold too many.
#[derive(Debug, Default)]
pub(super) struct WindowBudget(usize);

impl WindowBudget {
    /// Whether a window that holds `own` requests must give one up before it takes another.
    pub(super) fn is_spent(&self, own: usize) -> bool {
        own >= MOST || (own >= ALWAYS && self.0 >= MOST_TOGETHER)
    }

    pub(super) fn take(&mut self) {
        self.0 += 1;
    }

    pub(super) fn give_back(&mut self) {
        self.0 -= 1;
    }
}

/// Where sequences start: room for packets from before the first one seen.
const ORIGIN: u64 = 1 << 32;

/// A packet with what the trackers need of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen<'a> {
    pub(super) stamp: Stamp,
    pub(super) packet: &'a Packet<'a>,
    pub(super) info: &'static OpcodeInfo,
    /// IPv4 identification.
    pub(super) identification: Option<u16>,
    /// Whether the side that asked for a connection sent this management datagram, where that is known.
    pub(super) from_active: Option<bool>,
    /// Known gaps of the capture before it.
    pub(super) gaps: u64,
}

/// A PSN and the sequence it stands for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub(super) psn: Psn,
    pub(super) sequence: u64,
}

impl Place {
    pub(super) fn first(psn: Psn) -> Self {
        Self { psn, sequence: ORIGIN }
    }

    /// The sequence of a PSN near this one.
    pub(super) fn sequence_of(self, psn: Psn) -> u64 {
        self.sequence.wrapping_add_signed(i64::from(psn.distance(self.psn)))
    }
}

/// One request packet, as first seen.
#[derive(Clone, Debug)]
pub(super) struct Slot {
    pub(super) sequence: u64,
    /// PSNs it takes: a READ takes one for each response packet.
    pub(super) span: u32,
    /// Whether `span` is sure: that of a READ follows from the path MTU.
    pub(super) span_known: bool,
    pub(super) psn: Psn,
    pub(super) opcode: Opcode,
    pub(super) payload: u32,
    /// Bytes that a READ asks for.
    pub(super) asked: u32,
    /// Bytes of the message that a WRITE's first packet announces.
    pub(super) announced: Option<u32>,
    pub(super) address: Option<u64>,
    pub(super) key: Option<u32>,
    pub(super) immediate: Option<u32>,
    pub(super) invalidate: Option<u32>,
    /// First time it was seen.
    pub(super) first: Stamp,
    /// Last time it was seen.
    pub(super) last: Stamp,
    /// How often it was sent, as far as is known.
    pub(super) sends: u32,
    /// Whether its first sending did not come past the capture.
    pub(super) first_lost: bool,
    /// IPv4 identification of the last time.
    pub(super) identification: Option<u16>,
    /// The packet that finished it.
    pub(super) finished: Option<Stamp>,
    /// The packet that refused it.
    pub(super) refused: Option<Stamp>,
    /// Responses so far, and their bytes.
    pub(super) responses: u32,
    pub(super) response_bytes: u64,
    /// Which of its responses comes next.
    pub(super) next_response: u32,
    /// A response is missing, and the requester is expected to ask again.
    pub(super) response_missing: bool,
    /// The capture lost responses.
    pub(super) response_gap: bool,
    /// Known gaps of the capture when it was sent.
    pub(super) gaps: u64,
}

impl Slot {
    pub(super) fn new(seen: &Seen<'_>, sequence: u64, mtu: Option<u32>) -> Self {
        let extensions = &seen.packet.extensions;
        let reading = seen.info.operation == Operation::ReadRequest;
        let asked = extensions.reth.filter(|_| reading).map_or(0, |reth| reth.length);
        let announced = extensions.reth.filter(|_| !reading).map(|reth| reth.length);
        let (span, span_known) = match mtu {
            // IBA 9.7.2.2: a READ takes as many PSNs as its response has packets.
            Some(mtu) => (asked.div_ceil(mtu).max(1), true),
            // 256 bytes is the smallest path MTU there is.
            None => (1, asked <= 256),
        };
        Self {
            sequence,
            span,
            span_known,
            psn: seen.packet.bth.psn,
            opcode: seen.packet.bth.opcode,
            payload: seen.packet.payload_len as u32,
            asked,
            announced,
            address: (extensions.reth.map(|reth| reth.address))
                .or(extensions.atomic.map(|atomic| atomic.address))
                .map(|address| address.0),
            key: (extensions.reth.map(|reth| reth.key))
                .or(extensions.atomic.map(|atomic| atomic.key))
                .map(|key| key.0),
            immediate: extensions.immediate.map(|immediate| immediate.value.0),
            invalidate: extensions.ieth.map(|ieth| ieth.key.0),
            first: seen.stamp,
            last: seen.stamp,
            sends: 1,
            first_lost: false,
            identification: seen.identification,
            finished: None,
            refused: None,
            responses: 0,
            response_bytes: 0,
            next_response: 0,
            response_missing: false,
            response_gap: false,
            gaps: seen.gaps,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.sequence + u64::from(self.span)
    }

    pub(super) fn info(&self) -> Option<&'static OpcodeInfo> {
        self.opcode.info()
    }

    /// Whether only a response of its own finishes it: an acknowledgement of a later request does not (IBA 9.7.5.1.1).
    pub(super) fn needs_response(&self) -> bool {
        self.info().is_some_and(|info| {
            matches!(
                info.operation,
                Operation::ReadRequest
                    | Operation::CompareSwap
                    | Operation::FetchAdd
                    | Operation::Flush
                    | Operation::AtomicWrite
            )
        })
    }
}

/// Slots in order of their sequence; not every sequence has one.
///
/// A capture decides in which order slots come and go, so every operation takes logarithmic time, and
/// [`Window::acknowledge`] visits a slot once when it is new and once for each time that the packet came again.
#[derive(Debug, Default)]
pub(super) struct Window {
    slots: BTreeMap<u64, Box<Slot>>,
    /// An acknowledgement has visited every slot before it, but for those in `revisit`.
    acknowledged: u64,
    /// Slots before `acknowledged` that the next acknowledgement visits again.
    revisit: BTreeSet<u64>,
    /// Slots that an acknowledgement passed though only a response of their own finishes them.
    passed: BTreeSet<u64>,
    /// The oldest request sent again since the last acknowledgement.
    sent_again: Option<u64>,
}

impl Window {
    pub(super) fn front(&self) -> Option<&Slot> {
        self.slots.first_key_value().map(|(_, slot)| &**slot)
    }

    pub(super) fn back(&self) -> Option<&Slot> {
        self.slots.last_key_value().map(|(_, slot)| &**slot)
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut Slot> {
        self.slots.last_entry().map(|entry| &mut **entry.into_mut())
    }

    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    pub(super) fn pop(&mut self) -> Option<Slot> {
        let (sequence, slot) = self.slots.pop_first()?;
        self.revisit.remove(&sequence);
        self.passed.remove(&sequence);
        Some(*slot)
    }

    /// Puts a slot in its place, and returns one that was there before.
    pub(super) fn insert(&mut self, slot: Slot) -> Option<Box<Slot>> {
        if slot.sequence < self.acknowledged {
            self.look_again(slot.sequence);
            self.revisit.insert(slot.sequence);
        }
        self.slots.insert(slot.sequence, Box::new(slot))
    }

    /// The slot whose span holds `sequence`.
    pub(super) fn find(&mut self, sequence: u64) -> Option<&mut Slot> {
        let (_, slot) = self.slots.range_mut(..=sequence).next_back()?;
        (sequence < slot.end()).then_some(&mut **slot)
    }

    /// Lets `visit` look at the slots that end before `sequence` and that no acknowledgement has visited since they
    /// were sent, oldest first. Returns the oldest of them, and of those after a request that was sent again, that
    /// still waits for a response.
    pub(super) fn acknowledge(
        &mut self,
        sequence: u64,
        mut visit: impl FnMut(&mut Slot),
    ) -> Option<u64> {
        let from = self.sent_again.take().unwrap_or(u64::MAX).min(self.acknowledged);
        let mut visit = |slot: &mut Slot, passed: &mut BTreeSet<u64>| {
            visit(slot);
            if slot.finished.is_none() {
                passed.insert(slot.sequence);
            }
        };
        while let Some(&first) = self.revisit.first() {
            let Some(slot) = self.slots.get_mut(&first) else {
                self.revisit.remove(&first);
                continue;
            };
            if slot.end() > sequence {
                break;
            }
            visit(slot, &mut self.passed);
            self.revisit.remove(&first);
        }
        if self.acknowledged < sequence {
            for (_, slot) in self.slots.range_mut(self.acknowledged..sequence) {
                if slot.end() > sequence {
                    break;
                }
                visit(slot, &mut self.passed);
            }
            self.acknowledged = sequence;
        }
        let oldest = *self.passed.range(from..).next()?;
        self.slots.get(&oldest).filter(|slot| slot.end() <= sequence).map(|slot| slot.sequence)
    }

    /// A request that has a slot was sent again: the next acknowledgement visits it once more.
    pub(super) fn look_again(&mut self, sequence: u64) {
        self.sent_again = Some(self.sent_again.map_or(sequence, |oldest| oldest.min(sequence)));
        let acknowledged = self.acknowledged;
        if let Some(slot) = self.find(sequence) {
            let start = slot.sequence;
            if start < acknowledged && slot.finished.is_none() {
                self.revisit.insert(start);
            }
        }
    }

    /// A response of its own finished the slot that starts at `sequence`.
    pub(super) fn answered(&mut self, sequence: u64) {
        self.passed.remove(&sequence);
        self.revisit.remove(&sequence);
    }
}
