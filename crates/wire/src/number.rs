//! Newtypes for the protocol's numbers, so that keys are not mixed up with addresses and PSNs are not compared without
//! wrap-around.

/// Defines newtypes over unsigned integers, displayed in hexadecimal with a fixed number of digits. The meaning of a value
/// is given as a function that returns text or, after `=>`, as one that writes it.
macro_rules! numbers {
    ($(
        $(#[$meta:meta])+
        pub struct $name:ident($repr:ty), $digits:literal $(, $meaning:expr)? $(=> $write:expr)?;
    )+) => {$(
        $(#[$meta])+
        #[derive(Clone, Copy, Default, PartialEq, Eq, Hash)]
        pub struct $name(pub $repr);

        crate::field::newtype_field!($name, $repr);

        impl core::fmt::Display for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!("{:#0", $digits, "x}"), self.0)
            }
        }

        impl core::fmt::Debug for $name {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl crate::field::Show for $name {
            fn value(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                core::fmt::Display::fmt(self, f)
            }

            $(fn meaning(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let meaning: fn(&Self) -> &'static str = $meaning;
                f.write_str(meaning(self))
            })?

            $(fn meaning(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                let write: fn(&Self, &mut core::fmt::Formatter<'_>) -> core::fmt::Result = $write;
                write(self, f)
            })?
        }
    )+};
}

pub(crate) use numbers;

/// Defines a [`numbers!`] type with named values: constants, their list and their meanings.
macro_rules! codes {
    ($(
        $(#[$meta:meta])+
        pub struct $name:ident($repr:ty), $digits:literal {
            $( $code:ident = $value:literal => $meaning:literal, )+
            _ => $other:literal,
        }
    )+) => {
        crate::number::numbers! {$(
            $(#[$meta])+
            pub struct $name($repr), $digits, |code| match code.0 {
                $( $value => $meaning, )+
                _ => $other,
            };
        )+}

        $(impl $name {
            /// All named values, in the specification's order.
            pub const ALL: &[Self] = &[$(Self($value)),+];
            $( #[doc = concat!("Means: ", $meaning, ".")] pub const $code: Self = Self($value); )+
        })+
    };
}

pub(crate) use codes;

/// Writes the names of the flags that are set, then the unknown bits as a number.
pub(crate) fn write_flag_names(
    f: &mut core::fmt::Formatter<'_>,
    set: u32,
    flags: impl Iterator<Item = (&'static str, u32)>,
) -> core::fmt::Result {
    let mut unknown = set;
    let mut separator = "";
    for (name, flag) in flags.filter(|(_, flag)| set & flag != 0) {
        write!(f, "{separator}{name}")?;
        separator = " | ";
        unknown &= !flag;
    }
    match unknown {
        0 if set == 0 => f.write_str("none"),
        0 => Ok(()),
        unknown => write!(f, "{separator}{unknown:#x} unknown"),
    }
}

numbers! {
    /// Packet sequence number, 24 bits (IBA 9.2). It wraps, so it has no order: see [`Psn::distance`].
    pub struct Psn(u32), 8;
    /// Queue pair number, 24 bits.
    pub struct Qpn(u32), 8, |qpn| match qpn.0 {
        0 => "subnet management",
        1 => "general services (connection manager)",
        0xff_ffff => "multicast",
        _ => "",
    };
    /// Shared receive queue (SRQ) number, 24 bits. No numbers are reserved; 0 means that a QP has no SRQ.
    pub struct SrqNumber(u32), 8, |srq| match srq.0 {
        0 => "none",
        _ => "",
    };
    /// Message sequence number, 24 bits (IBA 9.7.7.1): number of messages completed by the responder.
    pub struct Msn(u32), 8;
    /// Remote key (R_Key) of a memory region or window.
    pub struct RKey(u32), 10;
    /// Local key (L_Key) of a memory region.
    pub struct LKey(u32), 10;
    /// Queue key of a datagram (IBA 10.2.5).
    pub struct QKey(u32), 10, |key| match key.0 {
        0x8001_0000 => "general services, well known",
        0x0123_4567 => "RDMA-CM's default for UDP",
        key if key & 0x8000_0000 != 0 => "controlled: set by privileged software",
        _ => "",
    };
    /// Partition key (IBA 10.9.1): the top bit indicates full membership.
    pub struct PKey(u16), 6, |key| match key.0 {
        0xffff => "default partition, full member",
        0x7fff => "default partition, limited member",
        key if key & 0x8000 != 0 => "full member",
        _ => "limited member",
    };
    /// A virtual address in the memory of the peer that registered it; never dereferenced here.
    pub struct VirtualAddress(u64), 18;
    /// A 64-bit value without arithmetic: operands and results of atomics.
    pub struct Word(u64), 18;
    /// A device's or node's globally unique identifier.
    pub struct Guid(u64), 18;
    /// Local identifier in a native InfiniBand subnet; zero over Ethernet.
    pub struct Lid(u16), 6;
    /// A field of flags or codes best read in hexadecimal.
    pub struct Hex8(u8), 4;
    /// A field of flags or codes best read in hexadecimal.
    pub struct Hex16(u16), 6;
    /// A field of flags or codes best read in hexadecimal.
    pub struct Hex32(u32), 10;
    /// Immediate data: four bytes delivered with the receiver's completion.
    pub struct Immediate(u32), 10;
}

/// Upper bound (exclusive) of 24-bit numbers.
pub const LIMIT_24: u32 = 1 << 24;

impl Psn {
    /// Truncates `value` to 24 bits.
    pub const fn new(value: u32) -> Self {
        Self(value & (LIMIT_24 - 1))
    }

    /// This number advanced by `count` packets, wrapping at 2^24 (IBA 9.7.2).
    #[must_use]
    pub const fn add(self, count: u32) -> Self {
        Self::new(self.0.wrapping_add(count))
    }

    /// This number moved back by `count` packets.
    #[must_use]
    pub const fn sub(self, count: u32) -> Self {
        Self::new(self.0.wrapping_sub(count))
    }

    /// Signed distance from `earlier` to `self`, modulo 2^24 (IBA 9.7.2). PSNs have a distance but no total order.
    pub const fn distance(self, earlier: Self) -> i32 {
        (self.0.wrapping_sub(earlier.0) << 8) as i32 >> 8
    }

    /// Whether `self` precedes `other`, by the sign of [`Psn::distance`].
    pub const fn is_before(self, other: Self) -> bool {
        self.distance(other) < 0
    }
}

impl Qpn {
    /// The queue pair of the connection manager and other general services (IBA 13.5.1).
    pub const GENERAL_SERVICES: Self = Self(1);
    /// The destination of multicast datagrams.
    pub const MULTICAST: Self = Self(0xff_ffff);
}

/// The protocol core uses one type for SRQ and QP numbers: both are 24-bit numbers of the same device.
impl From<SrqNumber> for Qpn {
    fn from(srq: SrqNumber) -> Self {
        Self(srq.0)
    }
}

impl From<Qpn> for SrqNumber {
    fn from(number: Qpn) -> Self {
        Self(number.0)
    }
}

impl QKey {
    /// The key of queue pair 1 (IBA 13.5.1).
    pub const GENERAL_SERVICES: Self = Self(0x8001_0000);
}
