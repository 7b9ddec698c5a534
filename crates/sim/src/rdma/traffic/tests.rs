//! Tests of traffic patterns.

use ferroce_proto::work::Status;

use super::*;
use crate::probability::Probability;
use crate::statistics::DropCause;

fn run(change: impl FnOnce(&mut Experiment)) -> Results {
    let mut experiment = Experiment::default();
    change(&mut experiment);
    let results = experiment.run().unwrap();
    assert!(results.frames.are_conserved(), "{}", results.frames);
    results
}

fn incast(senders: u32, congestion: Congestion) -> Results {
    run(|experiment| {
        experiment.hosts = senders + 1;
        experiment.congestion = congestion;
        experiment.bytes = 4 << 20;
    })
}

#[test]
fn dcqcn_shares_a_link_fairly() {
    // 8 flows of 4 MiB end before their rates have converged: the longer they last, the fairer they are.
    for (senders, bound) in [(2, 0.98), (8, 0.9)] {
        let results = incast(senders, Congestion::Dcqcn);
        assert_eq!(results.failed, 0);
        assert!(results.fairness > bound, "{senders}:1, {}", results.fairness);
        assert!(results.counters.np_cnp_sent > 0);
        assert_eq!(results.frames.dropped.total(), 0, "{}", results.frames);
    }
}

#[test]
fn nothing_is_dropped_while_the_windows_fit_into_the_buffer() {
    // 4 windows of 96 KiB, as counted with 768 bytes for each packet of about 1,100.
    let results = incast(4, Congestion::Window);
    assert!(results.queue.max < 1 << 20, "{:?}", results.queue);
    assert_eq!(results.frames.dropped.total(), 0);
    assert_eq!(results.counters.retrans_pkts, 0);
}

#[test]
fn a_full_buffer_drops_and_go_back_n_recovers() {
    let results = run(|experiment| {
        experiment.hosts = 5;
        experiment.congestion = Congestion::None;
        experiment.bytes = 256 << 10;
        experiment.network.buffer = 64 << 10;
    });
    assert_eq!(results.failed, 0);
    assert!(results.frames.dropped.of(DropCause::QueueFull) > 0);
    assert!(results.queue.max <= 64 << 10, "{:?}", results.queue);
    assert!(results.counters.retrans_pkts >= results.frames.dropped.total());
    // Packets of QPs without rate control are not ECN-capable.
    assert_eq!(results.frames.marked, 0);
}

#[test]
fn the_mean_queue_is_below_the_maximum() {
    let results = incast(4, Congestion::Window);
    assert_eq!(results.queue.port, "switch to host0");
    assert!(results.queue.mean > 0.0 && results.queue.mean < results.queue.max as f64);
}

#[test]
fn a_single_flow_fills_the_link() {
    let results = run(|experiment| {
        experiment.hosts = 2;
        experiment.bytes = 8 << 20;
        experiment.network.layout = Layout::Pair;
        experiment.congestion = Congestion::Window;
    });
    // 1,024 of 1,106 bytes of a frame with its overhead are payload.
    assert!((0.9..0.93).contains(&(results.goodput / 40e9)), "{}", results.goodput);
    assert_eq!(results.fairness, 1.0);
}

#[test]
fn a_seed_gives_the_same_results() {
    let lossy = |seed| {
        run(|experiment| {
            experiment.pattern = Pattern::Permutation;
            experiment.network.layout = Layout::LeafSpine;
            experiment.hosts = 16;
            experiment.bytes = 128 << 10;
            experiment.network.loss = Probability::from_parts_per_billion(5_000_000);
            experiment.seed = seed;
        })
    };
    assert_eq!(lossy(7), lossy(7));
    assert_ne!(lossy(7).hash, lossy(8).hash);
}

#[test]
fn every_pattern_completes() {
    for &pattern in Pattern::ALL {
        for layout in [Layout::Star, Layout::LeafSpine] {
            let mut experiment = Experiment { pattern, hosts: 12, ..Experiment::default() };
            (experiment.bytes, experiment.rounds) = (64 << 10, 2);
            experiment.network.layout = layout;
            experiment.network.hosts_per_leaf = 4;
            let results = experiment.run().unwrap();
            assert_eq!((results.failed, results.flows.len()), (0, experiment.flows()), "{pattern}");
            assert!(results.flows.iter().all(|flow| flow.from != flow.to), "{pattern}");
        }
    }
}

#[test]
fn patterns_have_their_flows() {
    let flows = |pattern| Experiment { pattern, hosts: 8, ..Experiment::default() }.flows();
    assert_eq!(flows(Pattern::Incast), 7);
    assert_eq!(flows(Pattern::Permutation), 8);
    assert_eq!(flows(Pattern::AllToAll), 56);
    assert_eq!(flows(Pattern::Allreduce), 14 * 8);
    assert_eq!(flows(Pattern::ParameterServer), 14);
    assert_eq!(flows(Pattern::Storage), 6 * 8);
}

/// Each step of a ring begins when the previous step's data has arrived.
#[test]
fn steps_of_an_allreduce_follow_each_other() {
    let results = run(|experiment| {
        (experiment.pattern, experiment.hosts) = (Pattern::Allreduce, 4);
        experiment.bytes = 64 << 10;
    });
    for host in 0..4 {
        let own: Vec<_> = results.flows.iter().filter(|flow| flow.from == HostId(host)).collect();
        assert_eq!(own.len(), 6);
        assert!(own.windows(2).all(|pair| pair[0].started < pair[1].started));
    }
}

#[test]
fn the_parameter_server_waits_for_all_workers() {
    let results = run(|experiment| {
        (experiment.pattern, experiment.hosts) = (Pattern::ParameterServer, 5);
    });
    let (weights, gradients): (Vec<&FlowResult>, Vec<&FlowResult>) =
        results.flows.iter().partition(|flow| flow.from == HostId(0));
    // A worker sees its completion half a round trip after the data has arrived.
    let round_trip = Duration::from_micros(20);
    let last = gradients.iter().filter_map(|flow| flow.completed).map(|(at, _)| at).max();
    let first = weights.iter().filter_map(|flow| flow.started).min();
    assert!(first.unwrap() + round_trip >= last.unwrap());
    assert!(gradients.iter().all(|flow| flow.started < first));
}

/// If the frames of a flow used several paths, some would overtake others, which the responder reports.
#[test]
fn ecmp_does_not_reorder() {
    let mut experiment = Experiment {
        pattern: Pattern::Permutation,
        hosts: 64,
        bytes: 64 << 10,
        congestion: Congestion::Window,
        ..Experiment::default()
    };
    experiment.network.layout = Layout::LeafSpine;
    let results = experiment.run().unwrap();
    assert_eq!(results.frames.dropped.total(), 0);
    assert_eq!(results.counters.out_of_sequence, 0);
    assert_eq!(results.counters.retrans_pkts, 0);
}

#[test]
fn loss_is_amplified_by_go_back_n() {
    let results = run(|experiment| {
        (experiment.hosts, experiment.bytes) = (2, 4 << 20);
        experiment.congestion = Congestion::Window;
        experiment.network.loss = Probability::from_parts_per_billion(4_000_000);
    });
    assert_eq!(results.failed, 0);
    assert!(results.amplification().unwrap() > 2.0, "{:?}", results.amplification());
}

#[test]
fn a_path_that_loses_everything_fails_all_flows() {
    let results = run(|experiment| {
        experiment.hosts = 3;
        experiment.network.loss = Probability::ALWAYS;
    });
    assert_eq!((results.failed, results.goodput), (2, 0.0));
    let status = |flow: &FlowResult| flow.completed.map(|(_, status)| status);
    assert_eq!(status(&results.flows[0]), Some(Status::RetryExceeded));
}

#[test]
fn samples_are_bounded_and_in_order() {
    let results = incast(8, Congestion::Dcqcn);
    let samples = &results.samples.samples;
    assert!((256..1024).contains(&samples.len()), "{}", samples.len());
    assert!(samples.windows(2).all(|pair| pair[0].time < pair[1].time));
    assert!(samples.windows(2).all(|pair| pair[0].delivered <= pair[1].delivered));
    assert_eq!(results.samples.hosts, (1..9).map(HostId).collect::<Vec<_>>());
}
