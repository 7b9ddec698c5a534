//! Work requests and their completions.

use alloc::boxed::Box;

use ferroce_wire::number::{Immediate, Qpn, RKey, VirtualAddress};
use ferroce_wire::transport::{FlushPlacement, FlushSelectivity};

use crate::memory::{Accessor, Bind, Denied, Memory, PdId, Sge};

/// The owner's name for a work request, given back in its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// The largest message (IBA 9.7.4.1.6).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// Where in the peer's memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The address, as the peer counts.
    pub address: VirtualAddress,
    /// The key that the peer gave out.
    pub key: RKey,
}

/// What a send work request asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A message into the peer's next receive request.
    Send {
        /// Handed to the peer with its completion.
        immediate: Option<Immediate>,
        /// A key of the peer's that is to become invalid. Not together with immediate data.
        invalidate: Option<RKey>,
    },
    /// A message into the peer's memory.
    Write {
        /// Where to.
        remote: RemoteAddress,
        /// Consumes a receive request of the peer's and is handed over with its completion.
        immediate: Option<Immediate>,
    },
    /// The peer's memory into ours.
    Read {
        /// Where from.
        remote: RemoteAddress,
    },
    /// Atomic compare and swap of 8 bytes; the original value comes into the local SGE.
    CompareSwap {
        /// Where.
        remote: RemoteAddress,
        /// What must be there.
        compare: u64,
        /// What is written then.
        swap: u64,
    },
    /// Atomic fetch and add of 8 bytes; the original value comes into the local SGE.
    FetchAdd {
        /// Where.
        remote: RemoteAddress,
        /// What is added.
        add: u64,
    },
    /// Makes earlier writes visible or persistent.
    Flush {
        /// Where.
        remote: RemoteAddress,
        /// Bytes.
        length: u32,
        /// How much.
        selectivity: FlushSelectivity,
        /// To which point.
        placement: FlushPlacement,
    },
    /// An 8-byte write that no reader sees half done.
    AtomicWrite {
        /// Where.
        remote: RemoteAddress,
    },
    /// Makes a key of ours invalid. Nothing is sent (IBA 10.6.5).
    LocalInvalidate {
        /// The key.
        key: RKey,
    },
    /// Binds a memory window. Nothing is sent (IBA 10.6.7.2).
    Bind(Bind),
}

impl Operation {
    /// A plain SEND.
    pub const SEND: Self = Self::Send { immediate: None, invalidate: None };

    /// Whether the responder answers with more than an acknowledgement, so that only its own response completes it.
    pub const fn wants_response(&self) -> bool {
        !self.is_local() && !matches!(self, Self::Send { .. } | Self::Write { .. })
    }

    /// Whether it is done on this side alone, with no packet.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::LocalInvalidate { .. } | Self::Bind(_))
    }

    /// Whether it takes one of the responder's receive requests.
    pub const fn consumes_receive(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { immediate: Some(_), .. })
    }

    /// Executes a local operation; the others have no effect here.
    pub(crate) fn execute_local(
        &self,
        by: Accessor,
        memory: &mut impl Memory,
    ) -> Result<(), Status> {
        match self {
            Self::Bind(bind) => memory.bind(by, bind).map_err(|_| Status::Binding),
            Self::LocalInvalidate { key } => {
                memory.invalidate(by, *key).map_err(|_| Status::LocalOperation)
            }
            _ => Ok(()),
        }
    }
}

/// The local side of a send work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// Parts of registered memory, one after the other.
    SgList(SgList),
    /// Bytes that were copied when the request was posted: no key is needed, and the buffer is free again at once.
    Inline(Box<[u8]>),
}

/// A scatter or gather list. One SGE, the common case, needs no allocation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SgList(SgEntries);

#[derive(Clone, Debug, PartialEq, Eq)]
enum SgEntries {
    None,
    One([Sge; 1]),
    Many(Box<[Sge]>),
}

impl SgList {
    /// No bytes.
    pub const NONE: Self = Self(SgEntries::None);

    /// All of them in order.
    pub fn as_slice(&self) -> &[Sge] {
        match &self.0 {
            SgEntries::None => &[],
            SgEntries::One(one) => one,
            SgEntries::Many(many) => many,
        }
    }

    /// Bytes of all together.
    pub fn len(&self) -> u64 {
        self.as_slice().iter().map(|sge| u64::from(sge.length)).sum()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The parts that hold the bytes from `offset` on, at most `length` of them.
    pub fn range(&self, offset: u64, length: u64) -> impl Iterator<Item = Sge> + '_ {
        let (mut skip, mut left) = (offset, length);
        self.as_slice().iter().filter_map(move |sge| {
            let skipped = skip.min(u64::from(sge.length));
            skip -= skipped;
            let taken = (u64::from(sge.length) - skipped).min(left);
            left -= taken;
            (taken > 0).then(|| Sge {
                address: VirtualAddress(sge.address.0.wrapping_add(skipped)),
                length: taken as u32,
                ..*sge
            })
        })
    }
}

impl SgList {
    /// Writes `data` to the bytes from `offset` on.
    pub(crate) fn scatter(
        &self,
        offset: u64,
        mut data: &[u8],
        pd: PdId,
        memory: &mut impl Memory,
    ) -> Result<(), Denied> {
        for sge in self.range(offset, data.len() as u64) {
            let (part, rest) = data.split_at(data.len().min(sge.length as usize));
            memory.write_local(pd, sge, part)?;
            data = rest;
        }
        Ok(())
    }
}

impl From<Sge> for SgList {
    fn from(sge: Sge) -> Self {
        Self(SgEntries::One([sge]))
    }
}

impl From<&[Sge]> for SgList {
    fn from(sg_list: &[Sge]) -> Self {
        Self(match sg_list {
            [] => SgEntries::None,
            [one] => SgEntries::One([*one]),
            many => SgEntries::Many(many.into()),
        })
    }
}

impl Data {
    /// No bytes.
    pub const NONE: Self = Self::SgList(SgList::NONE);

    /// Bytes of payload, or of room for what comes back.
    pub fn len(&self) -> u64 {
        match self {
            Self::SgList(sg_list) => sg_list.len(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A work request for the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The owner's name for it.
    pub id: WorkId,
    /// What to do.
    pub operation: Operation,
    /// Where the bytes come from, or go to.
    pub data: Data,
    /// Completes with a completion even when all goes well. Errors always do.
    pub signaled: bool,
    /// The peer should raise an event when its receive completes.
    pub solicited: bool,
    /// Starts only when all earlier READs and atomics are done (IBA 10.8.3.3).
    pub fence: bool,
    /// The shared receive queue of the peer's that XRC names in every request (IBA A14); other services have none.
    pub receive_queue: Option<Qpn>,
}

impl SendRequest {
    /// A request that is signaled, and nothing special otherwise.
    pub const fn new(id: WorkId, operation: Operation, data: Data) -> Self {
        Self {
            id,
            operation,
            data,
            signaled: true,
            solicited: false,
            fence: false,
            receive_queue: None,
        }
    }
}

/// A work request for a receive queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiveRequest {
    /// The owner's name for it.
    pub id: WorkId,
    /// Where the message goes.
    pub sg_list: SgList,
}

impl ReceiveRequest {
    /// The completion of a request that no message was written to.
    pub(crate) const fn completion(&self, status: Status) -> Completion {
        Completion::new(self.id, CompletionKind::Receive, status)
    }
}

/// Why a send work request was rejected when it was posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The state takes none, or the service has no send queue.
    State,
    /// The send queue is full.
    Full,
    /// More bytes than the service carries, or not 8 for an atomic operation.
    Length,
    /// The service has no such operation, or the request combines immediate data with invalidation.
    Operation,
    /// XRC's requests name a shared receive queue of the peer's, datagrams an address, and no others do.
    Address,
}

/// How a work request ended (IBA 11.6.2; the names of `ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// All went well.
    Success,
    /// A local buffer is too small, or the request is larger than the service allows.
    LocalLength,
    /// The queue pair cannot do this.
    LocalOperation,
    /// A local key does not allow it.
    LocalProtection,
    /// The rkey of the peer's RDMA WRITE with immediate does not allow it: how the receive request ends.
    LocalAccess,
    /// The window cannot be bound so.
    Binding,
    /// An earlier request failed: this one was not looked at, or not finished.
    Flushed,
    /// The responder's answer does not fit the request.
    BadResponse,
    /// The responder takes the request for invalid.
    RemoteInvalidRequest,
    /// The responder's memory does not allow it.
    RemoteAccess,
    /// The responder failed on its own side.
    RemoteOperation,
    /// No answer came to any attempt.
    RetryExceeded,
    /// The responder was never ready.
    RnrRetryExceeded,
}

/// What a completion is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A SEND of ours.
    Send,
    /// An RDMA WRITE of ours.
    Write,
    /// An RDMA READ of ours.
    Read,
    /// A compare-and-swap of ours.
    CompareSwap,
    /// A fetch-and-add of ours.
    FetchAdd,
    /// A FLUSH of ours.
    Flush,
    /// An ATOMIC WRITE of ours.
    AtomicWrite,
    /// A key of ours that was made invalid.
    LocalInvalidate,
    /// A memory window that was bound.
    Bind,
    /// A message that came by SEND.
    Receive,
    /// Immediate data that came with an RDMA WRITE.
    ReceiveWriteImmediate,
}

impl From<&Operation> for CompletionKind {
    fn from(operation: &Operation) -> Self {
        match operation {
            Operation::Send { .. } => Self::Send,
            Operation::Write { .. } => Self::Write,
            Operation::Read { .. } => Self::Read,
            Operation::CompareSwap { .. } => Self::CompareSwap,
            Operation::FetchAdd { .. } => Self::FetchAdd,
            Operation::Flush { .. } => Self::Flush,
            Operation::AtomicWrite { .. } => Self::AtomicWrite,
            Operation::LocalInvalidate { .. } => Self::LocalInvalidate,
            Operation::Bind(_) => Self::Bind,
        }
    }
}

/// The end of a work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The owner's name for the request.
    pub id: WorkId,
    /// How it ended.
    pub status: Status,
    /// What it was.
    pub kind: CompletionKind,
    /// Bytes that arrived, or were moved.
    pub length: u32,
    /// Immediate data that came with a message.
    pub immediate: Option<Immediate>,
    /// The key that the peer had made invalid.
    pub invalidated: Option<RKey>,
    /// Whether the peer asked for an event.
    pub solicited: bool,
    /// The peer's queue pair, when a datagram named it.
    pub source: Option<Qpn>,
    /// Whether a datagram came over IPv4: its header is in the last 20 of the 40 bytes in front of it then (IBA A17).
    pub over_ipv4: bool,
    /// The shared receive queue that the message named, with XRC: the completion is for its completion queue.
    pub receive_queue: Option<Qpn>,
}

impl Completion {
    /// The end of a request, with nothing moved and nothing received.
    pub const fn new(id: WorkId, kind: CompletionKind, status: Status) -> Self {
        Self {
            id,
            status,
            kind,
            length: 0,
            immediate: None,
            invalidated: None,
            solicited: false,
            source: None,
            over_ipv4: false,
            receive_queue: None,
        }
    }
}
