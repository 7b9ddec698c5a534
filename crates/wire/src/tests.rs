//! Compares the tables of this crate with a second copy written from the specification, and checks that parsing and
//! emitting are inverse.

mod fields;
mod frames;
mod numbers;
mod opcodes;
mod syndromes;
mod udp_headers;

use std::vec::Vec;

use proptest::test_runner::{Config, RngSeed};

/// Deterministic cases.
fn config() -> Config {
    Config { rng_seed: RngSeed::Fixed(4791), failure_persistence: None, ..Config::default() }
}

/// The bytes of a text of hexadecimal digits and spaces.
fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex.bytes().filter(|digit| !digit.is_ascii_whitespace()).collect();
    let pairs = digits.chunks(2).map(|pair| std::str::from_utf8(pair).expect("digits are ASCII"));
    pairs.map(|pair| u8::from_str_radix(pair, 16).expect("a digit is missing")).collect()
}
