//! Who wins: each RDMA row against TCP into memory.

use serde::Serialize;

use super::method::Method;
use super::result::MethodResult;

/// One RDMA row against TCP.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub(super) struct Verdict {
    pub(super) method: Method,
    pub(super) against: Method,
    /// The median throughput of `method` divided by that of `against`.
    pub(super) throughput_ratio: f64,
    /// The same of the CPU time per byte, of both sides together.
    pub(super) cpu_ratio: f64,
    /// The faster of the two; none if their ranges overlap, or if there is only one round.
    pub(super) winner: Option<Method>,
    pub(super) text: String,
}

pub(super) fn verdicts(methods: &[MethodResult]) -> Vec<Verdict> {
    let tcp = methods.iter().find(|one| one.method == Method::Tcp);
    let rdma = methods.iter().filter(|one| one.method.is_rdma());
    tcp.map(|tcp| rdma.map(|rdma| verdict(rdma, tcp)).collect()).unwrap_or_default()
}

fn verdict(rdma: &MethodResult, tcp: &MethodResult) -> Verdict {
    let ratio = |ours: f64, theirs: f64| if theirs > 0.0 { ours / theirs } else { 0.0 };
    let throughput_ratio = ratio(rdma.mib_per_second.median, tcp.mib_per_second.median);
    let cpu_ratio = ratio(rdma.cpu_seconds_per_gb.median, tcp.cpu_seconds_per_gb.median);
    let rounds = rdma.rounds.len();
    let overlap = rdma.mib_per_second.overlaps(tcp.mib_per_second);
    let winner = (rounds > 1 && !overlap).then_some(if throughput_ratio > 1.0 {
        rdma.method
    } else {
        tcp.method
    });
    let (name, other) = (rdma.title, tcp.title);
    let factor = |ratio: f64| format!("{ratio:.2} ×");
    let figures = |throughput: f64, cpu: f64, whose: &str| {
        let (throughput, cpu) = (factor(throughput), factor(cpu));
        format!("{throughput} the throughput of {whose}, {cpu} its CPU time")
    };
    let text = match winner {
        Some(winner) if winner == rdma.method => {
            format!("{name} wins: {}", figures(throughput_ratio, cpu_ratio, other))
        }
        Some(_) => {
            let (throughput, cpu) = (ratio(1.0, throughput_ratio), ratio(1.0, cpu_ratio));
            format!("{other} wins: {}", figures(throughput, cpu, name))
        }
        None => {
            let why = match rounds {
                1 => "one round shows no spread; use --rounds 5",
                _ => "the ranges overlap",
            };
            let figures = figures(throughput_ratio, cpu_ratio, other);
            format!("{name} against {other}: no clear winner, {why} ({figures})")
        }
    };
    Verdict { method: rdma.method, against: tcp.method, throughput_ratio, cpu_ratio, winner, text }
}

#[cfg(test)]
mod tests {
    use super::super::client::{Measured, Measurement};
    use super::super::control::Cpu;
    use super::super::plan::Plan;
    use super::super::transfer::Transfer;
    use super::*;

    fn measured(method: Method, seconds: &[u64]) -> MethodResult {
        let plan = Plan { size: 1 << 30, chunk: 1 << 22, depth: 2 };
        let round = |seconds: &u64| Measurement {
            transfer: Transfer::new(&[0], &[seconds * 1_000_000_000], 0),
            client: Cpu { user_ns: 1_000_000_000, system_ns: 0 },
            server: Cpu::default(),
            verified: None,
        };
        let rounds = seconds.iter().map(round).collect();
        let counters = std::collections::BTreeMap::new();
        MethodResult::of(Measured { method, rounds, counters }, &plan).unwrap()
    }

    fn text(rdma: &[u64], tcp: &[u64]) -> (Option<Method>, String) {
        let methods = [measured(Method::RdmaWire, rdma), measured(Method::Tcp, tcp)];
        let [verdict] = verdicts(&methods).try_into().unwrap();
        (verdict.winner, verdict.text)
    }

    #[test]
    fn the_faster_one_wins_if_the_ranges_do_not_overlap() {
        let (winner, words) = text(&[1, 1, 1], &[2, 2, 3]);
        assert_eq!(winner, Some(Method::RdmaWire));
        let wanted = "RDMA WRITE (wire) wins: 2.00 × the throughput of TCP, 1.00 × its CPU time";
        assert_eq!(words, wanted);
        let (winner, words) = text(&[4, 4, 4], &[2, 2, 3]);
        assert_eq!(winner, Some(Method::Tcp));
        assert!(
            words.starts_with("TCP wins: 2.00 × the throughput of RDMA WRITE (wire)"),
            "{words}"
        );
    }

    #[test]
    fn overlapping_ranges_and_single_rounds_have_no_winner() {
        let (winner, words) = text(&[1, 1, 3], &[2, 2, 3]);
        assert_eq!(winner, None);
        assert!(words.contains("no clear winner, the ranges overlap (2.00 ×"), "{words}");
        let (winner, words) = text(&[1], &[2]);
        assert_eq!(winner, None);
        assert!(words.contains("one round shows no spread"), "{words}");
    }
}
