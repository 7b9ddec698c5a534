//! The drivers of this program print their figures as JSON.

use super::unexpected;
use crate::row::{Said, Sample};

/// Parses the last line of the client.
pub(crate) fn figures(said: &Said) -> Result<Sample, String> {
    let line = said.client.lines().rfind(|line| line.starts_with('{'));
    line.and_then(|line| serde_json::from_str(line).ok())
        .ok_or_else(|| unexpected("the driver", &said.client))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_object_is_the_result() {
        let client = "ready\n{\"rate\":2.5,\"jain\":0.99}\n".to_owned();
        let sample = figures(&Said { client, ..Said::default() }).unwrap();
        assert_eq!((sample["rate"], sample["jain"]), (2.5, 0.99));
        assert!(figures(&Said::default()).is_err());
    }
}
