//! The allreduce of `ferroce workload` against Open MPI's.

use std::time::Instant;

use super::hosts::Hosts;
use super::mpi;
use super::pair::LIMIT;
use ferroce_tests::running::{Running, turn};
use serde_json::Value;

fn result(said: &str) -> Value {
    let start = said.find('{').unwrap_or_else(|| panic!("no result: {said}"));
    let end = said.rfind('}').unwrap_or(start);
    serde_json::from_str(&said[start..=end]).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn allreduce_equals_that_of_open_mpi() {
    let _turn = turn();
    let Some(hosts) = Some(()).filter(|()| mpi::is_there()).and_then(|()| Hosts::new()) else {
        return;
    };
    let fixed = ["workload", "allreduce", "--ranks", "4", "-n", "3", "--size", "40000", "--seed"];
    let more = ["9", "--json", "--timeout", "60s", "--address", "10.9.0.1"];
    let command = hosts.ferroce(0, &[&fixed[..], &more].concat());
    let json = result(&Running::start(command).finish(Instant::now() + LIMIT));
    let mut command = hosts.program(0, "mpirun");
    mpi::script(&mut command, 4, "examples/mpi/allreduce.py", &["9", "3", "40000"]);
    let said = Running::start_group(command).finish(Instant::now() + LIMIT);
    for row in json["methods"].as_array().expect("methods") {
        let checksum = row["details"]["checksum"].as_str().expect("a checksum");
        assert!(said.contains(&format!("checksum {checksum}")), "{said}\n{row}");
    }
    // Not judged: for whoever runs this with --no-capture.
    println!("Open MPI: {said}\nferroce workload: {json:#}");
}
