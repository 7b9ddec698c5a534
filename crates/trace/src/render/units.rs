//! Formatting of numbers with units.

use crate::timestamp::civil_from_days;

/// An integer with thousands separators: `1,234,567`.
pub fn count(value: u64) -> String {
    let digits = value.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at != 0 && (digits.len() - at) % 3 == 0 {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A frame number, with the packet in the frame if it holds several: `1,234`, `1,234.5`.
pub fn frame(frame: u64, segment: u32) -> String {
    match segment {
        0 => count(frame),
        segment => format!("{}.{segment}", count(frame)),
    }
}

/// A number with its noun, in the plural where needed: `1 packet`, `1,200 packets`.
pub fn counted(value: u64, one: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{} {one}{plural}", count(value))
}

/// Bytes: exact up to four digits, then in decimal units.
pub fn bytes(value: u64) -> String {
    match value {
        0..=9_999 => format!("{} B", count(value)),
        _ => scaled(value as f64, &["B", "kB", "MB", "GB", "TB", "PB", "EB"]),
    }
}

/// Bits per second for `bytes` in `nanoseconds`; `None` if the duration is zero.
pub fn bit_rate(bytes: u64, nanoseconds: u64) -> Option<String> {
    per_second(bytes as f64 * 8.0, nanoseconds).map(bits_per_second)
}

/// Bits per second.
pub fn bits_per_second(value: f64) -> String {
    scaled(value, &["bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"])
}

/// Packets per second.
pub fn packets_per_second(value: f64) -> String {
    scaled(value, &["/s", "k/s", "M/s", "G/s"])
}

/// `value` in `nanoseconds`, scaled to one second; `None` if the duration is zero.
pub fn per_second(value: f64, nanoseconds: u64) -> Option<f64> {
    (nanoseconds != 0).then(|| value * 1e9 / nanoseconds as f64)
}

/// A duration: `800 ns`, `12.3 µs`, `1.28 ms`, `4.00 s`, `5 min 12 s`.
pub fn duration(nanoseconds: u64) -> String {
    match nanoseconds {
        0..=999 => format!("{nanoseconds} ns"),
        1_000..=119_999_999_999 => scaled(nanoseconds as f64, &["ns", "µs", "ms", "s"]),
        _ => {
            let seconds = nanoseconds / 1_000_000_000;
            match seconds / 60 {
                minutes @ ..=119 => format!("{minutes} min {} s", seconds % 60),
                minutes => format!("{} h {} min", count(minutes / 60), minutes % 60),
            }
        }
    }
}

/// A percentage with one decimal.
pub fn percent(part: u64, whole: u64) -> String {
    match whole {
        0 => "-".to_owned(),
        _ => format!("{:.1}%", part as f64 * 100.0 / whole as f64),
    }
}

/// Three significant digits and a fitting unit.
fn scaled(value: f64, units: &[&str]) -> String {
    let mut value = value.max(0.0);
    let mut unit = 0;
    // 999.5 would be printed as 1000.
    while value >= 999.5 && unit + 1 < units.len() {
        value /= 1000.0;
        unit += 1;
    }
    let decimals = match value {
        value if unit == 0 && value == value.trunc() => 0,
        ..9.995 => 2,
        ..99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$} {}", units.get(unit).unwrap_or(&""))
}

/// Format of the times in one list: a common unit, and as many decimals as the finest of them needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Clock {
    seconds: bool,
    decimals: usize,
    width: usize,
}

impl Clock {
    /// Chooses the format for these times: microseconds up to 100 s, otherwise seconds.
    pub fn for_times(times: impl Iterator<Item = i64> + Clone) -> Self {
        let seconds = times.clone().any(|time| time.unsigned_abs() >= 100_000_000_000);
        let fine = times.clone().any(|time| time % 1000 != 0);
        let decimals = match (seconds, fine) {
            (true, true) => 9,
            (true, false) => 6,
            (false, true) => 3,
            (false, false) => 0,
        };
        let mut clock = Self { seconds, decimals, width: 0 };
        let widths = times.map(|time| super::text::width(&clock.write(time)));
        clock.width = widths.max().unwrap_or(0).max(clock.unit().chars().count());
        clock
    }

    /// The unit, for the column header.
    pub fn unit(&self) -> &'static str {
        if self.seconds { "s" } else { "µs" }
    }

    /// Width of the longest time in columns.
    pub fn width(&self) -> usize {
        self.width
    }

    /// Formats a time, aligned right.
    pub fn time(&self, nanoseconds: i64) -> String {
        format!("{:>width$}", self.write(nanoseconds), width = self.width)
    }

    fn write(&self, nanoseconds: i64) -> String {
        let sign = if nanoseconds < 0 { "-" } else { "" };
        let unit = if self.seconds { 1_000_000_000 } else { 1_000 };
        let (whole, part) = (nanoseconds.unsigned_abs() / unit, nanoseconds.unsigned_abs() % unit);
        // The digits cut off are zero, by choice of the decimals.
        let part = format!("{part:0digits$}", digits = if self.seconds { 9 } else { 3 });
        match part.get(..self.decimals) {
            Some(part) if !part.is_empty() => format!("{sign}{}.{part}", count(whole)),
            _ => format!("{sign}{}", count(whole)),
        }
    }
}

/// A UTC date from nanoseconds since 1970: `2024-05-17 08:15:02.000123456 UTC`.
pub fn date(nanoseconds: i64) -> String {
    let seconds = nanoseconds.div_euclid(1_000_000_000);
    let (days, second) = (seconds.div_euclid(86_400), seconds.rem_euclid(86_400));
    let (year, month, day) = civil_from_days(days);
    let fraction = nanoseconds.rem_euclid(1_000_000_000);
    let fraction = match fraction % 1000 {
        0 => format!("{:06}", fraction / 1000),
        _ => format!("{fraction:09}"),
    };
    format!(
        "{year:04}-{month:02}-{day:02} {:02}:{:02}:{:02}.{fraction} UTC",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_have_thousands_separators() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!(
            (counted(1, "packet"), counted(0, "packet")),
            ("1 packet".into(), "0 packets".into())
        );
    }

    #[test]
    fn bytes_are_exact_up_to_four_digits() {
        assert_eq!(bytes(9_999), "9,999 B");
        assert_eq!(bytes(10_000), "10.0 kB");
        assert_eq!(bytes(999_499), "999 kB");
        assert_eq!(bytes(999_500), "1.00 MB");
        assert_eq!(bytes(u64::MAX), "18.4 EB");
    }

    #[test]
    fn rates_and_percentages() {
        assert_eq!(bit_rate(1250, 1_000_000).as_deref(), Some("10.0 Mbit/s"));
        assert_eq!(bit_rate(1250, 0), None);
        assert_eq!(bits_per_second(12.0), "12 bit/s");
        assert_eq!(packets_per_second(12_345.0), "12.3 k/s");
        assert_eq!((percent(1, 3), percent(1, 0)), ("33.3%".into(), "-".into()));
    }

    #[test]
    fn durations_choose_a_fitting_unit() {
        let cases = [0, 999, 1_000, 12_340, 999_600, 1_280_000, 4_000_000_000, 312_000_000_000];
        let texts =
            ["0 ns", "999 ns", "1.00 µs", "12.3 µs", "1.00 ms", "1.28 ms", "4.00 s", "5 min 12 s"];
        assert_eq!(cases.map(duration), texts);
        assert_eq!(duration(9_000_000_000_000), "2 h 30 min");
    }

    #[test]
    fn clock_width_and_decimals_fit_all_times() {
        let clock = Clock::for_times([0, 1_000, 1_234_000].into_iter());
        assert_eq!(
            (clock.unit(), clock.time(1_000), clock.time(1_234_000)),
            ("µs", "    1".into(), "1,234".into())
        );
        let fine = Clock::for_times([1, 1_000].into_iter());
        assert_eq!((fine.time(1), fine.time(-1_500)), ("0.001".into(), "-1.500".into()));
        let long = Clock::for_times([200_000_000_000_i64].into_iter());
        assert_eq!((long.unit(), long.time(1_500_000_000)), ("s", "  1.500000".into()));
        assert_eq!(Clock::for_times(std::iter::empty::<i64>()).time(0), " 0");
        // The extreme times, which a damaged file may contain.
        let far = Clock::for_times([i64::MIN, i64::MAX].into_iter());
        assert!(far.time(i64::MIN).starts_with("-9,223,372,036.8547"));
    }

    #[test]
    fn dates_follow_the_calendar() {
        assert_eq!(date(0), "1970-01-01 00:00:00.000000 UTC");
        assert_eq!(date(951_782_400_000_000_001), "2000-02-29 00:00:00.000000001 UTC");
        assert_eq!(date(1_709_251_199_999_999_000), "2024-02-29 23:59:59.999999 UTC");
        assert_eq!(date(-1_000), "1969-12-31 23:59:59.999999 UTC");
        assert!(date(i64::MAX).starts_with("2262-04-11"));
    }
}
