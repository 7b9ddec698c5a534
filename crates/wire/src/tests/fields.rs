use std::collections::BTreeSet;
use std::string::{String, ToString};
use std::vec::Vec;
use std::{format, vec};

use proptest::prelude::*;

use crate::cm::{Apr, Drep, Dreq, Lap, Mra, Path, Rej, Rep, Req, Rtu, SidrRep, SidrReq};
use crate::ethernet::{Ethernet, Vlan};
use crate::field::{Header, Octets, Value, load_bits, store_bits};
use crate::infiniband::{Grh, Lrh};
use crate::ip::{Ipv4, Ipv6, Udp};
use crate::mad::MadHeader;
use crate::transport::{
    Aeth, AtomicAckEth, AtomicEth, Bth, Deth, Feth, Ieth, ImmDt, Rdeth, Reth, Xrceth,
};
use odd::Odd;

// The macro defines public headers with all functions.
#[allow(unreachable_pub, dead_code, clippy::wrong_self_convention)]
mod odd {
    use crate::field::{Octets, header};

    header! {
        /// Fields of various widths that start and end within bytes.
        pub struct Odd("ODD", 17) {
            /// Three bits.
            three: u8 = 3,
            /// Across a byte boundary.
            thirteen: u16 = 13,
            /// A flag.
            flag: bool = 1,
            /// All but a bit of four bytes.
            thirty_one: u32 = 31,
            /// Seven bytes
            /// and a half.
            sixty: u64 = 60,
            /// Reserved.
            reserved: u8 = 4,
            /// Opaque bytes.
            octets: Octets<3> = 24,
        }
    }
}

type Split<H> = fn(&[u8]) -> Option<(H, &[u8])>;

/// Properties of every header.
struct Laws<H, const N: usize> {
    parse: fn(&[u8; N]) -> H,
    to_bytes: fn(&H) -> [u8; N],
    split: Split<H>,
}

impl<H: Header + PartialEq + core::fmt::Debug, const N: usize> Laws<H, N> {
    fn check_all(&self) {
        assert_eq!(H::LEN, N);
        self.fields_tile();
        self.each_bit_belongs_to_one_field();
        self.short_input_is_rejected();
        self.emit_is_the_inverse_of_parse();
    }

    fn fields_tile(&self) {
        let mut at = 0;
        for spec in H::FIELDS {
            assert_eq!(spec.bit, at, "{}.{}", H::NAME, spec.name);
            assert!(!spec.doc.is_empty() && spec.doc.trim() == spec.doc, "{}", spec.doc);
            at += spec.width;
        }
        assert_eq!(at, N * 8, "{}", H::NAME);
        let names: BTreeSet<&str> = H::FIELDS.iter().map(|spec| spec.name).collect();
        assert_eq!(names.len(), H::FIELDS.len(), "{}", H::NAME);
    }

    fn values(&self, bytes: &[u8; N]) -> Vec<String> {
        let mut values = vec![];
        let mut specs = vec![];
        (self.parse)(bytes).visit(&mut |spec, value| {
            specs.push(*spec);
            values.push(Value(value).to_string());
        });
        assert_eq!(specs, H::FIELDS);
        values
    }

    fn each_bit_belongs_to_one_field(&self) {
        let zero = self.values(&[0; N]);
        for bit in 0..N * 8 {
            let mut bytes = [0; N];
            bytes[bit / 8] = 0x80 >> (bit % 8);
            let values = self.values(&bytes);
            for ((spec, value), zero) in H::FIELDS.iter().zip(&values).zip(&zero) {
                let inside = (spec.bit..spec.bit + spec.width).contains(&bit);
                assert_eq!(value != zero, inside, "{}.{}, bit {bit}", H::NAME, spec.name);
                assert!(!inside || spec.bytes().contains(&(bit / 8)));
            }
        }
    }

    fn short_input_is_rejected(&self) {
        let input: Vec<u8> = (0..N as u32 + 3).map(|i| i as u8).collect();
        for len in 0..=input.len() {
            let split = (self.split)(&input[..len]);
            assert_eq!(split.is_some(), len >= N, "{} of {len} bytes", H::NAME);
            if let Some((header, rest)) = split {
                assert_eq!((self.to_bytes)(&header), input[..N]);
                assert_eq!(rest, &input[N..len]);
            }
        }
    }

    fn emit_is_the_inverse_of_parse(&self) {
        for seed in 0..64u32 {
            let bytes: [u8; N] = core::array::from_fn(|i| {
                let mixed = (seed * 251 + i as u32 + 1).wrapping_mul(0x9e37_79b1);
                (mixed >> 24) as u8
            });
            let header = (self.parse)(&bytes);
            assert_eq!((self.to_bytes)(&header), bytes, "{header:?}");
            assert_eq!((self.parse)(&(self.to_bytes)(&header)), header);
        }
    }
}

macro_rules! laws_hold {
    ($($header:ident),+ $(,)?) => {$(
        Laws { parse: $header::parse, to_bytes: $header::to_bytes, split: $header::split }.check_all();
    )+};
}

#[test]
fn every_header_round_trips() {
    laws_hold!(Odd, Ethernet, Vlan, Ipv4, Ipv6, Udp, Lrh, Grh);
    laws_hold!(Bth, Rdeth, Deth, Xrceth, Feth, Reth, AtomicEth, Aeth, AtomicAckEth, ImmDt, Ieth);
    laws_hold!(MadHeader, Req, Mra, Rej, Rep, Rtu, Dreq, Drep, SidrReq, SidrRep, Lap, Apr, Path);
}

#[test]
fn a_description_is_one_line() {
    assert_eq!(Odd::FIELDS[4].doc, "Seven bytes and a half.");
    assert!(Odd::FIELDS[5].is_reserved() && !Odd::FIELDS[4].is_reserved());
}

#[test]
fn values_wider_than_their_field_are_truncated() {
    let wide = Odd { three: 0xff, sixty: u64::MAX, ..Odd::default() };
    let cut = Odd { three: 7, sixty: (1 << 60) - 1, ..Odd::default() };
    assert_eq!(Odd::parse(&wide.to_bytes()), cut);
}

#[test]
fn octets_show_their_zeroes_as_a_count() {
    let show = |octets: &Octets<4>| format!("{}", Value(octets));
    assert_eq!(show(&Octets([0; 4])), "4 zero bytes");
    assert_eq!(show(&Octets([1, 0, 2, 0])), "010002 + 1 zero bytes");
    assert_eq!(show(&Octets([0, 0, 0, 9])), "00000009");
    assert_eq!(Octets::<4>::padded(&[7, 8]), Some(Octets([7, 8, 0, 0])));
    assert_eq!(Octets::<4>::padded(&[0; 5]), None);
}

/// Reference implementation, bit by bit.
fn load_slowly(bytes: &[u8], bit: usize, width: usize) -> u64 {
    (bit..bit + width)
        .fold(0, |value, bit| value << 1 | u64::from(bytes[bit / 8] >> (7 - bit % 8) & 1))
}

proptest! {
    #![proptest_config(super::config())]

    #[test]
    fn bit_fields_round_trip(
        bytes in any::<[u8; 12]>(), bit in 0..32usize, width in 1..=64usize, value in any::<u64>(),
    ) {
        // At most 8 bytes: the widest fields start at a byte boundary.
        prop_assume!((bit + width).div_ceil(8) - bit / 8 <= 8);
        prop_assert_eq!(load_bits(&bytes, bit, width), load_slowly(&bytes, bit, width));
        let mut stored = bytes;
        store_bits(&mut stored, bit, width, value);
        let kept = value & (u64::MAX >> (64 - width));
        prop_assert_eq!(load_slowly(&stored, bit, width), kept);
        for other in (0..96).filter(|other| !(bit..bit + width).contains(other)) {
            prop_assert_eq!(load_slowly(&stored, other, 1), load_slowly(&bytes, other, 1));
        }
    }
}
