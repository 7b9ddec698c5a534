//! Programs that post over time: requests are held back, and leave without another call of the program.

use super::run;
use crate::Scenario;
use crate::rdma::{Congestion, Posting, Service, Services, SetUp, Workload};

const LISTS: Workload = Workload {
    hosts: 2,
    connections: 4,
    requests: 48,
    largest: 9_000,
    services: Services::ALL,
    set_up: SetUp::Direct,
    congestion: Congestion::Window,
    posting: Posting::Lists,
};

/// Runs seeds with short and long messages; returns the number of requests that were held back, and of all requests.
fn seeds(scenario: Scenario, workload: Workload, seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut held, mut requests) = (0, 0);
    for seed in seeds {
        let largest = if seed % 3 == 0 { 9_000 } else { 200 };
        let hosts = if seed % 2 == 0 { 2 } else { 5 };
        let summary = run(scenario, seed, Workload { hosts, largest, ..workload });
        held += summary.held;
        requests += summary.requests;
    }
    (held, requests)
}

#[test]
fn held_requests_leave_on_every_network() {
    for scenario in [
        Scenario::Clean,
        Scenario::lossy(0.01),
        Scenario::lossy(0.1),
        Scenario::Bursty,
        Scenario::Reordering,
        Scenario::Duplicating,
        Scenario::Corrupting,
        Scenario::Congested,
        Scenario::Partitioned,
        Scenario::Pausing,
        Scenario::Crash,
        Scenario::Hostile,
    ] {
        let (held, requests) = seeds(scenario, LISTS, 0..60);
        assert!(held * 10 > requests, "{scenario}: {held} of {requests}");
    }
}

#[test]
fn held_requests_leave_with_each_congestion_control_and_set_up() {
    for &congestion in Congestion::ALL {
        for &set_up in SetUp::ALL {
            let workload = Workload { congestion, set_up, ..LISTS };
            let (held, requests) = seeds(Scenario::Hostile, workload, 0..20);
            assert!(held * 10 > requests, "{congestion}, {set_up}: {held} of {requests}");
        }
    }
}

/// UC and UD have no ACKs that could send what is held back.
#[test]
fn nothing_is_held_back_without_acks() {
    for service in [Service::Unreliable, Service::Datagram] {
        let workload = Workload { services: Services::only(service), ..LISTS };
        assert_eq!(seeds(Scenario::Hostile, workload, 0..20).0, 0);
    }
}
