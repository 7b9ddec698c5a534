//! Transport packets: BTH, the extension headers of the opcode, payload, pad and ICRC.
//!
//! The format is the same over RoCEv2, RoCEv1 and native InfiniBand; [`crate::frame`] handles the encapsulation.

use crate::field::Header;
use crate::malformed::{Malformed, Problem};
use crate::opcode::{Extension, Extensions};
use crate::transport::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth,
};

/// Bytes of the ICRC at the end of every packet.
pub const ICRC_LEN: usize = 4;

/// The largest payload of one packet (IBA 9.2, MTU code 5).
pub const MAX_PAYLOAD: usize = 4096;

/// One transport packet on borrowed bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The extension headers of the opcode; incomplete if the capture is truncated.
    pub extensions: ExtensionHeaders,
    /// The captured payload, without pad.
    pub payload: &'a [u8],
    /// Payload length on the wire: more than that of `payload` if the capture is truncated.
    pub payload_len: usize,
    /// Pad bytes. The specification requires zeroes; the ICRC covers their actual value.
    pub pad: &'a [u8],
    /// The ICRC in the packet, `None` if the capture is truncated before it.
    pub icrc: Option<[u8; ICRC_LEN]>,
}

/// The extension headers of one packet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(missing_docs)] // Each field is the header of its name.
pub struct ExtensionHeaders {
    pub rdeth: Option<Rdeth>,
    pub deth: Option<Deth>,
    pub xrceth: Option<Xrceth>,
    pub feth: Option<Feth>,
    pub reth: Option<Reth>,
    pub atomic: Option<AtomicEth>,
    pub aeth: Option<Aeth>,
    pub atomic_ack: Option<AtomicAckEth>,
    pub immediate: Option<ImmDt>,
    pub ieth: Option<Ieth>,
}

/// Runs a block for each extension header of the set, in wire order.
macro_rules! each_extension {
    ($macro:ident) => {
        $macro!(RDETH rdeth Rdeth);
        $macro!(DETH deth Deth);
        $macro!(XRCETH xrceth Xrceth);
        $macro!(FETH feth Feth);
        $macro!(RETH reth Reth);
        $macro!(ATOMIC atomic AtomicEth);
        $macro!(AETH aeth Aeth);
        $macro!(ATOMIC_ACK atomic_ack AtomicAckEth);
        $macro!(IMMEDIATE immediate ImmDt);
        $macro!(IETH ieth Ieth);
    };
}

impl ExtensionHeaders {
    /// Length of the largest combination (RD compare-and-swap: RDETH, DETH, AtomicETH).
    pub const MAX_LEN: usize = 40;

    /// Parses the headers of `set` at the front of `bytes`. Returns the rest, and the first truncated header if there is
    /// one.
    #[inline]
    fn read<'a>(&mut self, set: Extensions, mut bytes: &'a [u8]) -> (&'a [u8], Option<Extension>) {
        macro_rules! read {
            ($bit:ident $field:ident $type:ident) => {
                if set.contains(Extensions::$bit) {
                    let Some((header, rest)) = $type::split(bytes) else {
                        let missing = set.iter().find(|one| one.bit == Extensions::$bit);
                        return (bytes, missing);
                    };
                    self.$field = Some(header);
                    bytes = rest;
                }
            };
        }
        each_extension!(read);
        (bytes, None)
    }

    /// Writes the headers of `set` to the front of `out` and returns their length; `None` if one of them is missing or
    /// `out` is too short.
    #[inline]
    pub fn emit(&self, set: Extensions, out: &mut [u8]) -> Option<usize> {
        let mut at = 0;
        macro_rules! write {
            ($bit:ident $field:ident $type:ident) => {
                if set.contains(Extensions::$bit) {
                    let bytes = self.$field?.to_bytes();
                    out.get_mut(at..at + bytes.len())?.copy_from_slice(&bytes);
                    at += bytes.len();
                }
            };
        }
        each_extension!(write);
        Some(at)
    }

    /// The set of headers present.
    pub fn set(&self) -> Extensions {
        let mut set = Extensions::NONE;
        macro_rules! add {
            ($bit:ident $field:ident $type:ident) => {
                if self.$field.is_some() {
                    set = set.with(Extensions::$bit);
                }
            };
        }
        each_extension!(add);
        set
    }
}

impl<'a> Packet<'a> {
    /// Parses a complete packet, from the first byte of the BTH to the last byte of the ICRC.
    #[inline]
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        let mut packet = Self::default();
        packet.read(bytes)?;
        Ok(packet)
    }

    /// As [`Packet::parse`], into a default packet: where packets are many, it counts that they are not copied.
    #[inline]
    pub fn read(&mut self, bytes: &'a [u8]) -> Result<(), Malformed> {
        let Some((bth, rest)) = Bth::split(bytes) else {
            return Err(short(Bth::NAME, Bth::LEN, bytes.len(), bytes.len(), 0));
        };
        self.bth = bth;
        self.read_behind_bth(rest, bytes.len())
    }

    /// Parses as much of a packet of `wire_len` bytes as `bytes` contains. Returns a packet if its BTH was readable, and a
    /// problem if anything was not.
    pub fn parse_captured(bytes: &'a [u8], wire_len: usize) -> (Option<Self>, Option<Malformed>) {
        let bytes = &bytes[..bytes.len().min(wire_len)];
        let Some((bth, rest)) = Bth::split(bytes) else {
            return (None, Some(short(Bth::NAME, Bth::LEN, bytes.len(), wire_len, 0)));
        };
        let mut packet = Self { bth, ..Self::default() };
        let problem = packet.read_behind_bth(rest, wire_len).err();
        (Some(packet), problem)
    }

    /// Parses `behind`, what was captured behind the BTH of a packet of `wire_len` bytes.
    fn read_behind_bth(&mut self, behind: &'a [u8], wire_len: usize) -> Result<(), Malformed> {
        // Another transport version may have a different layout after the BTH (IBA 9.2.5).
        if self.bth.version != 0 {
            let problem = Problem::Version { header: Bth::NAME, found: self.bth.version };
            return Err(Malformed { offset: 0, problem });
        }
        let info = self.bth.opcode.info();
        let (set, extensions_len) =
            info.map_or((Extensions::NONE, 0), |info| (info.extensions, info.extensions_len));
        let headers_len = Bth::LEN + extensions_len;
        let (rest, missing) = self.extensions.read(set, behind);
        if let Some(missing) = missing {
            let at = Bth::LEN + behind.len() - rest.len();
            return Err(short(missing.name, missing.len, rest.len(), wire_len - at, at));
        }
        let Some(body_len) = wire_len.checked_sub(headers_len + ICRC_LEN) else {
            let available = wire_len - headers_len;
            return Err(short("ICRC", ICRC_LEN, available, available, headers_len));
        };
        let pad_len = usize::from(self.bth.pad);
        let Some(payload_len) = body_len.checked_sub(pad_len) else {
            let problem = Problem::Pad { pad: pad_len, available: body_len };
            return Err(Malformed { offset: headers_len, problem });
        };
        self.payload_len = payload_len;
        self.payload = &rest[..payload_len.min(rest.len())];
        if let Some(tail) = rest.get(payload_len..) {
            self.pad = &tail[..pad_len.min(tail.len())];
            self.icrc = tail.get(pad_len..).and_then(|icrc| icrc.try_into().ok());
        }
        Ok(())
    }

    /// Bytes from the BTH to the ICRC, on the wire.
    pub fn wire_len(&self) -> usize {
        Bth::LEN
            + self.extensions.set().len()
            + self.payload_len
            + usize::from(self.bth.pad)
            + ICRC_LEN
    }

    /// Whether the packet was captured completely.
    pub fn is_whole(&self) -> bool {
        self.icrc.is_some()
    }

    /// Writes headers, payload and pad (without the ICRC) to the front of `out` and returns their length; `None` if `out`
    /// is too short, the headers do not match the opcode, or payload and pad do not match their lengths.
    pub fn emit(&self, out: &mut [u8]) -> Option<usize> {
        if self.payload.len() != self.payload_len || self.pad.len() != usize::from(self.bth.pad) {
            return None;
        }
        let set = match self.bth.opcode.info() {
            Some(info) => info.extensions,
            None => Extensions::NONE,
        };
        let (bth, rest) = out.split_first_chunk_mut::<{ Bth::LEN }>()?;
        *bth = self.bth.to_bytes();
        let extensions = self.extensions.emit(set, rest)?;
        let rest = rest.get_mut(extensions..)?;
        rest.get_mut(..self.payload.len())?.copy_from_slice(self.payload);
        rest.get_mut(self.payload.len()..)?.get_mut(..self.pad.len())?.copy_from_slice(self.pad);
        Some(Bth::LEN + extensions + self.payload.len() + self.pad.len())
    }
}

/// The error for a truncated header: by the packet if `on_wire` is too short as well, otherwise by the capture.
pub(crate) fn short(
    header: &'static str,
    needed: usize,
    available: usize,
    on_wire: usize,
    offset: usize,
) -> Malformed {
    let problem = if on_wire >= needed {
        Problem::Snapped { header, needed, available }
    } else {
        Problem::Short { header, needed, available: on_wire }
    };
    Malformed { offset, problem }
}
