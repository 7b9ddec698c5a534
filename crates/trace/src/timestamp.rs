//! Timestamps of capture files, converted to nanoseconds.

use std::fmt;

/// A point in time: nanoseconds since 1970-01-01 00:00:00 UTC, negative before it.
///
/// The range is the years 1677 to 2262. A timestamp outside of it is delivered as `None`, see
/// [`crate::file::Oddity::TimestampOutOfRange`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

const NANOSECONDS_PER_SECOND: i64 = 1_000_000_000;

impl Timestamp {
    /// The point `nanoseconds` after the epoch.
    pub const fn from_nanoseconds(nanoseconds: i64) -> Timestamp {
        Timestamp(nanoseconds)
    }

    /// Nanoseconds since the epoch.
    pub const fn as_nanoseconds(self) -> i64 {
        self.0
    }

    /// Whole seconds since the epoch, rounded down.
    pub const fn seconds(self) -> i64 {
        self.0.div_euclid(NANOSECONDS_PER_SECOND)
    }

    /// The nanoseconds past [`Timestamp::seconds`], 0 to 999,999,999.
    pub const fn subsecond_nanoseconds(self) -> u32 {
        self.0.rem_euclid(NANOSECONDS_PER_SECOND) as u32
    }

    /// Nanoseconds from `earlier` to this point; negative if `earlier` is later.
    pub const fn nanoseconds_since(self, earlier: Timestamp) -> i64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// RFC 3339 in UTC with nanoseconds: `2026-10-16T09:05:00.000123456Z`.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.seconds();
        let (year, month, day) = civil_from_days(seconds.div_euclid(86_400));
        let of_day = seconds.rem_euclid(86_400);
        let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
        let nanoseconds = self.subsecond_nanoseconds();
        write!(
            f,
            "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{nanoseconds:09}Z"
        )
    }
}

/// Year, month and day of the proleptic Gregorian calendar, `days` after 1970-01-01.
///
/// Years start on 1 March, so that the leap day is the last day. There are 719,468 days between
/// 0000-03-01 and the epoch, and 146,097 days in 400 years.
pub(crate) fn civil_from_days(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + i64::from(month <= 2);
    (year, month, day)
}

/// The unit of an interface's timestamps: a negative power of 10 or of 2, in seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resolution(u8);

impl Resolution {
    /// The default of pcap files and pcapng interfaces.
    pub const MICROSECONDS: Resolution = Resolution(6);
    /// The resolution that this crate writes.
    pub const NANOSECONDS: Resolution = Resolution(9);

    /// From the one byte of pcapng's `if_tsresol` option (draft-ietf-opsawg-pcapng section 4.2):
    /// the top bit chooses 2 instead of 10, the others are the exponent.
    pub const fn from_option(value: u8) -> Resolution {
        Resolution(value)
    }

    /// The byte of pcapng's `if_tsresol` option.
    pub const fn as_option(self) -> u8 {
        self.0
    }

    /// The time `units` after the epoch plus `offset_seconds`. None if it is out of range.
    ///
    /// Units finer than nanoseconds are truncated, which keeps the order of packets.
    #[inline]
    pub(crate) fn to_timestamp(self, units: u64, offset_seconds: i64) -> Option<Timestamp> {
        let exponent = u32::from(self.0 & 0x7f);
        let nanoseconds = if self.0 & 0x80 == 0 {
            // Common case: one multiplication for micro- and nanoseconds.
            match 9u32.checked_sub(exponent) {
                Some(coarser) => i128::from(units) * i128::from(10u32.pow(coarser)),
                None => match 10u64.checked_pow(exponent - 9) {
                    Some(divisor) => i128::from(units / divisor),
                    None => 0, // Even u64::MAX of such units is less than a nanosecond.
                },
            }
        } else {
            // 64 + 30 bits: no overflow; an exponent up to 127 is a legal shift.
            (i128::from(units) * i128::from(NANOSECONDS_PER_SECOND)) >> exponent
        };
        let offset = i128::from(offset_seconds) * i128::from(NANOSECONDS_PER_SECOND);
        i64::try_from(nanoseconds + offset).ok().map(Timestamp)
    }
}

impl fmt::Display for Resolution {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.0 & 0x80 != 0, self.0 & 0x7f) {
            (_, 0) => f.write_str("1 s"),
            (false, 3) => f.write_str("1 ms"),
            (false, 6) => f.write_str("1 µs"),
            (false, 9) => f.write_str("1 ns"),
            (false, exponent) => write!(f, "10^-{exponent} s"),
            (true, exponent) => write!(f, "2^-{exponent} s"),
        }
    }
}
