//! `ferroce client bulk --json`.

use super::{sample, unexpected};
use crate::row::{Said, Sample};

/// `rate` in GB/s.
pub(crate) fn bulk(said: &Said) -> Result<Sample, String> {
    let start = said.client.find('{').unwrap_or(0);
    let report = serde_json::from_str::<serde_json::Value>(&said.client[start..]).ok();
    let write = report.as_ref().and_then(|report| report["operations"].get(0));
    let number = |name: &str| write.and_then(|write| write[name].as_f64());
    match (number("bytes"), number("duration_ns")) {
        (Some(bytes), Some(nanoseconds)) if nanoseconds > 0.0 => {
            Ok(sample([("rate", bytes / nanoseconds)]))
        }
        _ => Err(unexpected("ferroce client", &said.client)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"{
  "job": "bulk",
  "server": "127.0.0.1:7471",
  "size": 268435456,
  "operations": [
    {
      "operation": "WRITE",
      "count": 1,
      "bytes": 268435456,
      "duration_ns": 543033938,
      "mib_per_second": 471.42541577208016
    }
  ],
  "verified_bytes": 268435456
}"#;

    #[test]
    fn bytes_per_nanosecond() {
        let found = bulk(&Said { client: SAID.to_owned(), ..Said::default() }).unwrap();
        assert!((found["rate"] - 0.49433).abs() < 1e-4, "{found:?}");
        assert!(bulk(&Said { client: "refused".to_owned(), ..Said::default() }).is_err());
    }
}
