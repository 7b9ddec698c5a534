//! Static rates: codes, multiples of 2.5 Gbit/s, and Mbit/s.

use std::ffi::c_int;

/// Code, multiple, Mbit/s of the encoded rate.
const RATES: [(c_int, c_int, c_int); 23] = [
    (2, 1, 2500),
    (5, 2, 5000),
    (3, 4, 10000),
    (6, 8, 20000),
    (4, 12, 30000),
    (7, 16, 40000),
    (8, 24, 60000),
    (9, 32, 80000),
    (10, 48, 120_000),
    (11, 5, 14062),
    (12, 22, 56250),
    (13, 45, 112_500),
    (14, 67, 168_750),
    (15, 10, 25781),
    (16, 41, 103_125),
    (17, 82, 206_250),
    (18, 123, 309_375),
    (19, 11, 28125),
    (20, 20, 53125),
    (21, 160, 425_000),
    (22, 240, 637_500),
    (23, 320, 850_000),
    (24, 480, 1_275_000),
];

/// The maximum rate.
const MAX: c_int = 0;

pub(crate) unsafe extern "C" fn rate_to_mult(rate: c_int) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(_, multiple, _)| *multiple)
}

pub(crate) unsafe extern "C" fn mult_to_rate(multiple: c_int) -> c_int {
    RATES.iter().find(|(_, one, _)| *one == multiple).map_or(MAX, |(code, ..)| *code)
}

pub(crate) unsafe extern "C" fn rate_to_mbps(rate: c_int) -> c_int {
    RATES.iter().find(|(code, ..)| *code == rate).map_or(-1, |(.., mbps)| *mbps)
}

pub(crate) unsafe extern "C" fn mbps_to_rate(mbps: c_int) -> c_int {
    RATES.iter().find(|(.., one)| *one == mbps).map_or(MAX, |(code, ..)| *code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_convert_to_both_units_and_back() {
        for (code, multiple, mbps) in RATES {
            // SAFETY: the calls take numbers.
            unsafe {
                assert_eq!((rate_to_mult(code), rate_to_mbps(code)), (multiple, mbps));
                assert_eq!((mult_to_rate(multiple), mbps_to_rate(mbps)), (code, code));
            }
        }
    }

    #[test]
    fn unknown_rates_are_reported() {
        // SAFETY: the calls take numbers.
        unsafe {
            assert_eq!((rate_to_mult(99), rate_to_mbps(0)), (-1, -1));
            assert_eq!((mult_to_rate(3), mbps_to_rate(1)), (MAX, MAX));
        }
    }
}
