//! What an experiment measured.

use std::time::Duration;

use ferroce_proto::counters::Counters;
use ferroce_proto::time::Instant;
use ferroce_proto::work::Status;

use super::Experiment;
use super::host::TrafficHost;
use super::samples::Samples;
use crate::event_log::EventLog;
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::statistics::{LinkStatistics, Totals};
use crate::topology::LeafSpine;

/// One flow.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FlowResult {
    /// The host that posted it.
    pub from: HostId,
    /// The other host.
    pub to: HostId,
    /// Its payload.
    pub bytes: u32,
    /// Whether it is a READ.
    pub read: bool,
    /// When it was posted; `None` if a flow before it failed.
    pub started: Option<Instant>,
    /// When its work completion arrived, with which status.
    pub completed: Option<(Instant, Status)>,
}

impl FlowResult {
    /// Returns the flow completion time, from the post to the work completion; `None` if it failed.
    pub fn completion_time(&self) -> Option<Duration> {
        match (self.started, self.completed) {
            (Some(start), Some((end, Status::Success))) => Some(end.since(start)),
            _ => None,
        }
    }
}

/// The distribution of flow completion times.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CompletionTimes {
    /// The median.
    pub p50: Duration,
    /// The 99th percentile.
    pub p99: Duration,
    /// The maximum.
    pub max: Duration,
}

impl CompletionTimes {
    /// Returns the percentiles by nearest rank.
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        let rank = |percent: usize| {
            let rank = (times.len() * percent).div_ceil(100).max(1);
            times.get(rank - 1).copied().unwrap_or_default()
        };
        Self { p50: rank(50), p99: rank(99), max: rank(100) }
    }
}

/// The port of a switch with the longest queue.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queue {
    /// The name of the port: `switch to host0`, `leaf0 to spine1`, `spine1 to leaf0`.
    pub port: String,
    /// The maximum depth in bytes.
    pub max: usize,
    /// The mean depth in bytes, until the last flow completed.
    pub mean: f64,
}

/// What an experiment measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Results {
    /// All flows, by the host that posted them.
    pub flows: Vec<FlowResult>,
    /// Flows that did not succeed.
    pub failed: usize,
    /// From the first post to the last completion.
    pub time: Duration,
    /// Flow completion times.
    pub completion: CompletionTimes,
    /// Jain's fairness index of the flows' throughputs: 1 if all are equal, 1/n if one has everything.
    pub fairness: f64,
    /// Payload of successful flows per second of `time`, in bits.
    pub goodput: f64,
    /// The longest queue.
    pub queue: Queue,
    /// Frames, by fate.
    pub frames: Totals,
    /// The transport counters of all queue pairs.
    pub counters: Counters,
    /// Events of the network.
    pub events: u64,
    /// The hash of all frame events.
    pub hash: u64,
    /// Queue depth and rates over time.
    pub samples: Samples,
}

impl Results {
    pub(super) fn collect<T: EventLog>(
        experiment: &Experiment,
        fabric: &mut Fabric<TrafficHost, T>,
        samples: Samples,
    ) -> Self {
        let flows = flows(fabric);
        let start = flows.iter().filter_map(|flow| flow.started).min().unwrap_or(Instant::ZERO);
        let ends = flows.iter().filter_map(|flow| flow.completed.map(|(end, _)| end));
        let end = ends.max().unwrap_or(start);
        let time = end.since(start);
        let times: Vec<_> = flows.iter().filter_map(FlowResult::completion_time).collect();
        let succeeded = flows.iter().filter(|flow| flow.completion_time().is_some());
        let bytes: u64 = succeeded.map(|flow| u64::from(flow.bytes)).sum();
        let mut counters = Counters::default();
        for number in 0..fabric.host_count() {
            let host = HostId(number as u32);
            let counted = fabric.with_host(host, |host, _| host.take_counters());
            counted.iter().for_each(|counted| counters.add(counted));
        }
        Self {
            failed: flows.len() - times.len(),
            fairness: fairness(&flows),
            completion: CompletionTimes::of(times),
            goodput: per_second(bytes * 8, time),
            queue: longest(fabric, experiment.leaf_spine(), end),
            frames: fabric.totals(),
            counters,
            events: fabric.events(),
            hash: fabric.hash(),
            flows,
            time,
            samples,
        }
    }

    /// Returns packets sent again per frame that was dropped: the loss amplification of go-back-N. `None` without loss.
    pub fn amplification(&self) -> Option<f64> {
        let dropped = self.frames.dropped.total();
        (dropped > 0).then(|| self.counters.retrans_pkts as f64 / dropped as f64)
    }
}

fn flows<T: EventLog>(fabric: &Fabric<TrafficHost, T>) -> Vec<FlowResult> {
    let of_host = |(from, host)| {
        let host: &TrafficHost = host;
        host.flows.iter().map(move |flow| FlowResult {
            from,
            to: HostId(flow.plan.to),
            bytes: flow.plan.bytes,
            read: flow.plan.read,
            started: flow.started,
            completed: flow.completed,
        })
    };
    fabric.hosts().flat_map(of_host).collect()
}

fn per_second(amount: u64, time: Duration) -> f64 {
    if time.is_zero() { 0.0 } else { amount as f64 / time.as_secs_f64() }
}

/// Jain, Chiu and Hawe, 1984: the square of the sum over n times the sum of squares.
fn fairness(flows: &[FlowResult]) -> f64 {
    let rate = |flow: &FlowResult| {
        flow.completion_time().map_or(0.0, |time| per_second(u64::from(flow.bytes), time))
    };
    let (sum, squares) = flows
        .iter()
        .map(rate)
        .fold((0.0, 0.0), |(sum, squares), rate| (sum + rate, squares + rate * rate));
    if squares == 0.0 { 0.0 } else { sum * sum / (flows.len() as f64 * squares) }
}

/// Returns the port of a switch with the longest queue, the first of several.
fn longest<T: EventLog>(
    fabric: &Fabric<TrafficHost, T>,
    network: Option<LeafSpine>,
    end: Instant,
) -> Queue {
    let mut longest = Queue::default();
    let mut consider = |statistics: LinkStatistics, port: &dyn Fn() -> String| {
        if statistics.peak_backlog > longest.max {
            let time = end.as_nanos().max(1) as f64;
            let mean = statistics.byte_nanoseconds as f64 / time;
            longest = Queue { port: port(), max: statistics.peak_backlog, mean };
        }
    };
    for number in 0..fabric.host_count() as u32 {
        let host = HostId(number);
        let switch = || match network {
            Some(network) => format!("leaf{} to {host}", network.leaf(host)),
            None => format!("switch to {host}"),
        };
        consider(fabric.downlink_statistics(host).unwrap_or_default(), &switch);
    }
    for (trunk, statistics) in fabric.trunks() {
        let name = || network.map_or_else(String::new, |network| network.name(trunk));
        consider(statistics, &name);
    }
    longest
}
