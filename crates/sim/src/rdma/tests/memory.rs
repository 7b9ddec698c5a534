//! Memory that takes time.

use std::cell::Cell;

use crate::Scenario;
use crate::rdma::{Services, Simulation, Workload};

/// Of the hosts of this scenario, half have memory that takes time, which [`super::run`] verifies as all others. Every service
/// writes to it, and reads the payload of its requests from it.
#[test]
fn some_hosts_have_memory_that_takes_time() {
    for service in Services::ALL.iter() {
        let (begun, payloads) = (Cell::new(0), Cell::new(0));
        for seed in 0..20 {
            let workload = Workload { services: Services::only(service), ..Workload::default() };
            let simulation = Simulation { scenario: Scenario::Hostile, seed, workload };
            let (summary, ()) = simulation.run_tampered(
                (),
                Some(&|host| {
                    begun.set(begun.get() + host.memory.begun());
                    payloads.set(payloads.get() + host.memory.payloads_begun());
                }),
            );
            assert!(summary.violations.is_empty(), "{summary}");
        }
        let (begun, payloads) = (begun.get(), payloads.get());
        assert!(payloads > 100 && begun > payloads + 100, "{service:?}: {payloads} of {begun}");
    }
}
