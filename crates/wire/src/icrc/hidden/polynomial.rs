//! Arithmetic on polynomials over GF(2) modulo that of the CRC-32.
//!
//! A polynomial of degree below 32 is a `u32` in the bit order of the CRC register: the coefficient of
//! x^0 in the most significant bit, that of x^31 in the least significant. The CRC's
//! polynomial is irreducible, so every polynomial but zero has an inverse.

/// x^32 modulo the polynomial of the CRC-32.
const MODULUS: u32 = 0xedb8_8320;

const ONE: u32 = 0x8000_0000;

/// `a · x`.
const fn times_x(a: u32) -> u32 {
    if a & 1 != 0 { (a >> 1) ^ MODULUS } else { a >> 1 }
}

/// `a / x`.
const fn over_x(a: u32) -> u32 {
    // The modulus has a constant term: `a` is a reduced product if and only if it has one too.
    if a & ONE != 0 { ((a ^ MODULUS) << 1) | 1 } else { a << 1 }
}

/// `a · b`.
const fn times(a: u32, b: u32) -> u32 {
    // First the product without reduction, whose steps are independent.
    let mut product = 0;
    let mut bit = 0;
    while bit < 32 {
        let chosen = ((a >> bit) & 1) as u64;
        product ^= ((b as u64) << bit) & chosen.wrapping_neg();
        bit += 1;
    }
    // It has degree 62. Shifted by one, its upper half is x^0 … x^31 and its lower half x^32 … x^63.
    product <<= 1;
    (product >> 32) as u32 ^ times_x32(product as u32)
}

/// `a · x^32`.
const fn times_x32(mut a: u32) -> u32 {
    let mut byte = 0;
    while byte < 4 {
        a = (a >> 8) ^ TIMES_X8[(a & 0xff) as usize];
        byte += 1;
    }
    a
}

/// `a · x^8` for every `a` of eight bits: x^24 … x^31.
static TIMES_X8: [u32; 256] = {
    let mut table = [0; 256];
    let mut i = 0;
    while i < table.len() {
        let mut a = i as u32;
        let mut bit = 0;
        while bit < 8 {
            a = times_x(a);
            bit += 1;
        }
        table[i] = a;
        i += 1;
    }
    table
};

/// x^(-8i) for i = 0 … 256.
const fn single_bytes() -> [u32; 257] {
    let mut table = [ONE; 257];
    let mut i = 1;
    while i < table.len() {
        let mut power = table[i - 1];
        let mut bit = 0;
        while bit < 8 {
            power = over_x(power);
            bit += 1;
        }
        table[i] = power;
        i += 1;
    }
    table
}

/// x^(-8·256·i) for i = 0 … 255.
const fn pages() -> [u32; 256] {
    let page = single_bytes()[256];
    let mut table = [ONE; 256];
    let mut i = 1;
    while i < table.len() {
        table[i] = times(table[i - 1], page);
        i += 1;
    }
    table
}

// Two tables of 1 KiB cover every length with two multiplications. A table with one entry per length would
// save one multiplication at the cost of 256 KiB of cache.
static BYTES: [u32; 257] = single_bytes();
static PAGES: [u32; 256] = pages();

/// `a · x^(-8·bytes)`: the CRC register before `bytes` zero bytes that left it at `a`.
pub(super) fn rewind(a: u32, bytes: u16) -> u32 {
    let [page, byte] = bytes.to_be_bytes();
    times(times(a, BYTES[usize::from(byte)]), PAGES[usize::from(page)])
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::{ONE, over_x, rewind, times, times_x};

    /// `a` after `bytes` zero bytes, bit by bit.
    fn forward(mut a: u32, bytes: u16) -> u32 {
        for _ in 0..u32::from(bytes) * 8 {
            a = times_x(a);
        }
        a
    }

    proptest! {
        #[test]
        fn multiplication_satisfies_the_field_laws(a: u32, b: u32, c: u32) {
            prop_assert_eq!(times(a, ONE), a);
            prop_assert_eq!(times(a, b), times(b, a));
            prop_assert_eq!(times(a, times(b, c)), times(times(a, b), c));
            prop_assert_eq!(times(a, b ^ c), times(a, b) ^ times(a, c));
            prop_assert_eq!(over_x(times_x(a)), a);
            prop_assert_eq!(times_x(over_x(a)), a);
        }

        #[test]
        fn rewinding_undoes_zero_bytes(a: u32, bytes: u16) {
            prop_assert_eq!(rewind(forward(a, bytes), bytes), a);
        }
    }

    #[test]
    fn rewinding_works_at_the_table_boundaries() {
        for bytes in [0, 1, 255, 256, 257, 511, 512, 65_279, 65_280, u16::MAX] {
            assert_eq!(rewind(forward(0x1234_5678, bytes), bytes), 0x1234_5678, "{bytes}");
        }
    }
}
