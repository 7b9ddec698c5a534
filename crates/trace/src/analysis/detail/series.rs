//! Traffic over time by conversation, in a bounded number of intervals that all conversations share.

use std::collections::BTreeMap;

use super::super::flow::Flows;
use super::super::stamp::Side;

/// Intervals kept: beyond it, pairs are merged and the interval doubles.
const MAX_BINS: u64 = 1024;

/// Intervals of the finished series.
const TARGET_BINS: u64 = 256;

/// The shortest interval.
const MIN_INTERVAL_NS: u64 = 1_000;

/// Conversations with an own series; those beyond are counted together.
const MAX_SOURCES: usize = 2048;

/// Traffic over time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Series {
    /// Length of an interval.
    pub interval_ns: u64,
    /// Number of intervals.
    pub bins: u64,
    /// By conversation number.
    pub conversations: BTreeMap<u32, Traced>,
    /// By index in [`super::Detail::tcp`].
    pub tcp: BTreeMap<usize, Traced>,
    /// Conversations and TCP connections beyond the limit.
    pub others: Traced,
}

/// The intervals in which a conversation had packets, by number.
pub type Traced = BTreeMap<u64, SeriesBin>;

/// One interval, from `a` to `b` and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SeriesBin {
    /// Packets.
    pub packets: [u64; 2],
    /// Bytes on the wire.
    pub bytes: [u64; 2],
}

impl SeriesBin {
    fn add(&mut self, other: Self, swapped: bool) {
        for (at, to) in [(0, usize::from(swapped)), (1, usize::from(!swapped))] {
            self.packets[to] += other.packets[at];
            self.bytes[to] += other.bytes[at];
        }
    }
}

/// What a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Source {
    /// A conversation, by index.
    Flow(usize),
    /// A TCP connection, by index.
    Tcp(usize),
    Others,
}

#[derive(Debug)]
pub(super) struct Collector {
    interval: u64,
    sources: BTreeMap<Source, Traced>,
    last: u64,
}

impl Default for Collector {
    fn default() -> Self {
        Self { interval: MIN_INTERVAL_NS, sources: BTreeMap::new(), last: 0 }
    }
}

impl Collector {
    pub(super) fn add(&mut self, source: Source, forward: bool, time: i64, bytes: u64) {
        let time = u64::try_from(time).unwrap_or(0);
        while time / self.interval >= MAX_BINS {
            self.double();
        }
        let known = self.sources.len() < MAX_SOURCES || self.sources.contains_key(&source);
        let source = if known { source } else { Source::Others };
        let at = time / self.interval;
        self.last = self.last.max(at);
        let bin = self.sources.entry(source).or_default().entry(at).or_default();
        bin.packets[usize::from(!forward)] += 1;
        bin.bytes[usize::from(!forward)] += bytes;
    }

    fn double(&mut self) {
        self.interval *= 2;
        self.last /= 2;
        for bins in self.sources.values_mut() {
            let mut merged = Traced::new();
            for (at, bin) in std::mem::take(bins) {
                merged.entry(at / 2).or_default().add(bin, false);
            }
            *bins = merged;
        }
    }

    /// `order[index]` is the position of TCP connection `index` in the result, if it is part of it.
    pub(super) fn finish(
        mut self,
        flows: &Flows,
        id: &dyn Fn(usize) -> u32,
        order: &[Option<usize>],
    ) -> Series {
        while self.last >= TARGET_BINS {
            self.double();
        }
        let mut series =
            Series { interval_ns: self.interval, bins: self.last + 1, ..Series::default() };
        for (source, bins) in self.sources {
            let (target, swapped) = match source {
                Source::Flow(conversation) => {
                    let side = flows.resolve(Side { conversation, from_a: true });
                    let target = series.conversations.entry(id(side.conversation)).or_default();
                    (target, !side.from_a)
                }
                Source::Tcp(index) => match order.get(index).copied().flatten() {
                    Some(index) => (series.tcp.entry(index).or_default(), false),
                    None => (&mut series.others, false),
                },
                Source::Others => (&mut series.others, false),
            };
            for (at, bin) in bins {
                target.entry(at).or_default().add(bin, swapped);
            }
        }
        series
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn every_packet_is_counted_in_a_bounded_number_of_intervals() {
        let mut collector = Collector::default();
        for packet in 0..100_000_i64 {
            let source = Source::Tcp((packet % 3) as usize);
            collector.add(source, packet % 2 == 0, packet * 1_000_000, 10);
        }
        collector.add(Source::Tcp(0), true, -5, 10);
        let series =
            collector.finish(&Flows::new(1, Arc::default()), &|_| 0, &[Some(1), Some(0), None]);
        assert!((TARGET_BINS / 2..=TARGET_BINS).contains(&series.bins), "{}", series.bins);
        assert_eq!(series.tcp.len(), 2);
        let all = series.tcp.values().chain([&series.others]).flat_map(BTreeMap::values);
        let sums = all.fold((0, 0), |sum, bin| {
            (sum.0 + bin.packets.iter().sum::<u64>(), sum.1 + bin.bytes[0] + bin.bytes[1])
        });
        assert_eq!(sums, (100_001, 1_000_010));
    }

    #[test]
    fn sources_beyond_the_limit_are_counted_together() {
        let mut collector = Collector::default();
        for index in 0..MAX_SOURCES + 10 {
            collector.add(Source::Tcp(index), true, 0, 1);
        }
        assert_eq!(collector.sources[&Source::Others][&0].packets, [10, 0]);
    }
}
