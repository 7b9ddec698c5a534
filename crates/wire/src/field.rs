//! Headers as tables of bit fields.
//!
//! The `header!` macro defines a header once, field by field, in the order and with the widths of the specification's
//! figure. It generates the struct, the parser, the emitter, a compile-time check that the fields cover the header
//! without gap or overlap, and the description used by the dissector, which therefore cannot diverge.

use core::fmt;

/// Position and description of a header field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldSpec {
    /// The field's name in the struct.
    pub name: &'static str,
    /// First bit, counted from the header's first byte, most significant bit first.
    pub bit: usize,
    /// Width in bits.
    pub width: usize,
    /// One-line description.
    pub doc: &'static str,
}

impl FieldSpec {
    /// Whether the specification reserves the field: shown only if nonzero.
    pub fn is_reserved(&self) -> bool {
        self.name.starts_with("reserved")
    }

    /// The bytes the field occupies, relative to its header.
    pub fn bytes(&self) -> core::ops::Range<usize> {
        self.bit / 8..(self.bit + self.width).div_ceil(8)
    }
}

/// A value that can be stored in a header field.
pub trait Field: Sized {
    /// Reads the value from `width` bits at `bit`, which `header!` guarantees at compile time to be in range.
    fn load(bytes: &[u8], bit: usize, width: usize) -> Self;
    /// Writes the value to `width` bits at `bit`; higher bits are dropped.
    fn store(&self, bytes: &mut [u8], bit: usize, width: usize);

    /// Whether the value is a number, and not bytes.
    const IS_NUMBER: bool = false;

    /// The number; 0 for bytes.
    #[inline(always)]
    fn number(&self) -> u64 {
        0
    }
}

/// Human-readable form of a field's value.
pub trait Show {
    /// Writes the value in the usual notation.
    fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result;

    /// Writes the meaning of the value; nothing if it has none.
    fn meaning(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Ok(())
    }
}

/// Prints [`Show::value`] through `Display`.
pub struct Value<'a>(pub &'a dyn Show);

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.value(f)
    }
}

/// Prints [`Show::meaning`] through `Display`.
pub struct Meaning<'a>(pub &'a dyn Show);

impl fmt::Display for Meaning<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.meaning(f)
    }
}

/// A fixed-size header defined by `header!`.
pub trait Header: Sized {
    /// The specification's short name, for example `BTH`.
    const NAME: &'static str;
    /// Its size in bytes.
    const LEN: usize;
    /// Its fields in order.
    const FIELDS: &'static [FieldSpec];

    /// Calls `visitor` for every field, in order.
    fn visit(&self, visitor: &mut dyn FnMut(&'static FieldSpec, &dyn Show));
}

/// Big-endian bits `bit..bit + width` (at most 64, in at most 8 bytes) as a number.
#[inline(always)]
pub(crate) fn load_bits(bytes: &[u8], bit: usize, width: usize) -> u64 {
    let (first, end) = (bit / 8, (bit + width).div_ceil(8));
    // Whole words are one load each: the compiler does not find that in the loop.
    let value = match bytes[first..end] {
        [a, b, c, d] => u64::from(u32::from_be_bytes([a, b, c, d])),
        [a, b, c, d, e, f, g, h] => u64::from_be_bytes([a, b, c, d, e, f, g, h]),
        ref some => some.iter().fold(0, |value, &byte| value << 8 | u64::from(byte)),
    };
    value >> (end * 8 - bit - width) & mask(width)
}

/// The inverse of [`load_bits`]; neighbouring bits keep their value.
#[inline(always)]
pub(crate) fn store_bits(bytes: &mut [u8], bit: usize, width: usize, value: u64) {
    let (first, end) = (bit / 8, (bit + width).div_ceil(8));
    let shift = end * 8 - bit - width;
    let (mut value, mut keep) = ((value & mask(width)) << shift, !(mask(width) << shift));
    for byte in bytes[first..end].iter_mut().rev() {
        *byte = *byte & keep as u8 | value as u8;
        value >>= 8;
        keep = keep >> 8 | 0xff << 56;
    }
}

/// `value` in a header of `bits` bits, up to 128, which is one number. As one, it is written with a store for each 8 bytes,
/// where the compiler makes one for each byte otherwise.
#[inline(always)]
pub(crate) fn place_bits(value: u64, bit: usize, width: usize, bits: usize) -> u128 {
    u128::from(value & mask(width)).wrapping_shl(bits.wrapping_sub(bit + width) as u32)
}

const fn mask(width: usize) -> u64 {
    u64::MAX >> (64 - width)
}

/// Offsets of the fields: prefix sums of the widths.
pub(crate) const fn offsets<const N: usize>(widths: [usize; N]) -> [usize; N] {
    let mut at = [0; N];
    let mut i = 1;
    while i < N {
        at[i] = at[i - 1] + widths[i - 1];
        i += 1;
    }
    at
}

macro_rules! unsigned_fields {
    ($($type:ty),*) => {$(
        impl Field for $type {
            const IS_NUMBER: bool = true;

            #[inline(always)]
            fn load(bytes: &[u8], bit: usize, width: usize) -> Self {
                load_bits(bytes, bit, width) as $type
            }

            #[inline(always)]
            fn store(&self, bytes: &mut [u8], bit: usize, width: usize) {
                store_bits(bytes, bit, width, u64::from(*self));
            }

            #[inline(always)]
            fn number(&self) -> u64 {
                u64::from(*self)
            }
        }

        impl Show for $type {
            fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(self, f)
            }
        }
    )*};
}

/// Implements [`Field`] for a newtype over an unsigned integer.
macro_rules! newtype_field {
    ($name:ty, $repr:ty) => {
        impl crate::field::Field for $name {
            const IS_NUMBER: bool = true;

            #[inline(always)]
            fn load(bytes: &[u8], bit: usize, width: usize) -> Self {
                Self(<$repr as crate::field::Field>::load(bytes, bit, width))
            }

            #[inline(always)]
            fn store(&self, bytes: &mut [u8], bit: usize, width: usize) {
                crate::field::Field::store(&self.0, bytes, bit, width);
            }

            #[inline(always)]
            fn number(&self) -> u64 {
                crate::field::Field::number(&self.0)
            }
        }
    };
}

pub(crate) use newtype_field;

unsigned_fields!(u8, u16, u32, u64);

impl Field for bool {
    const IS_NUMBER: bool = true;

    #[inline(always)]
    fn load(bytes: &[u8], bit: usize, width: usize) -> Self {
        load_bits(bytes, bit, width) != 0
    }

    #[inline(always)]
    fn store(&self, bytes: &mut [u8], bit: usize, width: usize) {
        store_bits(bytes, bit, width, u64::from(*self));
    }

    #[inline(always)]
    fn number(&self) -> u64 {
        u64::from(*self)
    }
}

impl Show for bool {
    fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self { "1" } else { "0" })
    }

    fn meaning(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if *self { "set" } else { "not set" })
    }
}

/// Opaque bytes: private data, signatures, payload of a management datagram.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Octets<const N: usize>(pub [u8; N]);

impl<const N: usize> Default for Octets<N> {
    fn default() -> Self {
        Self([0; N])
    }
}

impl<const N: usize> core::ops::Deref for Octets<N> {
    type Target = [u8; N];

    fn deref(&self) -> &[u8; N] {
        &self.0
    }
}

impl<const N: usize> Octets<N> {
    /// Pads `bytes` with zeroes; `None` if they do not fit.
    pub fn padded(bytes: &[u8]) -> Option<Self> {
        let mut octets = Self::default();
        octets.0.get_mut(..bytes.len())?.copy_from_slice(bytes);
        Some(octets)
    }
}

impl<const N: usize> fmt::Debug for Octets<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Show::value(self, f)
    }
}

impl<const N: usize> Field for Octets<N> {
    #[inline(always)]
    fn load(bytes: &[u8], bit: usize, _width: usize) -> Self {
        let mut octets = [0; N];
        octets.copy_from_slice(&bytes[bit / 8..bit / 8 + N]);
        Self(octets)
    }

    #[inline(always)]
    fn store(&self, bytes: &mut [u8], bit: usize, _width: usize) {
        bytes[bit / 8..bit / 8 + N].copy_from_slice(&self.0);
    }
}

impl<const N: usize> Show for Octets<N> {
    fn value(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
        self.0[..shown].iter().try_for_each(|byte| write!(f, "{byte:02x}"))?;
        match N - shown {
            0 => Ok(()),
            zeroes if shown == 0 => write!(f, "{zeroes} zero bytes"),
            zeroes => write!(f, " + {zeroes} zero bytes"),
        }
    }
}

/// Defines fixed-size headers from the specification's figures, see the [module](self).
///
/// ```ignore
/// header! {
///     /// Base transport header (IBA 9.2).
///     pub struct Bth("BTH", 12) {
///         /// What the packet does and which headers follow.
///         opcode: Opcode = 8,
///         ...
///     }
/// }
/// ```
macro_rules! header {
    ($(
        $(#[doc = $about:literal])+
        pub struct $name:ident($label:literal, $len:literal) {
            $( $(#[doc = $doc:literal])+ $field:ident: $type:ty = $width:literal, )+
        }
    )+) => {$(
        $(#[doc = $about])+
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $name {
            $( $(#[doc = $doc])+ pub $field: $type, )+
        }

        const _: () = {
            #[allow(non_camel_case_types)]
            enum Index { $($field),+ }

            const WIDTHS: [usize; [$(Index::$field as usize),+].len()] = [$($width),+];
            const OFFSETS: [usize; WIDTHS.len()] = crate::field::offsets(WIDTHS);
            assert!(
                OFFSETS[WIDTHS.len() - 1] + WIDTHS[WIDTHS.len() - 1] == $len * 8,
                concat!("the fields of ", stringify!($name), " do not add up to its length")
            );

            impl $name {
                /// Size in bytes.
                pub const LEN: usize = $len;

                /// Parses the header. Every bit pattern is valid, and reserved bits are preserved.
                #[inline(always)] // What the caller does not use is not parsed.
                pub fn parse(bytes: &[u8; $len]) -> Self {
                    Self {
                        $( $field: <$type as crate::field::Field>::load(
                            bytes, OFFSETS[Index::$field as usize], $width), )+
                    }
                }

                /// Parses the header at the front of `bytes` and returns it with the rest, or `None` if there are
                /// fewer bytes.
                #[inline]
                pub fn split(bytes: &[u8]) -> Option<(Self, &[u8])> {
                    let (header, rest) = bytes.split_first_chunk::<$len>()?;
                    Some((Self::parse(header), rest))
                }

                /// The header's bytes: the inverse of [`Self::parse`].
                #[inline(always)] // Constant fields cost nothing.
                pub fn to_bytes(&self) -> [u8; $len] {
                    let mut bytes = [0; $len];
                    if $len <= 16 $( && <$type as crate::field::Field>::IS_NUMBER )+ {
                        let number: u128 = 0 $( | crate::field::place_bits(
                            crate::field::Field::number(&self.$field),
                            OFFSETS[Index::$field as usize], $width, $len * 8) )+;
                        bytes.copy_from_slice(&number.to_be_bytes()[16usize.saturating_sub($len)..]);
                        return bytes;
                    }
                    $( crate::field::Field::store(
                        &self.$field, &mut bytes, OFFSETS[Index::$field as usize], $width); )+
                    bytes
                }
            }

            impl crate::field::Header for $name {
                const NAME: &'static str = $label;
                const LEN: usize = $len;
                const FIELDS: &'static [crate::field::FieldSpec] = &[
                    $( crate::field::FieldSpec {
                        name: stringify!($field),
                        bit: OFFSETS[Index::$field as usize],
                        width: $width,
                        doc: concat!($($doc),+).trim_ascii(),
                    }, )+
                ];

                fn visit(
                    &self,
                    visitor: &mut dyn FnMut(&'static crate::field::FieldSpec, &dyn crate::field::Show),
                ) {
                    $( visitor(&Self::FIELDS[Index::$field as usize], &self.$field); )+
                }
            }
        };
    )+};
}

pub(crate) use header;
