//! Outbound packets: headers by value, payload by reference. The sender gathers the bytes.

use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::Bth;

use crate::memory::{AccessFlags, Accessor, Denied, Memory, RemoteRange, Sge};
use crate::reason::{Reason, RefusedAccess};
use crate::work::{Data, SgList};

/// A packet to send.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The extension headers that the opcode requires.
    pub extensions: ExtensionHeaders,
    /// The payload, without the padding counted in the BTH.
    pub payload: Payload<'a>,
    /// The QP on whose behalf the payload is read.
    pub by: Accessor,
}

/// Location of a packet's payload.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// No payload.
    None,
    /// Inline data, copied when the work request was posted.
    Inline(&'a [u8]),
    /// A part of a work request's SG list.
    Local {
        /// The SG list.
        sg_list: &'a SgList,
        /// Offset of the payload in the list.
        offset: u64,
        /// Length in bytes.
        length: u32,
    },
    /// A range that the peer's RDMA READ requested.
    Remote(RemoteRange),
    /// The same for a duplicate READ: the peer may already have the data, and the memory may be gone.
    RemoteDuplicate(RemoteRange),
}

/// Why a packet could not be encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The work request's memory cannot be read; pass this to `handle_denied`.
    Local(Denied),
    /// The memory of the peer's READ can no longer be read; pass this to `handle_denied`.
    Remote(Denied),
    /// The memory of a duplicate READ can no longer be read. Drop the packet: a peer that still needs the data
    /// retransmits its request.
    Duplicate(Denied),
    /// The output buffer is too small.
    BufferTooSmall,
}

impl Transmit<'_> {
    /// Encodes the packet into `out`, from the BTH to the padding, copying the payload from `memory`, and returns its
    /// length. The caller appends the ICRC, which covers IP and UDP headers that only the caller knows.
    #[inline]
    pub fn encode(&self, memory: &impl Memory, out: &mut [u8]) -> Result<usize, EncodeError> {
        let set = self.bth.opcode.info().map(|info| info.extensions).unwrap_or_default();
        let (bth, rest) = out.split_first_chunk_mut().ok_or(EncodeError::BufferTooSmall)?;
        *bth = self.bth.to_bytes();
        let headers = self.extensions.emit(set, rest).ok_or(EncodeError::BufferTooSmall)?;
        let length = self.payload.len();
        let body = (rest.get_mut(headers..headers + length)).ok_or(EncodeError::BufferTooSmall)?;
        match self.payload {
            Payload::None => {}
            Payload::Inline(bytes) => body.copy_from_slice(bytes),
            Payload::Local { sg_list, offset, length } => {
                sg_list
                    .gather(offset, u64::from(length), body, self.by.pd, memory)
                    .map_err(EncodeError::Local)?;
            }
            Payload::Remote(range) => {
                memory.read_remote(self.by, range, body).map_err(EncodeError::Remote)?;
            }
            Payload::RemoteDuplicate(range) => {
                memory
                    .read_remote_duplicate(self.by, range, body)
                    .map_err(EncodeError::Duplicate)?;
            }
        }
        let pad = usize::from(self.bth.pad);
        let end = headers + length + pad;
        let padding = rest.get_mut(headers + length..end).ok_or(EncodeError::BufferTooSmall)?;
        if pad > 0 {
            padding.fill(0);
        }
        Ok(Bth::LEN + end)
    }

    /// Why the payload could not be read, for `handle_denied`.
    #[cold]
    pub fn explain(&self, error: EncodeError, memory: &impl Memory) -> Reason {
        let denied = match error {
            EncodeError::Local(denied)
            | EncodeError::Remote(denied)
            | EncodeError::Duplicate(denied) => denied,
            EncodeError::BufferTooSmall => Denied::Bounds,
        };
        match self.payload {
            Payload::Local { sg_list, offset, length } => {
                sg_list.explain((offset, length.into()), false, denied, self.by, memory)
            }
            Payload::Remote(range) | Payload::RemoteDuplicate(range) => {
                let access = RefusedAccess::remote(range, AccessFlags::REMOTE_READ);
                Reason::denied(access, denied, self.by, memory)
            }
            Payload::None | Payload::Inline(_) => {
                let access = RefusedAccess::local(Sge::default(), false);
                Reason::Memory(access, denied.into())
            }
        }
    }
}

impl<'a> Payload<'a> {
    /// `length` bytes of a work request's data, starting at `offset`.
    pub fn of(data: &'a Data, offset: u64, length: u32) -> Self {
        match data {
            _ if length == 0 => Self::None,
            Data::Inline(bytes) => {
                let start = (offset as usize).min(bytes.len());
                let end = (start + length as usize).min(bytes.len());
                Self::Inline(&bytes[start..end])
            }
            Data::SgList(sg_list) => Self::Local { sg_list, offset, length },
        }
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Inline(bytes) => bytes.len(),
            Self::Local { length, .. } => *length as usize,
            Self::Remote(range) | Self::RemoteDuplicate(range) => range.length as usize,
        }
    }

    /// Whether it is empty.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pad bytes that bring a payload to a multiple of four (IBA 9.2.4).
pub const fn pad(length: usize) -> u8 {
    (length.wrapping_neg() % 4) as u8
}
