//! The packets worth showing, in a bounded number of rows.
//!
//! All packets are kept until there are twice as many as wanted. Then the rows are compacted: those with anomalies and
//! those at the start and end of every conversation stay, and each row records how many packets of its conversation were
//! left out before it.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::super::anomaly::AnomalyKind;
use super::super::flow::Flows;
use super::super::stamp::{Side, Stamp};

/// Packets of the same conversation kept before and after one with an anomaly.
const CONTEXT: usize = 3;

/// Rows searched backwards for the context of an anomaly.
const MAX_SEARCH: usize = 64;

/// Packets at the start and at the end of a conversation that come before repeated anomalies.
const MIN_ENDS: u64 = 4;

/// A kept packet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeptPacket {
    /// Its number in the file.
    pub frame: u64,
    /// Packet within that frame, counted from 1, if the frame holds several; otherwise 0.
    pub segment: u32,
    /// When.
    pub time_ns: i64,
    /// Its conversation; `None` for packets of other protocols and unreadable ones.
    pub conversation: Option<u32>,
    /// Whether `a` of the conversation sent it.
    pub from_a: bool,
    /// Packets of the same conversation left out directly before it.
    pub left_out: u64,
}

/// The kept packets of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// In file order.
    pub packets: Vec<KeptPacket>,
    /// Packets left out after the last kept one, by conversation.
    pub left_out_at_end: BTreeMap<Option<u32>, u64>,
}

/// Why a packet is kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Importance {
    /// The first anomaly of a kind in its conversation.
    First,
    /// Another anomaly.
    Anomaly,
    /// Next to an anomaly.
    Context,
    Plain,
}

#[derive(Clone, Copy, Debug)]
struct Row {
    stamp: Stamp,
    side: Option<Side>,
    importance: Importance,
    /// Its number in its stream.
    ordinal: u64,
    left_out: u64,
}

#[derive(Debug, Default)]
struct Stream {
    packets: u64,
    /// Packets still to keep after an anomaly.
    context: usize,
}

#[derive(Debug)]
pub(super) struct Keeper {
    limit: usize,
    rows: Vec<Row>,
    streams: HashMap<Option<usize>, Stream>,
    seen: HashSet<(Option<usize>, AnomalyKind)>,
    left_out_at_end: HashMap<Option<usize>, u64>,
}

impl Keeper {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit: limit.max(1),
            rows: Vec::new(),
            streams: HashMap::new(),
            seen: HashSet::new(),
            left_out_at_end: HashMap::new(),
        }
    }

    pub(super) fn packet(
        &mut self,
        stamp: Stamp,
        side: Option<Side>,
        anomalies: &[AnomalyKind],
        flows: &Flows,
    ) {
        let conversation = side.map(|side| side.conversation);
        let stream = self.streams.entry(conversation).or_default();
        let mut importance = match stream.context {
            0 => Importance::Plain,
            _ => Importance::Context,
        };
        stream.context = stream.context.saturating_sub(1);
        if !anomalies.is_empty() {
            stream.context = CONTEXT;
            importance = Importance::Anomaly;
            for &kind in anomalies {
                if self.seen.insert((conversation, kind)) {
                    importance = Importance::First;
                }
            }
            let same = |row: &&mut Row| row.side.map(|side| side.conversation) == conversation;
            let before = self.rows.iter_mut().rev().take(MAX_SEARCH).filter(same).take(CONTEXT);
            before.for_each(|row| row.importance = row.importance.min(Importance::Context));
        }
        let ordinal = stream.packets;
        stream.packets += 1;
        self.rows.push(Row { stamp, side, importance, ordinal, left_out: 0 });
        if self.rows.len() >= self.limit.saturating_mul(2) {
            self.compact(flows);
        }
    }

    /// Leaves out rows until at most `limit` remain.
    fn compact(&mut self, flows: &Flows) {
        if self.rows.len() <= self.limit {
            return;
        }
        let conversation = |row: &Row| row.side.map(|side| flows.resolve(side).conversation);
        let mut from_end: HashMap<Option<usize>, u64> = HashMap::new();
        let mut anomalies = 0_u64;
        let mut ranked: Vec<(u8, u64, usize)> = Vec::with_capacity(self.rows.len());
        for (at, row) in self.rows.iter().enumerate().rev() {
            let end = from_end.entry(conversation(row)).or_default();
            let rank = row.ordinal.min(*end);
            *end += 1;
            anomalies += u64::from(row.importance < Importance::Plain);
            ranked.push(match row.importance {
                Importance::First => (0, 0, at),
                _ if rank < MIN_ENDS => (1, rank, at),
                Importance::Anomaly | Importance::Context => (2, at as u64, at),
                Importance::Plain => (4, rank, at),
            });
        }
        // Repeated anomalies leave some room for the start and the end of each conversation.
        let most = self.limit as u64 / 4 * 3;
        if anomalies > most {
            let mut room = most;
            for entry in ranked.iter_mut().rev().filter(|entry| entry.0 == 2) {
                match room.checked_sub(1) {
                    Some(left) => room = left,
                    None => entry.0 = 5,
                }
            }
        }
        ranked.sort_unstable();
        let mut keep = vec![false; self.rows.len()];
        ranked.iter().take(self.limit).for_each(|&(_, _, at)| keep[at] = true);

        let mut pending = std::mem::take(&mut self.left_out_at_end);
        let mut at = 0;
        self.rows.retain_mut(|row| {
            let kept = keep[at];
            at += 1;
            let left_out = pending.entry(row.side.map(|side| flows.resolve(side).conversation));
            if kept {
                row.left_out += std::mem::take(left_out.or_default());
            } else {
                *left_out.or_default() += 1 + row.left_out;
            }
            kept
        });
        pending.retain(|_, count| *count > 0);
        self.left_out_at_end = pending;
    }

    pub(super) fn finish(mut self, flows: &Flows, id: &dyn Fn(usize) -> u32) -> Kept {
        self.compact(flows);
        let packets = self.rows.iter().map(|row| {
            let side = row.side.map(|side| flows.resolve(side));
            KeptPacket {
                frame: row.stamp.frame,
                segment: row.stamp.segment,
                time_ns: row.stamp.time,
                conversation: side.map(|side| id(side.conversation)),
                from_a: side.is_none_or(|side| side.from_a),
                left_out: row.left_out,
            }
        });
        let packets = packets.collect();
        let mut left_out_at_end = BTreeMap::new();
        for (flow, count) in self.left_out_at_end {
            let conversation = flow.map(|conversation| {
                id(flows.resolve(Side { conversation, from_a: true }).conversation)
            });
            *left_out_at_end.entry(conversation).or_default() += count;
        }
        Kept { packets, left_out_at_end }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn keep(limit: usize, packets: u64, anomalies: impl Fn(u64) -> bool) -> Kept {
        let flows = Flows::new(1, Arc::default());
        let mut keeper = Keeper::new(limit);
        for frame in 1..=packets {
            let kinds: &[_] = if anomalies(frame) { &[AnomalyKind::Timeout] } else { &[] };
            let stamp = Stamp { frame, segment: 0, time: frame as i64 };
            keeper.packet(stamp, None, kinds, &flows);
            assert!(keeper.rows.len() <= 2 * limit);
        }
        keeper.finish(&flows, &|_| 0)
    }

    fn total(kept: &Kept) -> u64 {
        let shown = kept.packets.iter().map(|packet| 1 + packet.left_out).sum::<u64>();
        shown + kept.left_out_at_end.values().sum::<u64>()
    }

    #[test]
    fn a_small_capture_is_kept_whole() {
        let kept = keep(100, 100, |_| false);
        assert_eq!(kept.packets.len(), 100);
        assert!(kept.packets.iter().all(|packet| packet.left_out == 0));
        assert!(kept.left_out_at_end.is_empty());
    }

    #[test]
    fn start_end_and_anomalies_of_a_large_capture_are_kept() {
        let kept = keep(40, 100_000, |frame| frame == 50_000);
        let frames: Vec<_> = kept.packets.iter().map(|packet| packet.frame).collect();
        assert_eq!((frames.len(), total(&kept)), (40, 100_000));
        for frame in [1, 2, 49_998, 49_999, 50_000, 50_001, 50_003, 99_999, 100_000] {
            assert!(frames.contains(&frame), "{frame} of {frames:?}");
        }
        assert!(frames.is_sorted());
    }

    #[test]
    fn many_anomalies_stay_within_the_limit() {
        let kept = keep(40, 10_000, |frame| frame % 2 == 0);
        assert_eq!((kept.packets.len(), total(&kept)), (40, 10_000));
        assert_eq!(kept.packets[0].frame, 1);
        assert_eq!(kept.packets[39].frame, 10_000);
    }
}
