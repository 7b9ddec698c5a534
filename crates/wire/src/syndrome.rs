//! AETH syndromes: ACK with credits, RNR NAK with a timer, or NAK with a code (IBA 9.7.5.1, tables 43 to 46 and 58).

use core::fmt;
use core::time::Duration;

use crate::field::{Show, newtype_field};

/// The syndrome byte on the wire.
#[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct Syndrome(pub u8);

/// A decoded syndrome.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SyndromeKind {
    /// All packets up to the PSN arrived.
    Ack(Credits),
    /// No receive request was posted: retransmit after this time.
    RnrNak(RnrTimer),
    /// The request is refused.
    Nak(NakCode),
    /// A reserved value.
    Reserved,
}

/// End-to-end credits: number of further messages that consume a receive request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Credits(u8);

/// Reason of a NAK (IBA table 46).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NakCode {
    /// A previous packet is missing: go back.
    PsnSequenceError,
    /// The queue pair does not accept the request.
    InvalidRequest,
    /// R_Key, bounds or access flags do not allow the request.
    RemoteAccessError,
    /// The responder failed locally.
    RemoteOperationalError,
    /// Defined for reliable datagrams only.
    InvalidRdRequest,
}

/// The 5-bit code of the time to wait after an RNR NAK (IBA table 45).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct RnrTimer(u8);

/// Credits by their code (IBA table 58); code 31 means that the responder does not use credits.
const CREDITS: [u16; 31] = [
    0, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768,
];

/// RNR times by their code, in steps of 10 µs (IBA table 45): 0 is the longest.
const RNR_TIMES: [u16; 32] = [
    65535, 1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024, 1536,
    2048, 3072, 4096, 6144, 8192, 12288, 16384, 24576, 32768, 49152,
];

impl Syndrome {
    /// An ACK without credits, as sent by rdma_rxe and most devices.
    pub const ACK: Self = Self(31);

    /// Decodes the byte. Bit 7 is reserved, bits 6 and 5 are the kind (IBA table 43).
    pub const fn kind(self) -> SyndromeKind {
        let value = self.0 & 0x1f;
        match self.0 >> 5 {
            0b000 => SyndromeKind::Ack(Credits(value)),
            0b001 => SyndromeKind::RnrNak(RnrTimer(value)),
            0b011 => match NakCode::from_code(value) {
                Some(code) => SyndromeKind::Nak(code),
                None => SyndromeKind::Reserved,
            },
            _ => SyndromeKind::Reserved,
        }
    }

    /// Whether it is an ACK.
    pub const fn is_ack(self) -> bool {
        matches!(self.kind(), SyndromeKind::Ack(_))
    }
}

impl From<SyndromeKind> for Syndrome {
    /// Encodes a kind; `Reserved` becomes the first reserved value.
    fn from(kind: SyndromeKind) -> Self {
        match kind {
            SyndromeKind::Ack(credits) => Self(credits.0),
            SyndromeKind::RnrNak(timer) => Self(0x20 | timer.0),
            SyndromeKind::Nak(code) => Self(0x60 | code.code()),
            SyndromeKind::Reserved => Self(0x40),
        }
    }
}

impl Credits {
    /// The responder does not use credits.
    pub const UNLIMITED: Self = Self(31);

    /// The credits for a 5-bit code.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The largest encodable number of credits not above `count`: a responder must not advertise receives that it does not
    /// have.
    pub fn at_most(count: u32) -> Self {
        let above = CREDITS.iter().position(|&credits| u32::from(credits) > count);
        Self(above.unwrap_or(CREDITS.len()) as u8 - 1)
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The number of messages, `None` if the responder does not use credits.
    pub fn count(self) -> Option<u16> {
        CREDITS.get(usize::from(self.0)).copied()
    }
}

impl NakCode {
    /// All codes in order.
    pub const ALL: [Self; 5] = [
        Self::PsnSequenceError,
        Self::InvalidRequest,
        Self::RemoteAccessError,
        Self::RemoteOperationalError,
        Self::InvalidRdRequest,
    ];

    /// The code for a 5-bit value, `None` if reserved.
    pub const fn from_code(code: u8) -> Option<Self> {
        if (code as usize) < Self::ALL.len() { Some(Self::ALL[code as usize]) } else { None }
    }

    /// The 5-bit value.
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The name.
    pub const fn name(self) -> &'static str {
        match self {
            Self::PsnSequenceError => "PSN sequence error",
            Self::InvalidRequest => "invalid request",
            Self::RemoteAccessError => "remote access error",
            Self::RemoteOperationalError => "remote operational error",
            Self::InvalidRdRequest => "invalid RD request",
        }
    }
}

impl RnrTimer {
    /// The timer for a 5-bit code.
    pub const fn from_code(code: u8) -> Option<Self> {
        if code < 32 { Some(Self(code)) } else { None }
    }

    /// The shortest encodable time that is at least `time`, or the longest if there is none.
    pub fn at_least(time: Duration) -> Self {
        let codes = (1..32u8).chain([0]);
        Self(codes.into_iter().find(|&code| Self(code).duration() >= time).unwrap_or(0))
    }

    /// The 5-bit code.
    pub const fn code(self) -> u8 {
        self.0
    }

    /// The time to wait: 0.01 ms to 655.36 ms.
    pub fn duration(self) -> Duration {
        match self.0 {
            // 65536 does not fit the table's 16 bits.
            0 => Duration::from_micros(655_360),
            code => Duration::from_micros(10 * u64::from(RNR_TIMES[usize::from(code)])),
        }
    }
}

impl fmt::Display for SyndromeKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ack(credits) => match credits.count() {
                Some(count) => write!(f, "ACK, {count} credits"),
                None => f.write_str("ACK"),
            },
            Self::RnrNak(timer) => {
                let micros = timer.duration().as_micros();
                write!(f, "RNR NAK, wait {}.{:02} ms", micros / 1000, micros % 1000 / 10)
            }
            Self::Nak(code) => write!(f, "NAK, {}", code.name()),
            Self::Reserved => f.write_str("reserved"),
        }
    }
}

impl fmt::Debug for Syndrome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Syndrome({:#04x} {})", self.0, self.kind())
    }
}

newtype_field!(Syndrome, u8);

impl Show for Syndrome {
    fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#04x}", self.0)
    }

    fn meaning(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.kind(), f)
    }
}
