//! Random programs of work requests, with what each request must have done if it succeeded.

mod connected;
mod datagrams;
mod violation;

use ferroce_proto::work::{SendRequest, Status};
use ferroce_wire::number::{Immediate, RKey};

pub(super) use connected::connected;
pub(super) use datagrams::{Datagrams, QUEUE_KEY, datagrams};

/// An end of a connection: on which host, and which of its ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) host: usize,
    pub(super) end: usize,
}

/// What a request must have done if it succeeded. Offsets are in the program's regions.
#[derive(Clone, Copy, Debug)]
pub(super) enum Effect {
    /// Bytes of ours are in the peer's memory; with immediate data, the peer was told.
    Written { from: usize, to: usize, length: usize, immediate: Option<Immediate> },
    /// Bytes of the peer's are in our memory.
    Read { from: usize, to: usize, length: usize },
    /// The peer has received a message.
    Sent { from: usize, length: usize, immediate: Option<Immediate>, invalidated: Option<RKey> },
    /// The peer's counter has grown by one, and its former value is in our memory.
    Added { to: usize },
    /// The peer's second counter has grown by one if it was what we expected, as it must have been.
    Swapped { to: usize },
    /// Nothing that memory shows: a flush, a window bound; or a request that must not be executed.
    Nothing,
}

impl Effect {
    /// Whether it takes a receive request of the peer's.
    pub(super) fn consumes_receive(&self) -> bool {
        matches!(self, Self::Sent { .. } | Self::Written { immediate: Some(_), .. })
    }
}

/// One request of a program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    pub(super) effect: Effect,
    pub(super) signaled: bool,
    /// How it must end, when it is one that must not succeed.
    pub(super) fails: Option<Status>,
}

/// The requests of one end of a connection, with what memory was before them.
#[derive(Debug)]
pub(super) struct Program {
    /// The end that posted it.
    pub(super) active: Place,
    pub(super) passive: Place,
    pub(super) steps: Vec<Step>,
    /// The region that it uses on the active side, and on the passive one.
    pub(super) regions: [usize; 2],
    /// These regions as they were.
    pub(super) before: [Vec<u8>; 2],
    /// Where the passive side receives, by the id of the receive request, if its queue is its own: in its region.
    pub(super) buffers: Option<Vec<(usize, usize)>>,
    /// Where the counters are in the passive side's region: of fetch-and-add, and of compare-and-swap.
    pub(super) counters: [usize; 2],
}

impl Program {
    /// The request that must fail, if there is one.
    pub(super) fn violation(&self) -> Option<usize> {
        self.steps.iter().position(|step| step.fails.is_some())
    }
}

/// A program, and what is to be posted for it.
pub(super) struct Posted {
    pub(super) program: Program,
    /// By the active end.
    pub(super) work: Vec<SendRequest>,
    /// By the passive end, before its peer can send anything.
    pub(super) prelude: Vec<SendRequest>,
}

/// What memory holds where nothing was ever written.
pub(super) const FILL: u8 = 0xa5;

/// A region that is being laid out: random bytes to read from first, then places that are written to.
struct Area {
    bytes: Vec<u8>,
}

impl Area {
    fn new(source: usize, random: &mut crate::Random) -> Self {
        let mut bytes = vec![0; source];
        random.fill(&mut bytes);
        Self { bytes }
    }

    /// A place of so many bytes, with some around it that nobody may touch.
    fn allot(&mut self, length: usize) -> usize {
        let at = (self.bytes.len() + 8).next_multiple_of(8);
        self.bytes.resize(at + length, FILL);
        at
    }

    /// A place for a number, which is 0.
    fn counter(&mut self) -> usize {
        let at = self.allot(8);
        self.bytes[at..].fill(0);
        at
    }

    fn finish(mut self) -> Vec<u8> {
        self.allot(8);
        self.bytes
    }
}
