//! Random programs over all scenarios, services and set-up methods.

mod held;
mod memory;
mod recovery;

use ferroce_proto::work::Status;

use super::host::RdmaHost;
use super::{Congestion, Service, Services, SetUp, Simulation, Summary, Workload};
use crate::{Capture, Scenario, Vantage};

/// Runs a simulation, which must have no violation.
fn run(scenario: Scenario, seed: u64, workload: Workload) -> Summary {
    let simulation = Simulation { scenario, seed, workload };
    let summary = simulation.run();
    let replay = simulation.replay();
    assert!(summary.violations.is_empty(), "{summary}\nreproduce with: {replay}");
    summary
}

/// Runs seeds of a scenario, with two and five hosts in turn; returns the number of requests that succeeded and of all
/// requests.
fn seeds(scenario: Scenario, seeds: std::ops::Range<u64>) -> (u64, u64) {
    let (mut succeeded, mut requests) = (0, 0);
    for seed in seeds {
        let hosts = if seed % 2 == 0 { 2 } else { 5 };
        let summary = run(scenario, seed, Workload { hosts, ..Workload::default() });
        succeeded += summary.succeeded;
        requests += summary.requests;
    }
    (succeeded, requests)
}

#[test]
fn all_valid_requests_succeed_on_a_clean_network() {
    for seed in 0..200 {
        let summary = run(Scenario::Clean, seed, Workload::default());
        if summary.refused == 0 {
            assert_eq!(summary.succeeded, summary.requests, "seed {seed}");
        }
    }
}

/// The answer to an ATOMIC WRITE is in the receive buffer beside a READ that uses all the credit there is.
#[test]
fn answers_to_atomic_writes_need_no_credit() {
    run(Scenario::Clean, 960_010_850, Workload::default());
}

#[test]
fn most_requests_succeed_with_one_percent_loss() {
    let (succeeded, requests) = seeds(Scenario::lossy(0.01), 0..300);
    assert!(succeeded * 100 > requests * 85, "{succeeded} of {requests}");
}

#[test]
fn no_violation_on_a_faulty_network() {
    for scenario in [
        Scenario::lossy(0.1),
        Scenario::Bursty,
        Scenario::Reordering,
        Scenario::Duplicating,
        Scenario::Corrupting,
        Scenario::Congested,
        Scenario::Partitioned,
        Scenario::Pausing,
        Scenario::Crashing,
        Scenario::Crash,
    ] {
        seeds(scenario, 0..100);
    }
}

/// Programs that create, connect, reset, reconnect, destroy, deregister and unmap while traffic runs.
#[test]
fn no_violation_when_queue_pairs_and_regions_come_and_go() {
    let (succeeded, requests) = seeds(Scenario::Churn, 0..300);
    assert!(succeeded * 2 > requests, "{succeeded} of {requests}");
    let busy = Workload { hosts: 3, connections: 10, ..Workload::default() };
    for seed in 0..20 {
        run(Scenario::Churn, seed, busy);
        run(Scenario::Churn, seed, Workload { largest: 70_000, connections: 4, ..busy });
    }
    for &service in Service::ALL {
        let services = Services::only(service);
        let (mut succeeded, mut requests) = (0, 0);
        for seed in 0..8 {
            let summary = run(Scenario::Churn, seed, Workload { services, ..busy });
            (succeeded, requests) = (succeeded + summary.succeeded, requests + summary.requests);
        }
        assert!(succeeded * 4 > requests, "{service}: {succeeded} of {requests}");
    }
}

/// Processes that share machines, by all ways between them.
#[test]
fn no_violation_when_processes_share_machines() {
    let (mut succeeded, mut requests) = (0, 0);
    let (mut records, mut forwarded, mut established) = (0, 0, 0);
    for seed in 0..200 {
        let summary = run(Scenario::Machines, seed, Workload::default());
        (succeeded, requests) = (succeeded + summary.succeeded, requests + summary.requests);
        (records, forwarded) = (records + summary.records, forwarded + summary.forwarded);
        established += summary.established;
    }
    assert!(succeeded * 2 > requests, "{succeeded} of {requests}");
    assert!(records > 20_000 && forwarded > 5_000, "{records} records, {forwarded} forwarded");
    assert!(established > 200, "{established} connections established by messages");
    let busy = Workload { hosts: 1, connections: 12, ..Workload::default() };
    for &service in Service::ALL {
        let services = Services::only(service);
        for seed in 0..8 {
            run(Scenario::Machines, seed, Workload { services, largest: 40_000, ..busy });
        }
    }
}

/// READs and atomics while requests and responses overtake each other: a requester never has more of them in flight
/// than the responder allows, and none may be refused.
#[test]
fn reordering_does_not_cause_refused_reads() {
    let services = Services::only(Service::Reliable);
    let workload = Workload { services, ..Workload::default() };
    for seed in 0..60 {
        run(Scenario::Reordering, seed, workload);
        run(Scenario::Duplicating, seed, workload);
    }
}

#[test]
fn no_violation_on_a_hostile_network() {
    let (succeeded, requests) = seeds(Scenario::Hostile, 0..700);
    assert!(succeeded * 2 > requests, "{succeeded} of {requests}");
}

#[test]
fn no_violation_with_each_service_alone() {
    for &service in Service::ALL {
        let workload = Workload { services: Services::only(service), ..Workload::default() };
        for seed in 0..25 {
            run(Scenario::Hostile, seed, workload);
            run(Scenario::Clean, seed, workload);
        }
    }
}

#[test]
fn connections_are_established_by_messages() {
    for set_up in [SetUp::ConnectionManager, SetUp::Exchange] {
        let workload = Workload { set_up, hosts: 3, ..Workload::default() };
        let mut disconnected = 0;
        for seed in 0..60 {
            disconnected += run(Scenario::Clean, seed, workload).disconnected;
            disconnected += run(Scenario::Hostile, seed, workload).disconnected;
            disconnected += run(Scenario::lossy(0.2), seed, workload).disconnected;
            run(Scenario::Crash, seed, workload);
        }
        assert!(disconnected > 400, "{set_up}: {disconnected}");
    }
}

/// Connections between hosts that did not crash are not affected, which `verify` checks; connections to the crashed
/// host end in error.
#[test]
fn a_crash_affects_only_its_own_connections() {
    let services = Services::only(Service::Reliable);
    let workload = Workload { hosts: 4, connections: 8, services, ..Workload::default() };
    let (mut exceeded, mut crashed) = (0, 0);
    for seed in 0..40 {
        let summary = run(Scenario::Crash, seed, workload);
        let statuses = summary.failed.iter().filter(|(one, _)| *one == Status::RetryExceeded);
        exceeded += statuses.map(|(_, count)| count).sum::<u64>();
        crashed += summary.crashed;
    }
    assert!(exceeded > 30 && crashed > 400, "{exceeded} and {crashed}");
}

#[test]
fn no_violation_with_each_congestion_control() {
    for &congestion in Congestion::ALL {
        let workload = Workload { congestion, hosts: 4, connections: 8, ..Workload::default() };
        for seed in 0..15 {
            run(Scenario::Congested, seed, workload);
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_hash() {
    let simulation =
        Simulation { scenario: Scenario::Hostile, seed: 42, workload: Workload::default() };
    assert_eq!(simulation.run().hash, simulation.run().hash);
    let other = Simulation { seed: 43, ..simulation };
    assert_ne!(simulation.run().hash, other.run().hash);
    let churn = Simulation { scenario: Scenario::Churn, ..simulation };
    assert_eq!(churn.run().hash, churn.run().hash);
    let machines = Simulation { scenario: Scenario::Machines, ..simulation };
    assert_eq!(machines.run().to_string(), machines.run().to_string());
}

#[test]
fn the_same_seed_gives_the_same_capture() {
    for &set_up in SetUp::ALL {
        let workload = Workload { set_up, hosts: 3, ..Workload::default() };
        let simulation = Simulation { scenario: Scenario::Hostile, seed: 5, workload };
        let capture_run = || {
            let capture = Capture::new(Vec::new(), Vantage::Everything, "").unwrap();
            simulation.run_logged(capture).1.finish().unwrap()
        };
        assert!(capture_run() == capture_run(), "{set_up}");
    }
}

/// Whether the verification fails after hosts were tampered with.
fn is_detected(service: Service, tamper: &dyn Fn(&mut RdmaHost)) -> bool {
    let services = Services::only(service);
    let workload = Workload { services, connections: 1, ..Workload::default() };
    // Several seeds, because a change may have no effect in one of them.
    (0..8).any(|seed| {
        let simulation = Simulation { scenario: Scenario::Clean, seed, workload };
        let (summary, ()) = simulation.run_tampered((), Some(tamper));
        !summary.violations.is_empty() && !summary.suspects.is_empty()
    })
}

/// The verification detects each kind of tampering.
#[test]
fn tampering_is_detected() {
    for &service in Service::ALL {
        assert!(!is_detected(service, &|_| {}), "{service}");
        assert!(
            is_detected(service, &|host| _ = host.endpoints[0].send_completions.pop()),
            "{service}"
        );
        let last_byte = |host: &mut RdmaHost| {
            let bytes = host.memory.regions.last_mut().and_then(|region| region.bytes.last_mut());
            bytes.into_iter().for_each(|byte| *byte ^= 1);
        };
        assert!(is_detected(service, &last_byte), "{service}");
        assert!(
            is_detected(service, &|host| _ = host.endpoints[0].receive_completions.pop()),
            "{service}"
        );
        let twice = |host: &mut RdmaHost| {
            let again = host.endpoints[0].receive_completions.last().copied();
            host.endpoints[0].receive_completions.extend(again);
        };
        assert!(is_detected(service, &twice), "{service}");
    }
    let miscount = |host: &mut RdmaHost| {
        // The first counter follows the 9,064 bytes that are read from.
        let region = host.memory.regions.last_mut();
        region.into_iter().for_each(|region| region.bytes[9_072] += 20);
    };
    assert!(is_detected(Service::Reliable, &miscount));
}
