//! Outstanding requests of one requester, by PSN.
//!
//! PSNs wrap at 2^24; here they are extended to 64-bit *sequence numbers*, which have a total order.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::{Opcode, OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;

use super::stamp::Stamp;

/// Limit of requests kept for one requester.
const MAX_PER_REQUESTER: usize = 65_536;

/// Limit of requests kept for all requesters together, a quarter of a kilobyte each. [`MIN_PER_REQUESTER`] are always
/// allowed.
const MAX_TOTAL: usize = 1 << 19;

/// The smallest path MTU.
const MIN_MTU: u32 = 256;

/// Requests that each requester may keep even when the total is exhausted.
const MIN_PER_REQUESTER: usize = 4;

/// Number of requests held by all windows, which bounds the memory of any capture.
#[derive(Debug, Default)]
pub(super) struct WindowBudget(usize);

impl WindowBudget {
    /// Whether a window that holds `own` requests must evict one before it adds another.
    pub(super) fn is_exhausted(&self, own: usize) -> bool {
        own >= MAX_PER_REQUESTER || (own >= MIN_PER_REQUESTER && self.0 >= MAX_TOTAL)
    }

    pub(super) fn acquire(&mut self) {
        self.0 += 1;
    }

    pub(super) fn release(&mut self) {
        self.0 -= 1;
    }
}

/// Sequence number of the first packet seen, with headroom for earlier packets.
pub(super) const FIRST_SEQUENCE: u64 = 1 << 32;

/// A packet with the context that the trackers need.
#[derive(Clone, Copy, Debug)]
pub(super) struct ObservedPacket<'a> {
    pub(super) stamp: Stamp,
    pub(super) packet: &'a Packet<'a>,
    pub(super) info: &'static OpcodeInfo,
    /// IPv4 identification.
    pub(super) identification: Option<u16>,
    /// Whether the active side of a connection sent this management datagram, if known.
    pub(super) from_active: Option<bool>,
    /// Number of known capture gaps before it.
    pub(super) gaps: u64,
    /// Whether the capturing host sent it: the path can have duplicated only packets that it received.
    pub(super) outbound: bool,
    /// The time since the capturing host was last idle; `None` if it never was. Packets that arrive while a host is busy
    /// elsewhere wait in its buffers, and the capture shows them closer together than they were sent.
    pub(super) since_pause: Option<i64>,
}

/// A PSN and its 64-bit sequence number.
#[derive(Clone, Copy, Debug)]
pub(super) struct ExtendedPsn {
    pub(super) psn: Psn,
    pub(super) sequence: u64,
}

impl ExtendedPsn {
    pub(super) fn first(psn: Psn) -> Self {
        Self { psn, sequence: FIRST_SEQUENCE }
    }

    /// The sequence number of a PSN near this one.
    pub(super) fn sequence_of(self, psn: Psn) -> u64 {
        self.sequence.wrapping_add_signed(i64::from(psn.distance(self.psn)))
    }
}

/// State of one request packet.
#[derive(Clone, Debug)]
pub(super) struct TrackedRequest {
    pub(super) sequence: u64,
    /// PSNs it consumes: a READ consumes one per response packet.
    pub(super) psn_count: u32,
    /// Whether `psn_count` is final: that of a READ depends on the path MTU.
    pub(super) psn_count_known: bool,
    pub(super) psn: Psn,
    pub(super) opcode: Opcode,
    pub(super) payload: u32,
    /// Bytes requested by a READ.
    pub(super) read_length: u32,
    /// Message length in the RETH of a WRITE's first packet.
    pub(super) write_length: Option<u32>,
    pub(super) address: Option<u64>,
    pub(super) key: Option<u32>,
    pub(super) immediate: Option<u32>,
    pub(super) invalidate: Option<u32>,
    /// First transmission in the capture.
    pub(super) first: Stamp,
    /// Last transmission in the capture.
    pub(super) last: Stamp,
    /// Known number of transmissions, without `probes`.
    pub(super) sends: u32,
    /// Probes since it was last retransmitted.
    pub(super) probes: u32,
    /// When the first response to it was seen.
    pub(super) answered: Option<i64>,
    /// Whether its first transmission is not in the capture.
    pub(super) first_lost: bool,
    /// IPv4 identification of the last transmission.
    pub(super) identification: Option<u16>,
    /// Whether the last transmission asked for an ACK.
    pub(super) asks: bool,
    /// The packet that completed it.
    pub(super) finished: Option<Stamp>,
    /// The packet that refused it.
    pub(super) refused: Option<Stamp>,
    /// Response packets so far, and their payload bytes.
    pub(super) responses: u32,
    pub(super) response_bytes: u64,
    /// Index of the next response packet.
    pub(super) next_response: u32,
    /// A response is missing, and the requester is expected to repeat the request.
    pub(super) response_missing: bool,
    /// The capture lost responses.
    pub(super) response_gap: bool,
    /// Number of known capture gaps when it was sent.
    pub(super) gaps: u64,
}

impl TrackedRequest {
    pub(super) fn new(observed: &ObservedPacket<'_>, sequence: u64, mtu: Option<u32>) -> Self {
        let extensions = &observed.packet.extensions;
        let reading = observed.info.operation == Operation::ReadRequest;
        let read_length = extensions.reth.filter(|_| reading).map_or(0, |reth| reth.length);
        let write_length = extensions.reth.filter(|_| !reading).map(|reth| reth.length);
        let (psn_count, psn_count_known) = match mtu {
            // IBA 9.7.2.2: a READ consumes one PSN per response packet.
            Some(mtu) => (read_length.div_ceil(mtu).max(1), true),
            None => (1, read_length <= MIN_MTU),
        };
        Self {
            sequence,
            psn_count,
            psn_count_known,
            psn: observed.packet.bth.psn,
            opcode: observed.packet.bth.opcode,
            payload: observed.packet.payload_len as u32,
            read_length,
            write_length,
            address: (extensions.reth.map(|reth| reth.address))
                .or(extensions.atomic.map(|atomic| atomic.address))
                .map(|address| address.0),
            key: (extensions.reth.map(|reth| reth.key))
                .or(extensions.atomic.map(|atomic| atomic.key))
                .map(|key| key.0),
            immediate: extensions.immediate.map(|immediate| immediate.value.0),
            invalidate: extensions.ieth.map(|ieth| ieth.key.0),
            first: observed.stamp,
            last: observed.stamp,
            asks: observed.packet.bth.ack_request,
            sends: 1,
            probes: 0,
            answered: None,
            first_lost: false,
            identification: observed.identification,
            finished: None,
            refused: None,
            responses: 0,
            response_bytes: 0,
            next_response: 0,
            response_missing: false,
            response_gap: false,
            gaps: observed.gaps,
        }
    }

    pub(super) fn end(&self) -> u64 {
        self.sequence + u64::from(self.psn_count)
    }

    /// The end if the path MTU is the smallest.
    pub(super) fn max_end(&self) -> u64 {
        self.end().max(self.sequence + u64::from(self.read_length.div_ceil(MIN_MTU)))
    }

    /// The requester goes back, and may send as many probes as before.
    pub(super) fn count_probes_as_sends(&mut self) {
        self.sends += std::mem::take(&mut self.probes);
    }

    /// Bytes it sends or, for a READ, requests.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.payload) + u64::from(self.read_length)
    }

    pub(super) fn info(&self) -> Option<&'static OpcodeInfo> {
        self.opcode.info()
    }

    /// Whether only its own response completes it: an acknowledgement of a later request does not (IBA 9.7.5.1.1).
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

/// Requests in order of their sequence. Sequence numbers may be missing.
///
/// The capture controls the order of insertions and removals, so every operation takes logarithmic time, and
/// [`Window::acknowledge`] visits a request once when it is new and once per retransmission.
#[derive(Debug, Default)]
pub(super) struct Window {
    requests: BTreeMap<u64, Box<TrackedRequest>>,
    /// Every request before it was visited by an acknowledgement, except those in `revisit`.
    acknowledged: u64,
    /// Requests before `acknowledged` that the next acknowledgement revisits.
    revisit: BTreeSet<u64>,
    /// Requests that an acknowledgement passed although only their own response completes them.
    passed: BTreeSet<u64>,
    /// The oldest request retransmitted since the last acknowledgement.
    oldest_retransmitted: Option<u64>,
}

impl Window {
    pub(super) fn front(&self) -> Option<&TrackedRequest> {
        self.requests.first_key_value().map(|(_, request)| &**request)
    }

    pub(super) fn back(&self) -> Option<&TrackedRequest> {
        self.requests.last_key_value().map(|(_, request)| &**request)
    }

    pub(super) fn back_mut(&mut self) -> Option<&mut TrackedRequest> {
        self.requests.last_entry().map(|entry| &mut **entry.into_mut())
    }

    pub(super) fn len(&self) -> usize {
        self.requests.len()
    }

    pub(super) fn pop(&mut self) -> Option<TrackedRequest> {
        let (sequence, request) = self.requests.pop_first()?;
        self.revisit.remove(&sequence);
        self.passed.remove(&sequence);
        Some(*request)
    }

    /// Inserts a request and returns the one it replaces.
    pub(super) fn insert(&mut self, request: TrackedRequest) -> Option<Box<TrackedRequest>> {
        if request.sequence < self.acknowledged {
            self.mark_retransmitted(request.sequence);
            self.revisit.insert(request.sequence);
        }
        self.requests.insert(request.sequence, Box::new(request))
    }

    /// The request whose PSN range contains `sequence`.
    pub(super) fn find(&mut self, sequence: u64) -> Option<&mut TrackedRequest> {
        let (_, request) = self.requests.range_mut(..=sequence).next_back()?;
        (sequence < request.end()).then_some(&mut **request)
    }

    /// Calls `visit` for the requests that end before `sequence` and that no acknowledgement has visited since their last
    /// transmission, oldest first. Of these, and of those after a retransmitted request, returns the oldest that still
    /// waits for a response.
    pub(super) fn acknowledge(
        &mut self,
        sequence: u64,
        mut visit: impl FnMut(&mut TrackedRequest),
    ) -> Option<u64> {
        let from = self.oldest_retransmitted.take().unwrap_or(u64::MAX).min(self.acknowledged);
        let mut visit = |request: &mut TrackedRequest, passed: &mut BTreeSet<u64>| {
            visit(request);
            if request.finished.is_none() {
                passed.insert(request.sequence);
            }
        };
        while let Some(&first) = self.revisit.first() {
            let Some(request) = self.requests.get_mut(&first) else {
                self.revisit.remove(&first);
                continue;
            };
            if request.end() > sequence {
                break;
            }
            visit(request, &mut self.passed);
            self.revisit.remove(&first);
        }
        if self.acknowledged < sequence {
            for (_, request) in self.requests.range_mut(self.acknowledged..sequence) {
                if request.end() > sequence {
                    break;
                }
                visit(request, &mut self.passed);
            }
            self.acknowledged = sequence;
        }
        let oldest = *self.passed.range(from..).next()?;
        self.requests
            .get(&oldest)
            .filter(|request| request.end() <= sequence)
            .map(|request| request.sequence)
    }

    /// Records a retransmission: the next acknowledgement revisits the request.
    pub(super) fn mark_retransmitted(&mut self, sequence: u64) {
        self.oldest_retransmitted =
            Some(self.oldest_retransmitted.map_or(sequence, |oldest| oldest.min(sequence)));
        let acknowledged = self.acknowledged;
        if let Some(request) = self.find(sequence) {
            let start = request.sequence;
            if start < acknowledged && request.finished.is_none() {
                self.revisit.insert(start);
            }
        }
    }

    /// Records that its own response completed the request that starts at `sequence`.
    pub(super) fn complete(&mut self, sequence: u64) {
        self.passed.remove(&sequence);
        self.revisit.remove(&sequence);
    }
}
