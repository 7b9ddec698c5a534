//! BTH opcodes: operation, extension headers and position in the message (IBA 9.2.1, table 38).
//!
//! The table is total over all 256 values: [`Opcode::info`] describes those defined by the specification and returns
//! `None` for reserved and manufacturer-specific ones. No other code in Ferroce takes the bits of an opcode apart: it
//! asks for its info, or compares it with the constants.

use core::fmt;

use crate::field::{Show, newtype_field};

/// The first byte of the BTH.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Opcode(pub u8);

/// The service a packet belongs to: the opcode's top three bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// Reliable connection.
    ReliableConnection,
    /// Unreliable connection.
    UnreliableConnection,
    /// Reliable datagram. Defined, but no known device implements it.
    ReliableDatagram,
    /// Unreliable datagram.
    UnreliableDatagram,
    /// RoCEv2's congestion notification packets (IBA A17.9.3).
    CongestionNotification,
    /// Extended reliable connection (IBA A14).
    ExtendedReliableConnection,
}

/// The operation a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operation {
    /// SEND: a message to a buffer posted by the receiver.
    Send,
    /// RDMA WRITE: a message to remote memory addressed by the sender.
    Write,
    /// RDMA READ request.
    ReadRequest,
    /// RDMA READ response.
    ReadResponse,
    /// ACK or NAK.
    Acknowledge,
    /// The original value returned by an atomic operation.
    AtomicAcknowledge,
    /// Atomic compare and swap of 8 bytes.
    CompareSwap,
    /// Atomic fetch and add of 8 bytes.
    FetchAdd,
    /// Resynchronisation of reliable datagrams.
    Resync,
    /// Makes earlier writes visible or persistent (IBA A19).
    Flush,
    /// An atomic write of 8 bytes (IBA A19).
    AtomicWrite,
    /// Congestion notification packet (CNP).
    CongestionNotification,
}

/// Position of a packet in its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Position {
    /// Opens a message of several packets.
    First,
    /// Neither first nor last.
    Middle,
    /// Ends a message of several packets.
    Last,
    /// The whole message.
    Only,
}

impl Position {
    /// Whether the packet opens a message.
    pub const fn opens(self) -> bool {
        matches!(self, Self::First | Self::Only)
    }

    /// Whether the packet ends a message.
    pub const fn ends(self) -> bool {
        matches!(self, Self::Last | Self::Only)
    }
}

/// The set of extension headers after a BTH. On the wire they follow in the order of the constants.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Extensions(u16);

/// One extension header: its flag in [`Extensions`], size and name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension {
    /// The set with only this header.
    pub bit: Extensions,
    /// Size in bytes.
    pub len: usize,
    /// The specification's short name.
    pub name: &'static str,
}

impl Extensions {
    /// No extension header.
    pub const NONE: Self = Self(0);
    /// Reliable datagram.
    pub const RDETH: Self = Self(1);
    /// Datagram.
    pub const DETH: Self = Self(1 << 1);
    /// XRC target SRQ.
    pub const XRCETH: Self = Self(1 << 2);
    /// Flush.
    pub const FETH: Self = Self(1 << 3);
    /// RDMA: address, key, length.
    pub const RETH: Self = Self(1 << 4);
    /// Atomic operands.
    pub const ATOMIC: Self = Self(1 << 5);
    /// Acknowledge.
    pub const AETH: Self = Self(1 << 6);
    /// Atomic result.
    pub const ATOMIC_ACK: Self = Self(1 << 7);
    /// Immediate data.
    pub const IMMEDIATE: Self = Self(1 << 8);
    /// Key to invalidate.
    pub const IETH: Self = Self(1 << 9);

    /// All extension headers in wire order.
    pub const ALL: [Extension; 10] = [
        Extension { bit: Self::RDETH, len: 4, name: "RDETH" },
        Extension { bit: Self::DETH, len: 8, name: "DETH" },
        Extension { bit: Self::XRCETH, len: 4, name: "XRCETH" },
        Extension { bit: Self::FETH, len: 4, name: "FETH" },
        Extension { bit: Self::RETH, len: 16, name: "RETH" },
        Extension { bit: Self::ATOMIC, len: 28, name: "AtomicETH" },
        Extension { bit: Self::AETH, len: 4, name: "AETH" },
        Extension { bit: Self::ATOMIC_ACK, len: 8, name: "AtomicAckETH" },
        Extension { bit: Self::IMMEDIATE, len: 4, name: "ImmDt" },
        Extension { bit: Self::IETH, len: 4, name: "IETH" },
    ];

    /// The union of both sets.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the set contains every header of `other`.
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Total length in bytes.
    pub const fn len(self) -> usize {
        let (mut i, mut len) = (0, 0);
        while i < Self::ALL.len() {
            if self.contains(Self::ALL[i].bit) {
                len += Self::ALL[i].len;
            }
            i += 1;
        }
        len
    }

    /// Whether the set is empty.
    pub const fn is_empty(self) -> bool {
        self.0 == 0
    }

    /// The headers in wire order.
    pub fn iter(self) -> impl Iterator<Item = Extension> {
        Self::ALL.into_iter().filter(move |extension| self.contains(extension.bit))
    }
}

impl fmt::Debug for Extensions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|extension| extension.name)).finish()
    }
}

/// Description of one opcode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpcodeInfo {
    /// Its name as in the specification, for example `RC_RDMA_WRITE_ONLY`.
    pub name: &'static str,
    /// The service.
    pub transport: Transport,
    /// The operation.
    pub operation: Operation,
    /// Position in its message.
    pub position: Position,
    /// The extension headers that follow the BTH.
    pub extensions: Extensions,
    /// Length of the extension headers, precomputed for the packet path.
    pub extensions_len: usize,
    /// Whether payload may follow the headers.
    pub payload: bool,
    /// Whether it is sent by the requester.
    pub request: bool,
    /// Whether it carries immediate data.
    pub immediate: bool,
    /// Whether it consumes and completes a receive request at the receiver.
    pub completes: bool,
}

impl Opcode {
    /// The opcode of an RC packet over XRC (IBA A14: the operations are the same).
    pub const fn over_xrc(self) -> Self {
        Self(self.0 | 0xa0)
    }

    /// The description of this opcode; `None` if the specification does not define it.
    #[inline]
    pub fn info(self) -> Option<&'static OpcodeInfo> {
        TABLE[usize::from(self.0)].as_ref()
    }

    /// The specification's name, or the kind of undefined value.
    pub fn name(self) -> &'static str {
        match self.info() {
            Some(info) => info.name,
            None if self.0 >= 0xc0 => "MANUFACTURER_SPECIFIC",
            None => "RESERVED",
        }
    }

    /// All 256 values.
    pub fn all() -> impl Iterator<Item = Self> {
        (0..=u8::MAX).map(Self)
    }
}

/// Derives the description from the two parts of an opcode (IBA table 38 and, for extension headers, tables 39 to 42; A14 for XRC,
/// A19 for FLUSH and ATOMIC WRITE). Called only for the values listed below.
const fn describe(name: &'static str, code: u8) -> OpcodeInfo {
    use Extensions as E;
    use Operation as O;
    use Position as P;

    let transport = match code >> 5 {
        0 => Transport::ReliableConnection,
        1 => Transport::UnreliableConnection,
        2 => Transport::ReliableDatagram,
        3 => Transport::UnreliableDatagram,
        4 => Transport::CongestionNotification,
        _ => Transport::ExtendedReliableConnection,
    };
    let (operation, position, own) = match code & 0x1f {
        _ if matches!(transport, Transport::CongestionNotification) => {
            (O::CongestionNotification, P::Only, E::NONE)
        }
        0x00 => (O::Send, P::First, E::NONE),
        0x01 => (O::Send, P::Middle, E::NONE),
        0x02 => (O::Send, P::Last, E::NONE),
        0x03 => (O::Send, P::Last, E::IMMEDIATE),
        0x04 => (O::Send, P::Only, E::NONE),
        0x05 => (O::Send, P::Only, E::IMMEDIATE),
        0x06 => (O::Write, P::First, E::RETH),
        0x07 => (O::Write, P::Middle, E::NONE),
        0x08 => (O::Write, P::Last, E::NONE),
        0x09 => (O::Write, P::Last, E::IMMEDIATE),
        0x0a => (O::Write, P::Only, E::RETH),
        0x0b => (O::Write, P::Only, E::RETH.with(E::IMMEDIATE)),
        0x0c => (O::ReadRequest, P::Only, E::RETH),
        0x0d => (O::ReadResponse, P::First, E::AETH),
        0x0e => (O::ReadResponse, P::Middle, E::NONE),
        0x0f => (O::ReadResponse, P::Last, E::AETH),
        0x10 => (O::ReadResponse, P::Only, E::AETH),
        0x11 => (O::Acknowledge, P::Only, E::AETH),
        0x12 => (O::AtomicAcknowledge, P::Only, E::AETH.with(E::ATOMIC_ACK)),
        0x13 => (O::CompareSwap, P::Only, E::ATOMIC),
        0x14 => (O::FetchAdd, P::Only, E::ATOMIC),
        0x15 => (O::Resync, P::Only, E::NONE),
        0x16 => (O::Send, P::Last, E::IETH),
        0x17 => (O::Send, P::Only, E::IETH),
        0x1c => (O::Flush, P::Only, E::FETH.with(E::RETH)),
        _ => (O::AtomicWrite, P::Only, E::RETH),
    };
    let request = !matches!(
        operation,
        O::ReadResponse | O::Acknowledge | O::AtomicAcknowledge | O::CongestionNotification
    );
    let service = match transport {
        Transport::ReliableDatagram if request => E::RDETH.with(E::DETH),
        Transport::ReliableDatagram => E::RDETH,
        Transport::UnreliableDatagram => E::DETH,
        Transport::ExtendedReliableConnection if request => E::XRCETH,
        _ => E::NONE,
    };
    let extensions = service.with(own);
    let immediate = own.contains(E::IMMEDIATE);
    OpcodeInfo {
        name,
        transport,
        operation,
        position,
        extensions,
        extensions_len: extensions.len(),
        // A congestion notification carries 16 reserved bytes (IBA A17.9.3).
        payload: matches!(
            operation,
            O::Send | O::Write | O::ReadResponse | O::AtomicWrite | O::CongestionNotification
        ),
        request,
        immediate,
        completes: matches!(operation, O::Send) && position.ends() || immediate,
    }
}

macro_rules! opcodes {
    ($($name:ident = $code:literal;)+) => {
        #[allow(missing_docs)] // The names are the specification's.
        impl Opcode {
            $(pub const $name: Self = Self($code);)+
        }

        static TABLE: [Option<OpcodeInfo>; 256] = {
            let mut table = [None; 256];
            $(
                assert!(table[$code].is_none());
                table[$code] = Some(describe(stringify!($name), $code));
            )+
            table
        };
    };
}

opcodes! {
    RC_SEND_FIRST = 0x00;
    RC_SEND_MIDDLE = 0x01;
    RC_SEND_LAST = 0x02;
    RC_SEND_LAST_WITH_IMMEDIATE = 0x03;
    RC_SEND_ONLY = 0x04;
    RC_SEND_ONLY_WITH_IMMEDIATE = 0x05;
    RC_RDMA_WRITE_FIRST = 0x06;
    RC_RDMA_WRITE_MIDDLE = 0x07;
    RC_RDMA_WRITE_LAST = 0x08;
    RC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x09;
    RC_RDMA_WRITE_ONLY = 0x0a;
    RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x0b;
    RC_RDMA_READ_REQUEST = 0x0c;
    RC_RDMA_READ_RESPONSE_FIRST = 0x0d;
    RC_RDMA_READ_RESPONSE_MIDDLE = 0x0e;
    RC_RDMA_READ_RESPONSE_LAST = 0x0f;
    RC_RDMA_READ_RESPONSE_ONLY = 0x10;
    RC_ACKNOWLEDGE = 0x11;
    RC_ATOMIC_ACKNOWLEDGE = 0x12;
    RC_COMPARE_SWAP = 0x13;
    RC_FETCH_ADD = 0x14;
    RC_SEND_LAST_WITH_INVALIDATE = 0x16;
    RC_SEND_ONLY_WITH_INVALIDATE = 0x17;
    RC_FLUSH = 0x1c;
    RC_ATOMIC_WRITE = 0x1d;
    UC_SEND_FIRST = 0x20;
    UC_SEND_MIDDLE = 0x21;
    UC_SEND_LAST = 0x22;
    UC_SEND_LAST_WITH_IMMEDIATE = 0x23;
    UC_SEND_ONLY = 0x24;
    UC_SEND_ONLY_WITH_IMMEDIATE = 0x25;
    UC_RDMA_WRITE_FIRST = 0x26;
    UC_RDMA_WRITE_MIDDLE = 0x27;
    UC_RDMA_WRITE_LAST = 0x28;
    UC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x29;
    UC_RDMA_WRITE_ONLY = 0x2a;
    UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x2b;
    RD_SEND_FIRST = 0x40;
    RD_SEND_MIDDLE = 0x41;
    RD_SEND_LAST = 0x42;
    RD_SEND_LAST_WITH_IMMEDIATE = 0x43;
    RD_SEND_ONLY = 0x44;
    RD_SEND_ONLY_WITH_IMMEDIATE = 0x45;
    RD_RDMA_WRITE_FIRST = 0x46;
    RD_RDMA_WRITE_MIDDLE = 0x47;
    RD_RDMA_WRITE_LAST = 0x48;
    RD_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0x49;
    RD_RDMA_WRITE_ONLY = 0x4a;
    RD_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0x4b;
    RD_RDMA_READ_REQUEST = 0x4c;
    RD_RDMA_READ_RESPONSE_FIRST = 0x4d;
    RD_RDMA_READ_RESPONSE_MIDDLE = 0x4e;
    RD_RDMA_READ_RESPONSE_LAST = 0x4f;
    RD_RDMA_READ_RESPONSE_ONLY = 0x50;
    RD_ACKNOWLEDGE = 0x51;
    RD_ATOMIC_ACKNOWLEDGE = 0x52;
    RD_COMPARE_SWAP = 0x53;
    RD_FETCH_ADD = 0x54;
    RD_RESYNC = 0x55;
    RD_FLUSH = 0x5c;
    RD_ATOMIC_WRITE = 0x5d;
    UD_SEND_ONLY = 0x64;
    UD_SEND_ONLY_WITH_IMMEDIATE = 0x65;
    CNP = 0x81;
    XRC_SEND_FIRST = 0xa0;
    XRC_SEND_MIDDLE = 0xa1;
    XRC_SEND_LAST = 0xa2;
    XRC_SEND_LAST_WITH_IMMEDIATE = 0xa3;
    XRC_SEND_ONLY = 0xa4;
    XRC_SEND_ONLY_WITH_IMMEDIATE = 0xa5;
    XRC_RDMA_WRITE_FIRST = 0xa6;
    XRC_RDMA_WRITE_MIDDLE = 0xa7;
    XRC_RDMA_WRITE_LAST = 0xa8;
    XRC_RDMA_WRITE_LAST_WITH_IMMEDIATE = 0xa9;
    XRC_RDMA_WRITE_ONLY = 0xaa;
    XRC_RDMA_WRITE_ONLY_WITH_IMMEDIATE = 0xab;
    XRC_RDMA_READ_REQUEST = 0xac;
    XRC_RDMA_READ_RESPONSE_FIRST = 0xad;
    XRC_RDMA_READ_RESPONSE_MIDDLE = 0xae;
    XRC_RDMA_READ_RESPONSE_LAST = 0xaf;
    XRC_RDMA_READ_RESPONSE_ONLY = 0xb0;
    XRC_ACKNOWLEDGE = 0xb1;
    XRC_ATOMIC_ACKNOWLEDGE = 0xb2;
    XRC_COMPARE_SWAP = 0xb3;
    XRC_FETCH_ADD = 0xb4;
    XRC_SEND_LAST_WITH_INVALIDATE = 0xb6;
    XRC_SEND_ONLY_WITH_INVALIDATE = 0xb7;
    XRC_FLUSH = 0xbc;
    XRC_ATOMIC_WRITE = 0xbd;
}

impl Transport {
    /// The usual abbreviation.
    pub const fn name(self) -> &'static str {
        match self {
            Self::ReliableConnection => "RC",
            Self::UnreliableConnection => "UC",
            Self::ReliableDatagram => "RD",
            Self::UnreliableDatagram => "UD",
            Self::CongestionNotification => "CNP",
            Self::ExtendedReliableConnection => "XRC",
        }
    }
}

newtype_field!(Opcode, u8);

impl Show for Opcode {
    fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }

    fn meaning(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Opcode({:#04x} {})", self.0, self.name())
    }
}

impl fmt::Display for Opcode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.info() {
            Some(info) => f.write_str(info.name),
            None => write!(f, "{}_{:#04x}", self.name(), self.0),
        }
    }
}
