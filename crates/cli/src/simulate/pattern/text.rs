//! The results as text.

use std::io::{self, Write};
use std::time::Duration;

use ferroce_sim::rdma::traffic::{Experiment, Layout, Results};
use ferroce_trace::render::units;

/// One line that names the experiment.
pub(super) fn title(experiment: &Experiment) -> String {
    let Experiment { pattern, hosts, network, congestion, seed, .. } = experiment;
    format!("{pattern}, {hosts} hosts, {}, {congestion}, seed {seed}", network.layout)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn time(time: Duration) -> String {
    units::duration(nanoseconds(time))
}

/// Writes the results, and how fast the simulator was.
pub(super) fn write(
    experiment: &Experiment,
    results: &Results,
    elapsed: Duration,
    output: &mut impl Write,
) -> io::Result<()> {
    let mut row = |name: &str, value: String| writeln!(output, "  {name:<16} {value}");
    row("experiment", title(experiment))?;
    row("links", links(experiment))?;
    let failed = match results.failed {
        0 => "all succeeded".to_owned(),
        failed => format!("{} failed", units::count(failed as u64)),
    };
    let bytes = results.flows.iter().map(|flow| u64::from(flow.bytes)).sum();
    let flows = units::counted(results.flows.len() as u64, "flow");
    row("flows", format!("{flows}, {}, {failed}", units::bytes(bytes)))?;
    row("virtual time", time(results.time))?;
    let completion = results.completion;
    row(
        "completion time",
        format!(
            "p50 {}, p99 {}, max {}",
            time(completion.p50),
            time(completion.p99),
            time(completion.max)
        ),
    )?;
    row("fairness", format!("{:.4} (Jain's index)", results.fairness))?;
    row("goodput", units::bits_per_second(results.goodput))?;
    let queue = &results.queue;
    if queue.max > 0 {
        row(
            "longest queue",
            format!(
                "max {}, mean {}, {}",
                units::bytes(queue.max as u64),
                units::bytes(queue.mean as u64),
                queue.port
            ),
        )?;
    }
    let (frames, counters) = (&results.frames, &results.counters);
    row(
        "packets",
        format!(
            "{} sent, {} delivered, {} marked",
            units::count(frames.sent),
            units::count(frames.delivered),
            units::count(frames.marked)
        ),
    )?;
    row("drops", format!("{} ({})", units::count(frames.dropped.total()), frames.dropped))?;
    let amplification = match results.amplification() {
        Some(factor) => format!(", {factor:.1} per drop"),
        None => String::new(),
    };
    row(
        "retransmissions",
        format!(
            "{}{amplification}; {} sequence NAKs, {} timeouts",
            units::count(counters.retrans_pkts),
            units::count(counters.packet_seq_err),
            units::count(counters.local_ack_timeout_err)
        ),
    )?;
    row("CNPs", units::count(counters.np_cnp_sent))?;
    row("hash", format!("{:016x}", results.hash))?;
    let events = results.events;
    let each = nanoseconds(elapsed) / events.max(1);
    let rate = units::packets_per_second(events as f64 / elapsed.as_secs_f64().max(1e-9));
    row(
        "simulator",
        format!("{} events in {}, {rate}, {each} ns each", units::count(events), time(elapsed)),
    )
}

fn links(experiment: &Experiment) -> String {
    let network = &experiment.network;
    let speed = units::bits_per_second(network.speed.0 as f64);
    let mut parts = vec![speed, time(network.delay)];
    if network.layout != Layout::Pair {
        parts.push(format!("{} of buffer per port", units::bytes(network.buffer as u64)));
        parts.push(match network.marking {
            None => "no ECN".to_owned(),
            Some(marking) if marking.start == marking.full => {
                format!("ECN from {}", units::bytes(marking.start as u64))
            }
            Some(marking) => format!(
                "ECN {} to {} ({})",
                units::bytes(marking.start as u64),
                units::bytes(marking.full as u64),
                marking.max_probability
            ),
        });
    }
    if network.loss.parts_per_billion() > 0 {
        parts.push(format!("{} lost", network.loss));
    }
    parts.join(", ")
}
