//! `qperf … rc_lat` and `tcp_lat`.

use super::{sample, unexpected};
use crate::row::{Said, Sample};

/// `typical` in µs: the average.
pub(crate) fn latency(said: &Said) -> Result<Sample, String> {
    let figure = |line: &str| {
        let (name, value) = line.split_once('=')?;
        let (number, unit) = value.trim().split_once(' ')?;
        let factor = match unit.trim() {
            "ns" => 1e-3,
            "us" => 1.0,
            "ms" => 1e3,
            "sec" => 1e6,
            _ => return None,
        };
        let number: f64 = number.parse().ok()?;
        Some(number * factor).filter(|_| name.trim() == "latency")
    };
    let found = said.client.lines().find_map(figure);
    let typical = found.ok_or_else(|| unexpected("qperf", &said.client))?;
    Ok(sample([("typical", typical)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let of = |client: &str| latency(&Said { client: client.to_owned(), ..Said::default() });
        assert_eq!(of("rc_lat:\n    latency  =  51.4 us\n").unwrap()["typical"], 51.4);
        assert_eq!(of("rc_lat:\n    latency  =  1.5 ms\n").unwrap()["typical"], 1500.0);
        assert!(of("failed to connect\n").is_err());
    }
}
