//! Packets on their way out: headers as values, payload as places. Whoever sends gathers the bytes.

use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::Bth;

use crate::memory::{Accessor, Denied, Memory, RemoteRange};
use crate::work::{Data, SgList};

/// One packet to send.
#[derive(Debug)]
pub struct Transmit<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The extension headers that its opcode names.
    pub extensions: ExtensionHeaders,
    /// The payload, without the pad that the BTH announces.
    pub payload: Payload<'a>,
    /// As whom to read the payload.
    pub by: Accessor,
}

/// Where a packet's payload is.
#[derive(Clone, Copy, Debug)]
pub enum Payload<'a> {
    /// There is none.
    None,
    /// Bytes copied when the work request was posted.
    Inline(&'a [u8]),
    /// Bytes of a work request's gather list.
    Local {
        /// The list.
        sg_list: &'a SgList,
        /// Where in it the payload starts.
        offset: u64,
        /// Bytes.
        length: u32,
    },
    /// Bytes that a peer reads.
    Remote(RemoteRange),
    /// The same, asked for again: the peer may have had its answer long ago, and the memory be gone.
    RemoteAgain(RemoteRange),
}

/// Why a packet could not be put together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EncodeError {
    /// The work request's memory may not be read: tell the queue pair.
    Local(Denied),
    /// The memory that the peer asked for may not be read, any more: tell the queue pair.
    Remote(Denied),
    /// The peer's memory access is one that was answered before, and is not allowed, or not possible, any more. Nobody has
    /// to be told: who still wants it asks again.
    Again(Denied),
    /// The buffer is too short.
    Room,
}

impl Transmit<'_> {
    /// Writes the packet to the front of `out`, from the BTH to the pad, by copying its payload out of `memory`, and
    /// returns how many bytes that took. The ICRC is the sender's to add: it covers headers that only it knows.
    pub fn encode(&self, memory: &impl Memory, out: &mut [u8]) -> Result<usize, EncodeError> {
        let set = self.bth.opcode.info().map(|info| info.extensions).unwrap_or_default();
        let (bth, rest) = out.split_first_chunk_mut().ok_or(EncodeError::Room)?;
        *bth = self.bth.to_bytes();
        let headers = self.extensions.emit(set, rest).ok_or(EncodeError::Room)?;
        let length = self.payload.len();
        let body = (rest.get_mut(headers..headers + length)).ok_or(EncodeError::Room)?;
        match self.payload {
            Payload::None => {}
            Payload::Inline(bytes) => body.copy_from_slice(bytes),
            Payload::Local { sg_list, offset, length } => {
                let mut body = body;
                for sge in sg_list.range(offset, u64::from(length)) {
                    let (part, rest) = body.split_at_mut(body.len().min(sge.length as usize));
                    memory.read_local(self.by.pd, sge, part).map_err(EncodeError::Local)?;
                    body = rest;
                }
            }
            Payload::Remote(range) => {
                memory.read_remote(self.by, range, body).map_err(EncodeError::Remote)?;
            }
            Payload::RemoteAgain(range) => {
                memory.read_remote_again(self.by, range, body).map_err(EncodeError::Again)?;
            }
        }
        let pad = usize::from(self.bth.pad);
        let end = headers + length + pad;
        rest.get_mut(headers + length..end).ok_or(EncodeError::Room)?.fill(0);
        Ok(Bth::LEN + end)
    }
}

impl<'a> Payload<'a> {
    /// `length` bytes of a work request's data, from `offset` on.
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

    /// Bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::None => 0,
            Self::Inline(bytes) => bytes.len(),
            Self::Local { length, .. } => *length as usize,
            Self::Remote(range) | Self::RemoteAgain(range) => range.length as usize,
        }
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// Pad bytes that bring a payload to a multiple of four (IBA 9.2.2).
pub const fn pad(length: usize) -> u8 {
    (length.wrapping_neg() % 4) as u8
}
