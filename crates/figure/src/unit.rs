//! Numbers with their units, short enough for axes and bars.

/// What a number counts, and so how it is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unit {
    /// A plain number with decimal prefixes: `1.5 M`.
    #[default]
    Count,
    /// Events per second: `1.5 M/s`.
    PerSecond,
    /// Bytes with binary prefixes: `64 KiB`.
    Bytes,
    /// Bytes per second with decimal prefixes: `3.2 GB/s`.
    BytesPerSecond,
    /// Bits per second with decimal prefixes: `25.6 Gbit/s`.
    BitsPerSecond,
    /// Seconds with decimal prefixes: `4.2 µs`.
    Seconds,
    /// A share of 1: `42 %`.
    Share,
    /// A factor: `1.5 ×`.
    Ratio,
}

impl Unit {
    /// Writes `value` with three significant digits.
    pub fn format(self, value: f64) -> String {
        match self {
            Self::Count => decimal(value, ""),
            Self::PerSecond => decimal(value, "/s"),
            Self::Bytes => binary(value),
            Self::BytesPerSecond => decimal(value, "B/s"),
            Self::BitsPerSecond => decimal(value, "bit/s"),
            Self::Seconds => seconds(value),
            Self::Share => format!("{} %", digits(value * 100.0)),
            Self::Ratio => format!("{} ×", digits(value)),
        }
    }
}

fn decimal(value: f64, unit: &str) -> String {
    prefixed(value, unit, 1000.0, &["", "k", "M", "G", "T", "P"])
}

fn binary(value: f64) -> String {
    prefixed(value, "B", 1024.0, &["", "Ki", "Mi", "Gi", "Ti", "Pi"])
}

fn prefixed(value: f64, unit: &str, base: f64, prefixes: &[&str]) -> String {
    let mut scaled = value;
    let mut index = 0;
    // 999.9 would be written as 1000: use the next prefix.
    while scaled.abs() >= base - 0.5 && index + 1 < prefixes.len() {
        scaled /= base;
        index += 1;
    }
    let suffix = format!("{}{unit}", prefixes[index]);
    match suffix.as_str() {
        "" => digits(scaled),
        "/s" => format!("{}/s", digits(scaled)),
        _ => format!("{} {suffix}", digits(scaled)),
    }
}

fn seconds(value: f64) -> String {
    let (factor, unit) = match value.abs() {
        0.0 => return "0 s".to_string(),
        v if v >= 0.9995 => (1.0, "s"),
        v if v >= 0.9995e-3 => (1e3, "ms"),
        v if v >= 0.9995e-6 => (1e6, "µs"),
        _ => (1e9, "ns"),
    };
    format!("{} {unit}", digits(value * factor))
}

/// Three significant digits, without zeros at the end of a fraction.
fn digits(value: f64) -> String {
    let decimals = match value.abs() {
        v if v >= 99.95 => 0,
        v if v >= 9.995 => 1,
        v if v >= 0.9995 || v == 0.0 => 2,
        _ => 3,
    };
    let text = format!("{value:.decimals$}");
    let trimmed = match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.'),
        false => &text,
    };
    match trimmed {
        "-0" => "0".to_string(),
        _ => trimmed.to_string(),
    }
}
