//! Random programs of work requests, with the effect that each request has if it succeeds.

mod connected;
mod datagrams;
mod violation;

use ferroce_proto::work::{SendRequest, Status};
use ferroce_wire::number::{Immediate, RKey};

pub(super) use connected::connected;
pub(super) use datagrams::{DatagramProgram, QUEUE_KEY, datagrams};

/// Identifies an endpoint: its host, and its index there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EndpointId {
    pub(super) host: usize,
    pub(super) index: usize,
}

/// The effect of a request that succeeded. Offsets are in the program's regions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Bytes were written to the peer's memory; with immediate data, the peer has a receive completion.
    Written { from: usize, to: usize, length: usize, immediate: Option<Immediate> },
    /// Bytes of the peer's memory were written to ours.
    Read { from: usize, to: usize, length: usize },
    /// The peer received a message.
    Sent { from: usize, length: usize, immediate: Option<Immediate>, invalidated: Option<RKey> },
    /// The peer's first counter was incremented, and its former value is in our memory.
    Added { to: usize },
    /// The peer's second counter was incremented, because it had the expected value.
    Swapped { to: usize },
    /// No effect on memory: a flush, a window bind, or a request that must not be executed.
    Nothing,
}

impl Effect {
    /// Whether it consumes a receive request of the peer.
    pub(super) fn consumes_receive(&self) -> bool {
        matches!(self, Self::Sent { .. } | Self::Written { immediate: Some(_), .. })
    }
}

/// One request of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) effect: Effect,
    pub(super) signaled: bool,
    /// The status it must complete with, if it must not succeed.
    pub(super) fails: Option<Status>,
}

/// The requests of one endpoint, with the contents of memory before them.
#[derive(Debug)]
pub(super) struct Program {
    /// The endpoint that posts the requests.
    pub(super) active: EndpointId,
    pub(super) passive: EndpointId,
    pub(super) steps: Vec<Step>,
    /// The regions it uses on the active and the passive side.
    pub(super) regions: [usize; 2],
    /// The contents of these regions before the run.
    pub(super) before: [Vec<u8>; 2],
    /// The receive buffers of the passive side's own RQ, by the id of the request: offset and length in its region.
    /// `None` with an SRQ.
    pub(super) buffers: Option<Vec<(usize, usize)>>,
    /// The offsets of the counters in the passive side's region: of fetch-and-add, and of compare-and-swap.
    pub(super) counters: [usize; 2],
}

impl Program {
    /// Returns the request that must fail, if there is one.
    pub(super) fn violation(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.fails.is_some())
    }
}

/// A program and its work requests.
pub(super) struct PostedProgram {
    pub(super) program: Program,
    /// Posted by the active endpoint.
    pub(super) work: Vec<SendRequest>,
    /// Posted by the passive endpoint before its peer can send.
    pub(super) window_binds: Vec<SendRequest>,
}

/// The initial contents of memory that only peers write.
pub(super) const FILL: u8 = 0xa5;

/// A region under construction: random bytes to read from, followed by buffers that are written to.
struct RegionLayout {
    bytes: Vec<u8>,
}

impl RegionLayout {
    fn new(source: usize, random: &mut crate::random::Random) -> Self {
        let mut bytes = vec![0; source];
        random.fill(&mut bytes);
        Self { bytes }
    }

    /// Allocates a buffer, with guard bytes around it that must not change.
    fn allocate(&mut self, length: usize) -> usize {
        let at = (self.bytes.len() + 8).next_multiple_of(8);
        self.bytes.resize(at + length, FILL);
        at
    }

    /// Allocates a counter with the value 0.
    fn counter(&mut self) -> usize {
        let at = self.allocate(8);
        self.bytes[at..].fill(0);
        at
    }

    fn finish(mut self) -> Vec<u8> {
        self.allocate(8);
        self.bytes
    }
}
