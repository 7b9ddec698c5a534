//! `bench/rxe`: outputs of perftest, each after a line with its side and name.

use super::{perftest, sample, unexpected};
use crate::row::{Said, Sample};

/// `rxe bandwidth`, `ferroce bandwidth` and `memory bandwidth` in GB/s, `… rate` in millions per second, `… latency` in µs.
pub(crate) fn figures(said: &Said) -> Result<Sample, String> {
    let mut all = sample([]);
    for side in ["rxe", "ferroce", "memory"] {
        for (name, figure) in [("bandwidth", "rate"), ("rate", "messages"), ("latency", "typical")]
        {
            let heading = format!("{side} {name}");
            let client = part(&said.client, &heading);
            let client = client.ok_or_else(|| unexpected("bench/rxe", &said.client))?;
            let one = Said { client, ..Said::default() };
            let found = match name {
                "latency" => perftest::latency(&one),
                _ => perftest::bandwidth(&one),
            };
            all.insert(heading, found?[figure]);
        }
    }
    Ok(all)
}

/// The lines between a heading and the next one.
fn part(said: &str, heading: &str) -> Option<String> {
    let is_heading =
        |line: &str| ["rxe ", "ferroce ", "memory "].iter().any(|side| line.starts_with(side));
    let lines: Vec<_> = said.lines().skip_while(|line| *line != heading).skip(1).collect();
    let lines: Vec<_> = lines.into_iter().take_while(|line| !is_heading(line)).collect();
    (!lines.is_empty()).then(|| lines.join("\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_output_belongs_to_its_heading() {
        let mut client = String::new();
        for (side, factor) in [("rxe", 1), ("ferroce", 2), ("memory", 3)] {
            for name in ["bandwidth", "rate"] {
                client += &format!(
                    "{side} {name}\n #bytes\n 64  20000  0.00  {factor}00.00  0.{factor}\n---\n"
                );
            }
            client += &format!("{side} latency\n 64 2000 1.0 9.0 {factor}.5 3.0 1.0 7.0 8.0\n");
        }
        let found = figures(&Said { client, ..Said::default() }).unwrap();
        assert_eq!(
            (found["rxe rate"], found["ferroce rate"], found["memory rate"]),
            (0.1, 0.2, 0.3)
        );
        assert_eq!((found["rxe latency"], found["ferroce latency"]), (1.5, 2.5));
        assert!((found["ferroce bandwidth"] - 0.2097152).abs() < 1e-9);
        assert!(figures(&Said::default()).is_err());
    }
}
