//! TCP connections: counted, so that they can be compared with RDMA, not analysed.

use std::collections::HashMap;
use std::net::IpAddr;

use ferroce_wire::frame::Frame;

/// Connections tracked; packets of further ones are only counted.
const MAX_CONNECTIONS: usize = 16_384;

/// Connections in the result.
const MAX_LISTED: usize = 1_000;

/// Missing ranges of sequence numbers remembered per direction.
const MAX_HOLES: usize = 32;

/// One end: address and port.
type Socket = (IpAddr, u16);

/// One direction of a TCP connection.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TcpDirection {
    /// Packets.
    pub packets: u64,
    /// Bytes on the wire.
    pub bytes: u64,
    /// Bytes of payload, retransmissions included.
    pub payload: u64,
    /// Segments whose bytes were in the capture before.
    pub retransmitted: u64,
    /// Segments that fill a gap: retransmitted after a loss before the capture point, or reordered.
    pub late: u64,
    /// The next sequence number.
    next: Option<u32>,
    /// Missing ranges, the end excluded.
    holes: Vec<(u32, u32)>,
}

/// A TCP connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TcpConnection {
    /// The side whose packet was seen first, with its port.
    pub a: (IpAddr, u16),
    /// The other side.
    pub b: (IpAddr, u16),
    /// From `a` to `b`.
    pub a_to_b: TcpDirection,
    /// From `b` to `a`.
    pub b_to_a: TcpDirection,
    /// When it started.
    pub time_ns: i64,
    /// From its first packet to its last.
    pub duration_ns: u64,
}

/// The parts of a TCP segment that are tracked (RFC 9293, 3.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Segment {
    source: Socket,
    destination: Socket,
    sequence: u32,
    payload: u32,
    syn: bool,
}

impl Segment {
    /// Reads the TCP header of a frame, if it has one.
    pub(super) fn of(frame: &Frame<'_>) -> Option<Self> {
        let (source, destination) = frame.addresses()?;
        let (start, len, protocol) = super::network_payload(frame)?;
        let header = frame.bytes.get(start..start + 20).filter(|_| protocol == 6)?;
        let port = |at: usize| u16::from_be_bytes([header[at], header[at + 1]]);
        let header_len = usize::from(header[12] >> 4) * 4;
        Some(Self {
            source: (source, port(0)),
            destination: (destination, port(2)),
            sequence: u32::from_be_bytes([header[4], header[5], header[6], header[7]]),
            payload: len.checked_sub(header_len)? as u32,
            syn: header[13] & 2 != 0,
        })
    }
}

#[derive(Debug, Default)]
pub(super) struct Tracker {
    connections: Vec<TcpConnection>,
    by_sides: HashMap<(Socket, Socket), usize>,
    untracked: u64,
}

impl Tracker {
    /// Counts a segment. Returns its connection and whether `a` sent it.
    pub(super) fn segment(
        &mut self,
        segment: &Segment,
        bytes: u64,
        time: i64,
    ) -> Option<(usize, bool)> {
        let (from, to) = (segment.source, segment.destination);
        let (at, forward) = match (self.by_sides.get(&(from, to)), self.by_sides.get(&(to, from))) {
            (Some(&at), _) => (at, true),
            (_, Some(&at)) => (at, false),
            _ if self.connections.len() >= MAX_CONNECTIONS => {
                self.untracked += 1;
                return None;
            }
            _ => {
                self.by_sides.insert((from, to), self.connections.len());
                self.connections.push(TcpConnection {
                    a: from,
                    b: to,
                    a_to_b: TcpDirection::default(),
                    b_to_a: TcpDirection::default(),
                    time_ns: time,
                    duration_ns: 0,
                });
                (self.connections.len() - 1, true)
            }
        };
        let connection = &mut self.connections[at];
        connection.duration_ns =
            connection.duration_ns.max(u64::try_from(time - connection.time_ns).unwrap_or(0));
        let direction = if forward { &mut connection.a_to_b } else { &mut connection.b_to_a };
        direction.packets += 1;
        direction.bytes += bytes;
        direction.payload += u64::from(segment.payload);
        direction.sequence(segment);
        Some((at, forward))
    }

    /// The connections by size, the position of each in that list, and the number of packets of the others.
    pub(super) fn finish(self) -> (Vec<TcpConnection>, Vec<Option<usize>>, u64) {
        let size = |it: &TcpConnection| it.a_to_b.bytes + it.b_to_a.bytes;
        let mut order: Vec<usize> = (0..self.connections.len()).collect();
        order.sort_by_key(|&at| std::cmp::Reverse(size(&self.connections[at])));
        order.truncate(MAX_LISTED);
        let mut positions = vec![None; self.connections.len()];
        order.iter().enumerate().for_each(|(position, &at)| positions[at] = Some(position));
        let listed = order.iter().map(|&at| self.connections[at].clone()).collect();
        (listed, positions, self.untracked)
    }
}

impl TcpDirection {
    fn sequence(&mut self, segment: &Segment) {
        let len = segment.payload + u32::from(segment.syn);
        let (start, end) = (segment.sequence, segment.sequence.wrapping_add(len));
        let Some(next) = self.next.filter(|_| !segment.syn) else {
            self.next = Some(end);
            self.holes.clear();
            return;
        };
        if len == 0 {
            return;
        }
        if is_after(end, next) {
            if is_after(start, next) && self.holes.len() < MAX_HOLES {
                self.holes.push((next, start));
            }
            self.next = Some(end);
            return;
        }
        let hole =
            self.holes.iter().position(|&(from, to)| is_after(end, from) && is_after(to, start));
        // A keepalive repeats one byte.
        match hole {
            Some(at) => {
                let (from, to) = self.holes.swap_remove(at);
                if is_after(start, from) {
                    self.holes.push((from, start));
                }
                if is_after(to, end) && self.holes.len() < MAX_HOLES {
                    self.holes.push((end, to));
                }
                self.late += 1;
            }
            None if len > 1 => self.retransmitted += 1,
            None => {}
        }
    }
}

/// Whether sequence number `one` is after `other` (RFC 9293, 3.4).
fn is_after(one: u32, other: u32) -> bool {
    (one.wrapping_sub(other) as i32) > 0
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(segments: &[(u32, u32)]) -> TcpDirection {
        let mut tracker = Tracker::default();
        let (a, b) = (("10.0.0.1".parse().unwrap(), 1), ("10.0.0.2".parse().unwrap(), 2));
        for &(sequence, payload) in segments {
            let segment = Segment { source: a, destination: b, sequence, payload, syn: false };
            assert_eq!(tracker.segment(&segment, 100, 0), Some((0, true)));
        }
        let back = Segment { source: b, destination: a, sequence: 0, payload: 0, syn: false };
        assert_eq!(tracker.segment(&back, 60, 5), Some((0, false)));
        let (connections, order, untracked) = tracker.finish();
        assert_eq!((connections.len(), order, untracked), (1, vec![Some(0)], 0));
        connections[0].a_to_b.clone()
    }

    #[test]
    fn bytes_seen_before_are_retransmissions_across_the_wrap() {
        let start = u32::MAX - 150;
        let clean: Vec<_> = (0..4).map(|at| (start.wrapping_add(at * 100), 100)).collect();
        let direction = run(&clean);
        assert_eq!((direction.retransmitted, direction.late, direction.payload), (0, 0, 400));
        let repeated = [&clean[..], &clean[1..3]].concat();
        assert_eq!(run(&repeated).retransmitted, 2);
    }

    #[test]
    fn a_segment_that_fills_a_gap_is_late() {
        let direction = run(&[(0, 10), (20, 10), (10, 5), (15, 5), (15, 5)]);
        assert_eq!((direction.late, direction.retransmitted), (2, 1));
        // Acknowledgements and keepalives count as neither.
        let direction = run(&[(0, 10), (10, 0), (9, 1), (10, 0)]);
        assert_eq!((direction.late, direction.retransmitted), (0, 0));
    }
}
