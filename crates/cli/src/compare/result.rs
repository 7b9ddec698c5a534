//! The figures: per round, per method, and the verdict.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;

use hdrhistogram::Histogram;
use serde::Serialize;

use super::client::Measured;
use super::control::Cpu;
use super::host::Host;
use super::method::Method;
use super::plan::Plan;
use super::rdma::recoveries;
use super::verdict::{Verdict, verdicts};
use crate::session::failure::Failure;

/// The whole result. Its JSON is stable: fields may be added, not removed.
#[derive(Debug, Serialize)]
pub(super) struct Comparison {
    /// The version of this command.
    pub(super) ferroce: &'static str,
    pub(super) server: SocketAddr,
    /// The server is a process that this command started.
    pub(super) own_server: bool,
    #[serde(flatten)]
    pub(super) plan: Plan,
    pub(super) rounds: usize,
    /// Every byte of every transfer into memory was verified. If one is wrong, there is no result.
    pub(super) verified: bool,
    pub(super) host: Host,
    pub(super) methods: Vec<MethodResult>,
    pub(super) verdicts: Vec<Verdict>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) captures: Vec<CaptureResult>,
}

/// The figures of a method.
#[derive(Debug, Serialize)]
pub(super) struct MethodResult {
    pub(super) method: Method,
    pub(super) title: &'static str,
    pub(super) description: &'static str,
    pub(super) seconds: Spread,
    pub(super) mib_per_second: Spread,
    pub(super) client_cpu_seconds_per_gb: Spread,
    pub(super) server_cpu_seconds_per_gb: Spread,
    /// Of both sides together.
    pub(super) cpu_seconds_per_gb: Spread,
    pub(super) chunk: ChunkTimes,
    /// Packets (RDMA) or segments (TCP) sent more than once, in all rounds.
    pub(super) retransmissions: u64,
    /// How often the RDMA sender went back: sequence errors, RNR NAKs and timeouts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) recoveries: Option<u64>,
    /// The RDMA sender's transport counters in all rounds, by their names in Linux `hw_counters`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub(super) hw_counters: BTreeMap<&'static str, u64>,
    /// Bytes that the receiver compared with the pattern, all correct.
    pub(super) verified_bytes: u64,
    pub(super) rounds: Vec<RoundResult>,
}

/// The time from handing over a chunk until it is known to be in the receiver's memory, over all rounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub(super) struct ChunkTimes {
    pub(super) count: u64,
    pub(super) min_ns: u64,
    pub(super) p50_ns: u64,
    pub(super) p99_ns: u64,
    pub(super) max_ns: u64,
}

/// One transfer.
#[derive(Debug, Serialize)]
pub(super) struct RoundResult {
    pub(super) seconds: f64,
    pub(super) mib_per_second: f64,
    pub(super) client_cpu: Cpu,
    pub(super) server_cpu: Cpu,
    pub(super) chunk: ChunkTimes,
    pub(super) retransmissions: u64,
}

/// A capture that was asked for.
#[derive(Clone, Debug, Serialize)]
pub(super) struct CaptureResult {
    pub(super) method: Method,
    /// The file; none if this capture is not possible.
    pub(super) path: Option<PathBuf>,
    /// Packets in the file.
    pub(super) packets: u64,
    /// Packets missing in it.
    pub(super) dropped: u64,
    /// Why there is no file, or packets are missing.
    pub(super) note: Option<String>,
}

/// The median and the range of the rounds.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) min: f64,
    pub(super) max: f64,
}

impl Spread {
    pub(super) fn of(values: impl Iterator<Item = f64>) -> Self {
        let mut values: Vec<_> = values.collect();
        values.sort_by(f64::total_cmp);
        let middle = values.len() / 2;
        let median = match (values.len() % 2, values.get(middle)) {
            (1, Some(value)) => *value,
            (0, Some(value)) => (values[middle - 1] + value) / 2.0,
            _ => 0.0,
        };
        let end = |value: Option<&f64>| value.copied().unwrap_or(0.0);
        Self { median, min: end(values.first()), max: end(values.last()) }
    }

    pub(super) fn overlaps(self, other: Self) -> bool {
        self.min <= other.max && other.min <= self.max
    }
}

impl ChunkTimes {
    fn of(histogram: &Histogram<u64>) -> Self {
        Self {
            count: histogram.len(),
            min_ns: histogram.min(),
            p50_ns: histogram.value_at_quantile(0.5),
            p99_ns: histogram.value_at_quantile(0.99),
            max_ns: histogram.max(),
        }
    }
}

/// A histogram that is exact to three digits and grows with its values.
fn histogram(times: &[u64]) -> Result<Histogram<u64>, Failure> {
    let failed = |error: &dyn std::fmt::Display| Failure::Other(format!("histogram: {error}"));
    let mut histogram = Histogram::new(3).map_err(|error| failed(&error))?;
    for time in times {
        histogram.record(*time).map_err(|error| failed(&error))?;
    }
    Ok(histogram)
}

impl MethodResult {
    pub(super) fn of(measured: Measured, plan: &Plan) -> Result<Self, Failure> {
        let Measured { method, rounds, counters } = measured;
        let gigabytes = plan.size as f64 / 1e9;
        let mib = plan.size as f64 / f64::from(1 << 20);
        let mut all = histogram(&[])?;
        let mut results = Vec::with_capacity(rounds.len());
        let (mut retransmissions, mut verified_bytes) = (0, 0);
        for round in rounds {
            let chunks = histogram(&round.transfer.chunks_ns)?;
            let added = all.add(&chunks);
            added.map_err(|error| Failure::Other(format!("histogram: {error}")))?;
            retransmissions += round.transfer.retransmissions;
            verified_bytes += round.verified.unwrap_or(0);
            let seconds = round.transfer.elapsed_ns.max(1) as f64 / 1e9;
            results.push(RoundResult {
                seconds,
                mib_per_second: mib / seconds,
                client_cpu: round.client,
                server_cpu: round.server,
                chunk: ChunkTimes::of(&chunks),
                retransmissions: round.transfer.retransmissions,
            });
        }
        let spread = |value: &dyn Fn(&RoundResult) -> f64| Spread::of(results.iter().map(value));
        Ok(Self {
            method,
            title: method.title(),
            description: method.description(),
            seconds: spread(&|one| one.seconds),
            mib_per_second: spread(&|one| one.mib_per_second),
            client_cpu_seconds_per_gb: spread(&|one| one.client_cpu.seconds() / gigabytes),
            server_cpu_seconds_per_gb: spread(&|one| one.server_cpu.seconds() / gigabytes),
            cpu_seconds_per_gb: spread(&|one| {
                (one.client_cpu.seconds() + one.server_cpu.seconds()) / gigabytes
            }),
            chunk: ChunkTimes::of(&all),
            retransmissions,
            recoveries: method.is_rdma().then(|| recoveries(&counters)),
            hw_counters: counters,
            verified_bytes,
            rounds: results,
        })
    }
}

impl Comparison {
    pub(super) fn new(
        server: SocketAddr,
        own_server: bool,
        plan: Plan,
        verified: bool,
        measured: Vec<Measured>,
    ) -> Result<Self, Failure> {
        let methods = measured.into_iter().map(|one| MethodResult::of(one, &plan));
        let methods = methods.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            ferroce: env!("CARGO_PKG_VERSION"),
            server,
            own_server,
            plan,
            rounds: methods.first().map_or(0, |method| method.rounds.len()),
            verified,
            host: Host::read(),
            verdicts: verdicts(&methods),
            methods,
            captures: Vec::new(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_between_the_extremes() {
        let spread = |values: &[f64]| Spread::of(values.iter().copied());
        assert_eq!(spread(&[3.0, 1.0, 2.0]), Spread { median: 2.0, min: 1.0, max: 3.0 });
        assert_eq!(spread(&[4.0, 1.0]).median, 2.5);
        assert_eq!(spread(&[]).median, 0.0);
        assert!(spread(&[1.0, 2.0]).overlaps(spread(&[2.0, 3.0])));
        assert!(!spread(&[1.0, 2.0]).overlaps(spread(&[2.1, 3.0])));
    }

    #[test]
    fn chunk_times_are_percentiles_of_all_chunks() {
        let times: Vec<u64> = (1..=1000).map(|number| number * 1000).collect();
        let found = ChunkTimes::of(&histogram(&times).unwrap());
        assert_eq!(found.count, 1000);
        let near = |value: u64, wanted: u64| value.abs_diff(wanted) <= wanted / 500;
        assert!(near(found.p50_ns, 500_000) && near(found.p99_ns, 990_000), "{found:?}");
    }
}
