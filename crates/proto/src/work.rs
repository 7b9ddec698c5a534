//! Work requests and their completions.

use alloc::boxed::Box;

use ferroce_wire::number::{Immediate, Qpn, RKey, VirtualAddress};
use ferroce_wire::transport::{FlushPlacement, FlushSelectivity};

pub use crate::inline_data::InlineData;
use crate::memory::{Accessor, Begun, Bind, Denied, Memory, PdId, Sge, Token};
use crate::reason::{Reason, RefusedAccess};

/// The caller's ID of a work request (`wr_id`), returned in its completion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct WorkId(pub u64);

/// The longest message, 2^31 bytes (IBA C9-94).
pub const MAX_MESSAGE: u32 = 1 << 31;

/// An address in the peer's memory, and its rkey.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RemoteAddress {
    /// The virtual address in the peer's address space.
    pub address: VirtualAddress,
    /// The rkey.
    pub key: RKey,
}

/// The operation of a send work request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// SEND: the message goes to the peer's next receive request.
    Send {
        /// Delivered with the peer's receive completion.
        immediate: Option<Immediate>,
        /// An rkey of the peer to invalidate. Excludes immediate data.
        invalidate: Option<RKey>,
    },
    /// RDMA WRITE.
    Write {
        /// Destination.
        remote: RemoteAddress,
        /// Consumes a receive request of the peer and is delivered with its completion.
        immediate: Option<Immediate>,
    },
    /// RDMA READ.
    Read {
        /// Source.
        remote: RemoteAddress,
    },
    /// Atomic compare-and-swap of 8 bytes; the original value is written to the local SGE.
    CompareSwap {
        /// Target address.
        remote: RemoteAddress,
        /// Expected value.
        compare: u64,
        /// New value.
        swap: u64,
    },
    /// Atomic fetch-and-add of 8 bytes; the original value is written to the local SGE.
    FetchAdd {
        /// Target address.
        remote: RemoteAddress,
        /// Addend.
        add: u64,
    },
    /// FLUSH: makes earlier writes globally visible or persistent.
    Flush {
        /// Target address.
        remote: RemoteAddress,
        /// Length in bytes.
        length: u32,
        /// Flushes the range or the whole MR.
        selectivity: FlushSelectivity,
        /// Global visibility or persistence.
        placement: FlushPlacement,
    },
    /// ATOMIC WRITE: an 8-byte write that is never observed half done.
    AtomicWrite {
        /// Target address.
        remote: RemoteAddress,
    },
    /// Invalidates a local key. Sends no packet (IBA 10.6.5).
    LocalInvalidate {
        /// The rkey.
        key: RKey,
    },
    /// Binds a memory window. Sends no packet (IBA 10.6.7.2).
    Bind(Bind),
}

impl Operation {
    /// A plain SEND.
    pub const SEND: Self = Self::Send { immediate: None, invalidate: None };

    /// Whether the responder sends a response other than an ACK, so that only this response completes the request.
    pub const fn wants_response(&self) -> bool {
        !self.is_local() && !matches!(self, Self::Send { .. } | Self::Write { .. })
    }

    /// Whether it is executed locally, without a packet.
    pub const fn is_local(&self) -> bool {
        matches!(self, Self::LocalInvalidate { .. } | Self::Bind(_))
    }

    /// Whether it consumes a receive request of the responder.
    pub const fn consumes_receive(&self) -> bool {
        matches!(self, Self::Send { .. } | Self::Write { immediate: Some(_), .. })
    }

    /// Executes a local operation; the others have no effect here.
    pub(crate) fn execute_local(
        &self,
        by: Accessor,
        memory: &mut impl Memory,
    ) -> Result<(), (Status, Reason)> {
        match self {
            Self::Bind(bind) => memory.bind(by, bind).map_err(|denied| {
                let Bind { window, region, .. } = *bind;
                (Status::Binding, Reason::Bind { window, region, denied })
            }),
            Self::LocalInvalidate { key } => memory.invalidate(by, *key).map_err(|denied| {
                (Status::LocalOperation, Reason::Invalidate { key: *key, denied })
            }),
            _ => Ok(()),
        }
    }
}

/// The local data of a send work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Data {
    /// SGEs in registered memory.
    SgList(SgList),
    /// Inline data, copied when the request was posted: it needs no key, and the caller's buffer is free immediately.
    Inline(InlineData),
}

/// A scatter/gather list. One SGE, the common case, needs no allocation.
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

    /// The SGEs in order.
    pub fn as_slice(&self) -> &[Sge] {
        match &self.0 {
            SgEntries::None => &[],
            SgEntries::One(one) => one,
            SgEntries::Many(many) => many,
        }
    }

    /// Total length in bytes.
    #[inline]
    pub fn len(&self) -> u64 {
        match &self.0 {
            SgEntries::One([one]) => one.length.into(),
            _ => self.as_slice().iter().map(|sge| u64::from(sge.length)).sum(),
        }
    }

    /// Whether the total length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The SGEs that cover up to `length` bytes from `offset` on.
    pub fn range(&self, offset: u64, length: u64) -> impl Iterator<Item = Sge> + Clone + '_ {
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
    /// The bytes from `offset` on as one SGE, if there is one and it has them all.
    #[inline(always)]
    fn single(&self, offset: u64, length: u64) -> Option<Sge> {
        let SgEntries::One([sge]) = self.0 else { return None };
        let fits = offset.checked_add(length)? <= u64::from(sge.length) && length > 0;
        let address = VirtualAddress(sge.address.0.wrapping_add(offset));
        fits.then_some(Sge { address, length: length as u32, ..sge })
    }

    /// Reads up to `length` bytes from `offset` on to `out`, which has room for them.
    #[inline(always)]
    pub(crate) fn gather(
        &self,
        offset: u64,
        length: u64,
        mut out: &mut [u8],
        pd: PdId,
        memory: &impl Memory,
    ) -> Result<(), Denied> {
        if let Some(sge) = self.single(offset, length) {
            return memory.read_local(pd, sge, out);
        }
        for sge in self.range(offset, length) {
            let (part, rest) = out.split_at_mut(out.len().min(sge.length as usize));
            memory.read_local(pd, sge, part)?;
            out = rest;
        }
        Ok(())
    }

    /// Why these bytes could not be read, or written.
    #[cold]
    pub(crate) fn explain(
        &self,
        (offset, length): (u64, u64),
        writes: bool,
        denied: Denied,
        by: Accessor,
        memory: &impl Memory,
    ) -> Reason {
        let refuses = |sge: &Sge| memory.check_local(by.pd, *sge, writes).is_err();
        let mut all = self.range(offset, length);
        // Between the refusal and now, the program may have registered the memory.
        let sge = all.clone().find(refuses).or_else(|| all.next()).unwrap_or_default();
        Reason::denied(RefusedAccess::local(sge, writes), denied, by, memory)
    }

    /// Writes `data` to the bytes from `offset` on. Calls `pending` for each write that has only begun.
    #[inline(always)]
    pub(crate) fn scatter(
        &self,
        offset: u64,
        mut data: &[u8],
        by: Accessor,
        memory: &mut impl Memory,
        mut pending: impl FnMut(Token, RefusedAccess),
    ) -> Result<(), Denied> {
        let mut write = |sge, data: &[u8]| {
            if let Begun::Pending(token) = memory.begin_write_local(by, sge, data)? {
                pending(token, RefusedAccess::local(sge, true));
            }
            Ok(())
        };
        if let Some(sge) = self.single(offset, data.len() as u64) {
            return write(sge, data);
        }
        for sge in self.range(offset, data.len() as u64) {
            let (part, rest) = data.split_at(data.len().min(sge.length as usize));
            write(sge, part)?;
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

    /// Payload bytes, or buffer size for a response.
    #[inline]
    pub fn len(&self) -> u64 {
        match self {
            Self::SgList(sg_list) => sg_list.len(),
            Self::Inline(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the total length is zero.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// A work request for the send queue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SendRequest {
    /// The caller's ID of the request.
    pub id: WorkId,
    /// The operation.
    pub operation: Operation,
    /// Source of the payload, or destination of the response.
    pub data: Data,
    /// Whether a successful request generates a completion. Errors always do.
    pub signaled: bool,
    /// Requests a solicited event with the peer's receive completion.
    pub solicited: bool,
    /// Fence: starts only after all earlier READs and atomics have completed (IBA 10.8.3.3).
    pub fence: bool,
    /// The SRQ of the peer that every XRC request names (IBA A14); `None` for other services.
    pub receive_queue: Option<Qpn>,
}

impl SendRequest {
    /// Creates a signaled request without further options.
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
    /// The caller's ID of the request.
    pub id: WorkId,
    /// Destination of the message.
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
    /// The QP state accepts no sends, or the service has no send queue.
    State,
    /// The send queue is full.
    Full,
    /// More bytes than the service allows, or not 8 for an atomic operation.
    Length,
    /// The service has no such operation, or the request combines immediate data with invalidation.
    Operation,
    /// The address is missing or not applicable: XRC requests name an SRQ of the peer, datagrams an AH, others
    /// neither.
    Address,
}

/// Completion status (IBA 11.6.2; the names of `ibv_wc_status`).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Success.
    Success,
    /// The local buffer is too small, or the request is longer than the service allows.
    LocalLength,
    /// The QP cannot execute the request.
    LocalOperation,
    /// The local MR denies the access.
    LocalProtection,
    /// The rkey of the peer's RDMA WRITE with immediate denies the access: status of the consumed receive request.
    LocalAccess,
    /// The memory window bind failed.
    Binding,
    /// The QP entered an error state before the request completed.
    Flushed,
    /// The response does not match the request.
    BadResponse,
    /// The responder considers the request invalid.
    RemoteInvalidRequest,
    /// The responder's MR denies the access.
    RemoteAccess,
    /// The responder failed locally.
    RemoteOperation,
    /// No response after all retries.
    RetryExceeded,
    /// The responder stayed not ready through all RNR retries.
    RnrRetryExceeded,
}

/// The operation that a completion belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CompletionKind {
    /// A SEND.
    Send,
    /// An RDMA WRITE.
    Write,
    /// An RDMA READ.
    Read,
    /// A compare-and-swap.
    CompareSwap,
    /// A fetch-and-add.
    FetchAdd,
    /// A FLUSH.
    Flush,
    /// An ATOMIC WRITE.
    AtomicWrite,
    /// A local invalidate.
    LocalInvalidate,
    /// A memory window bind.
    Bind,
    /// A message received by SEND.
    Receive,
    /// An RDMA WRITE with immediate, received.
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

/// A work completion (CQE).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Completion {
    /// The caller's ID of the request.
    pub id: WorkId,
    /// The status.
    pub status: Status,
    /// The operation.
    pub kind: CompletionKind,
    /// Bytes received or transferred.
    pub length: u32,
    /// Received immediate data.
    pub immediate: Option<Immediate>,
    /// The rkey that the peer's SEND invalidated.
    pub invalidated: Option<RKey>,
    /// Whether the peer requested a solicited event.
    pub solicited: bool,
    /// The sender's QPN, for datagrams.
    pub source: Option<Qpn>,
    /// Whether a datagram was received over IPv4: its IP header is then in the last 20 of the 40 bytes before the
    /// payload (IBA A17).
    pub over_ipv4: bool,
    /// The SRQ that an XRC message named: the completion goes to its CQ.
    pub receive_queue: Option<Qpn>,
    /// Why it failed: the [number](crate::reason::Reason::number) of the reason, or 0 if the status says everything.
    /// Of a flushed request: the reason of the error that ended the QP, or 0 if the program did.
    #[doc(alias = "vendor_err")]
    pub vendor_error: u16,
}

impl Completion {
    /// Creates a completion without transferred or received data.
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
            vendor_error: 0,
        }
    }

    /// The same with the number of a reason.
    pub(crate) const fn because(self, vendor_error: u16) -> Self {
        Self { vendor_error, ..self }
    }
}
