//! Memory that takes time.

use std::cell::Cell;

use crate::Scenario;
use crate::rdma::{Simulation, Workload};

/// Of the hosts of this scenario, half have memory that takes time, which [`super::run`] verifies as all others.
#[test]
fn some_hosts_have_memory_that_takes_time() {
    let begun = Cell::new(0);
    for seed in 0..20 {
        let simulation =
            Simulation { scenario: Scenario::Hostile, seed, workload: Workload::default() };
        let (summary, ()) =
            simulation.run_tampered((), Some(&|host| begun.set(begun.get() + host.memory.begun())));
        assert!(summary.violations.is_empty(), "{summary}");
    }
    assert!(begun.get() > 1_000, "{}", begun.get());
}
