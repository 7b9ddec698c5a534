//! The memory of a large simulation. A process of its own, because the system counts the peak of a process.

use ferroce_sim::Scenario;
use ferroce_sim::rdma::{Simulation, Workload};

/// Returns the peak of resident memory in MiB.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().strip_suffix(" kB").unwrap().parse::<u64>().unwrap() >> 10
}

#[test]
fn a_thousand_hosts_with_eight_queue_pairs_fit_into_256_mib() {
    let workload = Workload {
        hosts: 1000,
        connections: 4000,
        requests: 4,
        largest: 256,
        services: "rc,uc,xrc".parse().unwrap(),
        ..Workload::default()
    };
    let summary = Simulation { scenario: Scenario::Clean, seed: 1, workload }.run();
    assert!(summary.violations.is_empty(), "{summary}");
    let peak = peak();
    println!("{peak} MiB");
    assert!(peak < 256, "{peak} MiB");
}
