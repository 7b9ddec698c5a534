//! Traffic over time in a bounded number of intervals, without knowing the file's duration in advance.

use super::report::{Graph, GraphBin};

/// Limit of intervals kept: beyond it, pairs are merged and the interval doubles.
const MAX_BINS: usize = 2048;

/// Upper limit of intervals in the finished graph if the interval is chosen automatically; at least half of it is used.
const TARGET_BINS: usize = 128;

/// The shortest automatic interval.
const MIN_INTERVAL_NS: u64 = 1_000;

#[derive(Debug)]
pub(super) struct Grapher {
    interval: u64,
    fixed_interval: bool,
    bins: Vec<GraphBin>,
}

impl Grapher {
    /// `interval_ns` is the requested interval, or `None` to choose one from the duration.
    pub(super) fn new(interval_ns: Option<u64>) -> Self {
        let interval = interval_ns.unwrap_or(MIN_INTERVAL_NS).max(1);
        Self { interval, fixed_interval: interval_ns.is_some(), bins: Vec::new() }
    }

    /// Counts a packet at `time` after the file's start. Packets with an earlier timestamp count in the first interval.
    pub(super) fn add(&mut self, time: i64, roce: bool, bytes: u64) {
        let time = u64::try_from(time).unwrap_or(0);
        while time / self.interval >= MAX_BINS as u64 {
            self.double();
        }
        let at = (time / self.interval) as usize;
        if self.bins.len() <= at {
            self.bins.resize(at + 1, GraphBin::default());
        }
        let bin = &mut self.bins[at];
        if roce {
            bin.packets += 1;
            bin.bytes += bytes;
        } else {
            bin.other_packets += 1;
            bin.other_bytes += bytes;
        }
    }

    fn double(&mut self) {
        self.interval *= 2;
        self.bins = self
            .bins
            .chunks(2)
            .map(|pair| {
                pair.iter().fold(GraphBin::default(), |sum, bin| GraphBin {
                    packets: sum.packets + bin.packets,
                    bytes: sum.bytes + bin.bytes,
                    other_packets: sum.other_packets + bin.other_packets,
                    other_bytes: sum.other_bytes + bin.other_bytes,
                })
            })
            .collect();
    }

    pub(super) fn finish(mut self) -> Graph {
        while !self.fixed_interval && self.bins.len() > TARGET_BINS {
            self.double();
        }
        Graph { interval_ns: self.interval, bins: self.bins }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_every_packet_in_a_bounded_number_of_intervals() {
        let mut grapher = Grapher::new(None);
        for second in 0..10_000 {
            grapher.add(second * 1_000_000_000, second % 2 == 0, 100);
        }
        grapher.add(-5, true, 100);
        let graph = grapher.finish();
        assert!(
            (TARGET_BINS / 2..=TARGET_BINS).contains(&graph.bins.len()),
            "{}",
            graph.bins.len()
        );
        assert_eq!(graph.bins.iter().map(|bin| bin.packets).sum::<u64>(), 5001);
        assert_eq!(graph.bins.iter().map(|bin| bin.other_bytes).sum::<u64>(), 500_000);
    }

    #[test]
    fn keeps_a_requested_interval_while_it_fits() {
        let mut grapher = Grapher::new(Some(1_000));
        grapher.add(999, true, 1);
        grapher.add(1_000, true, 1);
        let graph = grapher.finish();
        assert_eq!((graph.interval_ns, graph.bins.len()), (1_000, 2));
    }

    #[test]
    fn the_largest_timestamp_stays_within_the_limit() {
        let mut grapher = Grapher::new(Some(1));
        grapher.add(i64::MAX, true, 1);
        assert!(grapher.finish().bins.len() <= MAX_BINS);
    }
}
