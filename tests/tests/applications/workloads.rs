//! `ferroce workload` across two hosts, and its allreduce against Open MPI's.

use std::time::Instant;

use super::hosts::Hosts;
use super::mpi;
use super::pair::LIMIT;
use ferroce_tests::running::{Running, turn};
use serde_json::Value;

const NAMES: [(&str, &[&str]); 8] = [
    ("rendezvous", &["-n", "40"]),
    ("parameter-server", &["-n", "10"]),
    ("inference-batching", &["-n", "40", "--size", "6001"]),
    ("allreduce", &["-n", "2", "--size", "20000"]),
    ("kv", &["-n", "60"]),
    ("nvmeof", &["-n", "60"]),
    ("mpi", &["-n", "5", "--size", "8000"]),
    ("mr-cache", &["-n", "40"]),
];

fn result(said: &str) -> Value {
    let start = said.find('{').unwrap_or_else(|| panic!("no result: {said}"));
    let end = said.rfind('}').unwrap_or(start);
    serde_json::from_str(&said[start..=end]).unwrap_or_else(|error| panic!("{error}: {said}"))
}

#[test]
fn all_workloads_pass_between_two_hosts_with_loss() {
    let _turn = turn();
    let Some(hosts) = Hosts::new() else { return };
    let faults = ("FERROCE_FAULTS", "loss=1%,seed=5");
    let agents = [0, 1].map(|side| {
        let mut command = hosts.ferroce(side, &["workload", "--agent", "--listen", "0.0.0.0:7471"]);
        command.env(faults.0, faults.1);
        let mut agent = Running::start(command);
        agent.wait_for(|said| said.contains("listening"), Instant::now() + LIMIT);
        agent
    });
    let both = format!("{},{}", Hosts::address(0), Hosts::address(1));
    for (name, more) in NAMES {
        let fixed = ["workload", name, "--ranks", "4", "--hosts", &both, "--json"];
        let patient = ["--timeout", "60s"];
        let command = hosts.ferroce(0, &[&fixed[..], &patient, more].concat());
        let json = result(&Running::start(command).finish(Instant::now() + LIMIT));
        let methods = json["methods"].as_array().expect("methods");
        assert_eq!(methods.len(), 2, "{json}");
        for row in methods {
            assert!(row["verified"].as_u64() > Some(0), "{row}");
            assert_eq!(row["cpu_seconds_by_rank"].as_array().map(Vec::len), Some(4), "{row}");
        }
    }
    drop(agents);
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
