//! The results as JSON. `docs/simulator.md` documents the schema. It contains no measurement of this machine, so that
//! equal experiments give equal documents.

use std::collections::BTreeMap;
use std::io::{self, Write};
use std::path::Path;
use std::time::Duration;

use ferroce_sim::rdma::traffic::{Experiment, FlowResult, Layout, Results};
use serde::Serialize;

/// Name and version of the schema.
const SCHEMA: &str = "ferroce-simulate-pattern/1";

#[derive(Debug, Serialize)]
struct Document<'a> {
    schema: &'static str,
    experiment: Parameters,
    flow_count: usize,
    failed: usize,
    time_ns: u64,
    completion_ns: Completion,
    fairness: f64,
    goodput_bps: f64,
    queue: Queue<'a>,
    packets: Packets,
    retransmitted: u64,
    amplification: Option<f64>,
    sequence_naks: u64,
    timeouts: u64,
    cnps: u64,
    events: u64,
    hash: String,
    flows: Vec<Flow>,
    #[serde(skip_serializing_if = "Option::is_none")]
    capture: Option<&'a Path>,
}

#[derive(Debug, Serialize)]
struct Parameters {
    pattern: &'static str,
    hosts: u32,
    flow_size: u32,
    rounds: u32,
    topology: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    hosts_per_leaf: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    spines: Option<u32>,
    link_speed_bps: u64,
    link_delay_ns: u64,
    buffer: usize,
    ecn: Option<Ecn>,
    loss: f64,
    congestion: &'static str,
    window: usize,
    mtu: u16,
    ack_timeout_ns: u64,
    seed: u64,
}

#[derive(Debug, Serialize)]
struct Ecn {
    kmin: usize,
    kmax: usize,
    pmax: f64,
}

#[derive(Debug, Serialize)]
struct Completion {
    p50: u64,
    p99: u64,
    max: u64,
}

#[derive(Debug, Serialize)]
struct Queue<'a> {
    port: &'a str,
    max_bytes: usize,
    mean_bytes: f64,
}

#[derive(Debug, Serialize)]
struct Packets {
    sent: u64,
    delivered: u64,
    dropped: BTreeMap<String, u64>,
    marked: u64,
}

#[derive(Debug, Serialize)]
struct Flow {
    from: u32,
    to: u32,
    operation: &'static str,
    bytes: u32,
    start_ns: Option<u64>,
    end_ns: Option<u64>,
    status: Option<String>,
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn parameters(experiment: &Experiment) -> Parameters {
    let network = &experiment.network;
    let share = |parts: u32| f64::from(parts) / 1e9;
    let leaf_spine = network.layout == Layout::LeafSpine;
    Parameters {
        pattern: experiment.pattern.name(),
        hosts: experiment.hosts,
        flow_size: experiment.bytes,
        rounds: experiment.rounds,
        topology: network.layout.name(),
        hosts_per_leaf: leaf_spine.then_some(network.hosts_per_leaf),
        spines: leaf_spine.then_some(network.spines),
        link_speed_bps: network.speed.0,
        link_delay_ns: nanoseconds(network.delay),
        buffer: network.buffer,
        ecn: network.marking.map(|marking| Ecn {
            kmin: marking.start,
            kmax: marking.full,
            pmax: share(marking.max_probability.parts_per_billion()),
        }),
        loss: share(network.loss.parts_per_billion()),
        congestion: experiment.congestion.name(),
        window: experiment.window,
        mtu: experiment.mtu,
        ack_timeout_ns: nanoseconds(experiment.timeout),
        seed: experiment.seed,
    }
}

fn flow(flow: &FlowResult) -> Flow {
    Flow {
        from: flow.from.0,
        to: flow.to.0,
        operation: if flow.read { "read" } else { "write" },
        bytes: flow.bytes,
        start_ns: flow.started.map(|time| time.as_nanos()),
        end_ns: flow.completed.map(|(time, _)| time.as_nanos()),
        status: flow.completed.map(|(_, status)| format!("{status:?}")),
    }
}

/// Writes the document.
pub(super) fn write(
    experiment: &Experiment,
    results: &Results,
    capture: Option<&Path>,
    output: &mut impl Write,
) -> io::Result<()> {
    let (completion, queue) = (results.completion, &results.queue);
    let (frames, counters) = (&results.frames, &results.counters);
    let dropped = frames.dropped.iter().map(|(cause, count)| (cause.to_string(), count));
    let document = Document {
        schema: SCHEMA,
        experiment: parameters(experiment),
        flow_count: results.flows.len(),
        failed: results.failed,
        time_ns: nanoseconds(results.time),
        completion_ns: Completion {
            p50: nanoseconds(completion.p50),
            p99: nanoseconds(completion.p99),
            max: nanoseconds(completion.max),
        },
        fairness: results.fairness,
        goodput_bps: results.goodput,
        queue: Queue { port: &queue.port, max_bytes: queue.max, mean_bytes: queue.mean },
        packets: Packets {
            sent: frames.sent,
            delivered: frames.delivered,
            dropped: dropped.collect(),
            marked: frames.marked,
        },
        retransmitted: counters.retrans_pkts,
        amplification: results.amplification(),
        sequence_naks: counters.packet_seq_err,
        timeouts: counters.local_ack_timeout_err,
        cnps: counters.np_cnp_sent,
        events: results.events,
        hash: format!("{:016x}", results.hash),
        flows: results.flows.iter().map(flow).collect(),
        capture,
    };
    serde_json::to_writer(&mut *output, &document)?;
    writeln!(output)
}
