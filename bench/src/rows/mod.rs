//! The table of all rows.

mod bulk;
mod latency;
mod local;
mod loss;
mod messaging;
mod per_qp;
mod processes;
mod qps;
mod rate;
mod rxe;
mod shards;
mod streams;

use crate::program::{Program, Ready};
use crate::row::Row;

/// perftest's TCP port.
const PERFTEST: u16 = 18_515;

/// All rows, in the order of the table.
pub(crate) fn all() -> Vec<Row> {
    let rows = [
        qps::rows(),
        processes::rows(),
        rate::rows(),
        shards::rows(),
        latency::rows(),
        bulk::rows(),
        messaging::rows(),
        streams::rows(),
        loss::rows(),
        rxe::rows(),
        per_qp::rows(),
        local::rows(),
    ];
    rows.into_iter().flatten().collect()
}

/// The rows whose name contains one of these; all if there are none.
pub(crate) fn selected(only: &[String]) -> Vec<Row> {
    let wanted = |row: &Row| only.is_empty() || only.iter().any(|name| row.name.contains(name));
    all().into_iter().filter(wanted).collect()
}

/// Why a row cannot run on this machine.
pub(crate) fn unavailable(row: &Row) -> Option<String> {
    match row.name {
        "rsockets" if streams::preload().is_none() => {
            Some("librspreload.so is not installed: apt-get install librdmacm1".to_owned())
        }
        rxe::NAME => rxe::unavailable(),
        _ => None,
    }
}

/// Both ends of a program of perftest on Ferroce.
fn perftest(line: &str) -> ((Program, Ready), Program) {
    let server = Program::on_ferroce(line);
    let client = Program::on_ferroce(format!("{line} 127.0.0.1"));
    ((server, Ready::Once(PERFTEST)), client)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_lines_refer_to_sides() {
        let all = all();
        for (index, row) in all.iter().enumerate() {
            assert!(all[..index].iter().all(|other| other.name != row.name), "{}", row.name);
            assert!(!row.lines.is_empty(), "{}", row.name);
            let sides: Vec<_> = row.sides.iter().map(|side| side.name.as_str()).collect();
            for side in &sides {
                assert_eq!(sides.iter().filter(|other| *other == side).count(), 1, "{side}");
            }
            for line in &row.lines {
                let named = [Some(&line.ours), line.against.as_ref().map(|other| &other.side)];
                assert!(
                    named.into_iter().flatten().all(|side| sides.contains(&side.as_str())),
                    "{line:?}"
                );
            }
        }
    }

    #[test]
    fn rows_are_selected_by_a_part_of_their_name() {
        let names = |only: &[&str]| {
            let only: Vec<_> = only.iter().map(|name| (*name).to_owned()).collect();
            selected(&only).iter().map(|row| row.name).collect::<Vec<_>>()
        };
        assert_eq!(names(&["rate"]), ["rate", "local-rate"]);
        let latencies = ["write-lat", "local-write-lat"];
        assert_eq!(names(&["e-lat"]), latencies);
        assert_eq!(names(&["no such row"]), Vec::<&str>::new());
        assert!(names(&[]).len() > 4);
    }
}
