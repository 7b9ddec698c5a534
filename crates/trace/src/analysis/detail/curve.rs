//! Bytes in flight and PSN progress of the requesters of reliable connections, in a bounded number of points.

use std::collections::BTreeMap;

use super::super::flow::Flows;
use super::super::requester::Progress;
use super::super::stamp::Side;

/// Points of one curve: beyond it, neighbours are merged and the interval doubles.
const MAX_POINTS: usize = 512;

/// Requesters with a curve; those beyond have none.
const MAX_CURVES: usize = 2048;

/// The shortest interval between two points.
const MIN_INTERVAL_NS: u64 = 1_000;

/// State of one requester over time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Curve {
    /// Its conversation.
    pub conversation: u32,
    /// Whether `a` is the requester.
    pub from_a: bool,
    /// Its first PSN in the capture.
    pub first_psn: u32,
    /// The points in order of time.
    pub points: Vec<CurvePoint>,
}

/// State of a requester within one interval.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CurvePoint {
    /// When the interval starts, or the time of the packet while every packet has its own point.
    pub time_ns: u64,
    /// The most bytes sent or requested and not acknowledged.
    pub in_flight: u64,
    /// PSNs used since the first.
    pub sent: u64,
    /// PSNs acknowledged since the first.
    pub acknowledged: u64,
}

#[derive(Clone, Debug)]
struct Building {
    interval: u64,
    first_psn: u32,
    points: Vec<CurvePoint>,
}

#[derive(Debug, Default)]
pub(super) struct Curves(BTreeMap<(usize, bool), Building>);

impl Curves {
    pub(super) fn sample(&mut self, side: Side, time: i64, progress: Progress) {
        let key = (side.conversation, side.from_a);
        if self.0.len() >= MAX_CURVES && !self.0.contains_key(&key) {
            return;
        }
        let building = self.0.entry(key).or_insert_with(|| Building {
            interval: MIN_INTERVAL_NS,
            first_psn: progress.first_psn,
            points: Vec::new(),
        });
        building.push(CurvePoint {
            time_ns: u64::try_from(time).unwrap_or(0),
            in_flight: progress.in_flight,
            sent: progress.sent,
            acknowledged: progress.acknowledged,
        });
    }

    pub(super) fn finish(self, flows: &Flows, id: &dyn Fn(usize) -> u32) -> Vec<Curve> {
        let mut curves: BTreeMap<(u32, bool), Building> = BTreeMap::new();
        for ((conversation, from_a), building) in self.0 {
            let side = flows.resolve(Side { conversation, from_a });
            let key = (id(side.conversation), !side.from_a);
            match curves.get_mut(&key) {
                // The direction was a conversation of its own until it was merged.
                Some(found) => {
                    let mut points = std::mem::take(&mut found.points);
                    points.extend(building.points);
                    points.sort_by_key(|point| point.time_ns);
                    found.interval = found.interval.max(building.interval);
                    points.into_iter().for_each(|point| found.push(point));
                }
                None => {
                    curves.insert(key, building);
                }
            }
        }
        let curves = curves.into_iter().map(|((conversation, from_b), building)| Curve {
            conversation,
            from_a: !from_b,
            first_psn: building.first_psn,
            points: building.points,
        });
        curves.collect()
    }
}

impl Building {
    fn push(&mut self, point: CurvePoint) {
        match self.points.last_mut() {
            // Also if the capture's times go back.
            Some(last) if point.time_ns / self.interval <= last.time_ns / self.interval => {
                last.merge(point);
            }
            _ => self.points.push(point),
        }
        while self.points.len() > MAX_POINTS {
            self.interval *= 2;
            let mut merged: Vec<CurvePoint> = Vec::with_capacity(self.points.len());
            for point in self.points.drain(..) {
                match merged.last_mut() {
                    Some(last) if point.time_ns / self.interval == last.time_ns / self.interval => {
                        last.merge(point);
                    }
                    _ => merged.push(point),
                }
            }
            self.points = merged;
        }
    }
}

impl CurvePoint {
    fn merge(&mut self, later: Self) {
        self.in_flight = self.in_flight.max(later.in_flight);
        (self.sent, self.acknowledged) = (later.sent, later.acknowledged);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_bounded_and_keep_the_maximum() {
        let mut building = Building { interval: MIN_INTERVAL_NS, first_psn: 0, points: Vec::new() };
        for at in 0..100_000_u64 {
            let in_flight = if at == 77_777 { 9_999 } else { 1 };
            let point =
                CurvePoint { time_ns: at * 10_000, in_flight, sent: at, acknowledged: at / 2 };
            building.push(point);
        }
        let points = &building.points;
        assert!((MAX_POINTS / 4..=MAX_POINTS).contains(&points.len()), "{}", points.len());
        assert_eq!(points.iter().map(|point| point.in_flight).max(), Some(9_999));
        assert_eq!(points.last().map(|point| point.sent), Some(99_999));
        assert!(points.is_sorted_by_key(|point| point.time_ns));
    }
}
