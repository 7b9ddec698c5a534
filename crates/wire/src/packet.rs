//! A transport packet: the BTH, the extension headers its opcode names, payload, pad and ICRC.
//!
//! The same bytes travel over RoCEv2, RoCEv1 and native InfiniBand; what carries them is [`crate::frame`]'s matter.

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
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The headers that the opcode names, in full unless the capture was cut.
    pub extensions: ExtensionHeaders,
    /// The payload, as far as it was captured, without pad.
    pub payload: &'a [u8],
    /// Bytes of payload on the wire: more than `payload` holds when the capture was cut.
    pub payload_len: usize,
    /// Pad bytes; the specification asks for zeroes but the ICRC covers whatever they are.
    pub pad: &'a [u8],
    /// The ICRC as received, `None` when the capture was cut before it.
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
    /// Bytes that the largest combination takes (RD compare-and-swap: RDETH, DETH, AtomicETH).
    pub const MAX_LEN: usize = 40;

    /// Reads the headers of `set` from the front of `bytes`; stops at the first that is not there in full and says
    /// which.
    fn parse(set: Extensions, mut bytes: &[u8]) -> (Self, &[u8], Option<Extension>) {
        let mut headers = Self::default();
        macro_rules! read {
            ($bit:ident $field:ident $type:ident) => {
                if set.contains(Extensions::$bit) {
                    let Some((header, rest)) = $type::split(bytes) else {
                        let missing = set.iter().find(|one| one.bit == Extensions::$bit);
                        return (headers, bytes, missing);
                    };
                    headers.$field = Some(header);
                    bytes = rest;
                }
            };
        }
        each_extension!(read);
        (headers, bytes, None)
    }

    /// Writes the headers of `set` to the front of `out` and returns how many bytes they took: `None` when one of
    /// them is missing here or `out` is too short.
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

    /// Which headers are here.
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
    /// Reads a whole packet: from the BTH's first byte to the ICRC's last.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match Self::parse_captured(bytes, bytes.len()) {
            (Some(packet), None) => Ok(packet),
            (_, Some(malformed)) => Err(malformed),
            // A packet without a problem is always returned: see `parse_captured`.
            (None, None) => Err(short(Bth::NAME, Bth::LEN, bytes.len(), bytes.len(), 0)),
        }
    }

    /// Reads as much of a packet of `wire_len` bytes as `bytes` holds. There is a packet whenever its BTH was
    /// readable, and a problem whenever something behind it was not.
    pub fn parse_captured(bytes: &'a [u8], wire_len: usize) -> (Option<Self>, Option<Malformed>) {
        let bytes = &bytes[..bytes.len().min(wire_len)];
        let Some((bth, rest)) = Bth::split(bytes) else {
            return (None, Some(short(Bth::NAME, Bth::LEN, bytes.len(), wire_len, 0)));
        };
        let info = bth.opcode.info();
        let set = info.map_or(Extensions::NONE, |info| info.extensions);
        let mut packet = Self {
            bth,
            extensions: ExtensionHeaders::default(),
            payload: &[],
            payload_len: 0,
            pad: &[],
            icrc: None,
        };
        // Another transport version may lay out everything behind the BTH in another way (IBA 9.2.5).
        if bth.version != 0 {
            let problem = Problem::Version { header: Bth::NAME, found: bth.version };
            return (Some(packet), Some(Malformed { offset: 0, problem }));
        }
        let headers_len = Bth::LEN + info.map_or(0, |info| info.extensions_len);

        let (extensions, rest, missing) = ExtensionHeaders::parse(set, rest);
        packet.extensions = extensions;
        if let Some(missing) = missing {
            let at = bytes.len() - rest.len();
            let problem = short(missing.name, missing.len, rest.len(), wire_len - at, at);
            return (Some(packet), Some(problem));
        }
        let Some(body_len) = wire_len.checked_sub(headers_len + ICRC_LEN) else {
            let available = wire_len - headers_len;
            let problem = short("ICRC", ICRC_LEN, available, available, headers_len);
            return (Some(packet), Some(problem));
        };
        let pad_len = usize::from(bth.pad);
        let Some(payload_len) = body_len.checked_sub(pad_len) else {
            let problem = Problem::Pad { pad: pad_len, available: body_len };
            return (Some(packet), Some(Malformed { offset: headers_len, problem }));
        };
        packet.payload_len = payload_len;
        packet.payload = &rest[..payload_len.min(rest.len())];
        if let Some(tail) = rest.get(payload_len..) {
            packet.pad = &tail[..pad_len.min(tail.len())];
            packet.icrc = tail.get(pad_len..).and_then(|icrc| icrc.try_into().ok());
        }
        (Some(packet), None)
    }

    /// Bytes from the BTH to the ICRC, on the wire.
    pub fn wire_len(&self) -> usize {
        Bth::LEN
            + self.extensions.set().len()
            + self.payload_len
            + usize::from(self.bth.pad)
            + ICRC_LEN
    }

    /// Whether all bytes that were on the wire are here.
    pub fn is_whole(&self) -> bool {
        self.icrc.is_some()
    }

    /// Writes headers, payload and pad to the front of `out`, all but the ICRC, and returns how many bytes they
    /// took: `None` when `out` is too short, the headers are not those that the opcode names, or payload and pad are
    /// not as long as announced.
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

/// A header is not there in full: because the packet ends (`on_wire` is too short as well), or because the capture
/// does.
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
