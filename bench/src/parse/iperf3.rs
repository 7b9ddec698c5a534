//! `iperf3 -J`.

use super::{sample, unexpected};
use crate::row::{Said, Sample};

/// `rate` in GB/s, as the receiver counted it.
pub(crate) fn rate(said: &Said) -> Result<Sample, String> {
    let start = said.client.find('{').unwrap_or(0);
    let mut values = serde_json::Deserializer::from_str(&said.client[start..]).into_iter();
    let report: Option<serde_json::Value> = values.next().and_then(Result::ok);
    let bits = report.and_then(|report| report["end"]["sum_received"]["bits_per_second"].as_f64());
    match bits {
        Some(bits) if bits > 0.0 => Ok(sample([("rate", bits / 8e9)])),
        _ => Err(unexpected("iperf3", &said.client)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = r#"{
	"end":	{
		"sum_sent":	{ "bits_per_second": 19006425440.701283, "sender": true },
		"sum_received":	{ "bits_per_second": 18940960982.622868, "sender": true }
	}
}
"#;

    #[test]
    fn what_was_received() {
        let found = rate(&Said { client: SAID.to_owned(), ..Said::default() }).unwrap();
        assert!((found["rate"] - 2.36762).abs() < 1e-4, "{found:?}");
    }

    #[test]
    fn an_error_is_an_error() {
        let client = r#"{ "start": {}, "error": "unable to connect" }"#.to_owned();
        assert!(
            rate(&Said { client, ..Said::default() }).unwrap_err().contains("unable to connect")
        );
    }
}
