//! libfabric's `fi_pingpong`, with one message size.

use super::{sample, unexpected};
use crate::row::{Said, Sample};

/// `typical` in µs: the average time of a message.
pub(crate) fn latency(said: &Said) -> Result<Sample, String> {
    let figure = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let is_row = words.len() == 8 && words[2].starts_with('=');
        words.get(6).filter(|_| is_row)?.parse::<f64>().ok()
    };
    let found = said.client.lines().filter_map(figure).next_back();
    let typical = found.ok_or_else(|| unexpected("fi_pingpong", &said.client))?;
    Ok(sample([("typical", typical)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SAID: &str = "\
bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
64      20k     =20k     2.4m        3.66s      0.70      91.59       0.01
";

    #[test]
    fn time_of_a_message() {
        let found = latency(&Said { client: SAID.to_owned(), ..Said::default() }).unwrap();
        assert_eq!(found["typical"], 91.59);
        assert!(latency(&Said::default()).is_err());
    }
}
