use super::super::wire::Order;
use super::*;

const HALF: u32 = 1000;
const PLACES: u16 = 16;

/// What a side says of itself, whose memory begins at this address.
fn said(at: u64) -> ConnectData {
    ConnectData {
        order: Order::Little,
        credits: PLACES,
        maps: Some(0),
        targets: Target { address: at, key: 1, length: TARGETS },
        buffer: Target { address: at + 100, key: 2, length: HALF },
    }
}

/// Two sides, with memory that holds what is written to it.
struct Pair {
    sides: [Flow; 2],
    /// The lists of targets.
    lists: [[Target; 2]; 2],
    buffers: [Vec<u8>; 2],
}

const BUFFERS: [u64; 2] = [10_000, 50_000];

impl Pair {
    fn new() -> Self {
        let flow = |peer: u64| Flow::new(HALF, PLACES, &said(peer - 100)).unwrap();
        Self {
            sides: [flow(BUFFERS[1]), flow(BUFFERS[0])],
            lists: [[Target::default(); 2]; 2],
            buffers: [vec![0; 2 * HALF as usize], vec![0; 2 * HALF as usize]],
        }
    }

    /// A side tells what there is to tell.
    fn grant(&mut self, side: usize) {
        while let Some(grant) = self.sides[side].grant() {
            let peer = 1 - side;
            let written = grant.half.map_or(0, |(offset, entry)| {
                let address = BUFFERS[side] + u64::from(offset);
                self.lists[peer][entry as usize] = Target { address, key: 2, length: HALF };
                TARGET_BYTES as u32
            });
            assert_eq!(self.sides[peer].arrived(grant.message, written), Ok(News::Noted));
            self.sides[side].control_done();
        }
    }

    /// Sends as much as may be sent, in messages of at most so many bytes. Returns how many went.
    fn send(&mut self, side: usize, data: &[u8], most: usize) -> usize {
        let (mut sent, peer) = (0, 1 - side);
        while sent < data.len() {
            if let Some(entry) = self.sides[side].next_target() {
                let target = self.lists[side][entry as usize];
                self.sides[side].set_target(target);
            }
            let bytes = (data.len() - sent).min(most).min(self.sides[side].room() as usize);
            if bytes == 0 {
                break;
            }
            let to = self.sides[side].send(bytes as u32);
            let at = (to.address - BUFFERS[peer]) as usize;
            self.buffers[peer][at..at + bytes].copy_from_slice(&data[sent..sent + bytes]);
            let message = Message::Data(bytes as u32);
            assert_eq!(self.sides[peer].arrived(message, bytes as u32), Ok(News::Noted));
            sent += bytes;
        }
        sent
    }

    fn receive(&mut self, side: usize, most: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for (offset, length) in self.sides[side].readable(most) {
            let part = offset as usize..(offset + length) as usize;
            out.extend_from_slice(&self.buffers[side][part]);
        }
        self.sides[side].consume(out.len() as u32);
        out
    }
}

/// Whatever the sizes, what comes out is what went in, and nothing comes to a stand.
#[test]
fn a_stream_arrives_in_order() {
    let data: Vec<u8> = (0..200_000u32).map(|one| (one * 7 % 251) as u8).collect();
    for (message, piece) in [(1, 1), (7, 3), (64, 5000), (999, 17), (1000, 1000), (5000, 333)] {
        let mut pair = Pair::new();
        let data = &data[..data.len().min(message * 2000)];
        let (mut sent, mut received) = (0, Vec::new());
        while received.len() < data.len() {
            sent += pair.send(0, &data[sent..], message);
            let got = pair.receive(1, piece);
            assert!(!got.is_empty(), "{message} {piece}: stands after {}", received.len());
            received.extend(got);
            pair.grant(1);
        }
        assert_eq!(received, data, "{message} {piece}");
    }
}

/// A side that nobody reads of takes two halves, or as many messages as it has places, and no more.
#[test]
fn who_does_not_read_is_sent_no_more() {
    let mut pair = Pair::new();
    pair.grant(1);
    assert_eq!(pair.send(0, &[1; 5000], 500), 2 * HALF as usize);
    let mut pair = Pair::new();
    pair.grant(1);
    assert_eq!(pair.send(0, &[1; 5000], 1), usize::from(PLACES));
}

#[test]
fn a_peer_that_sends_too_much_is_found_out() {
    let mut flow = Flow::new(HALF, PLACES, &said(0)).unwrap();
    assert_eq!(flow.arrived(Message::Data(HALF + 1), HALF + 1), Err(Violation::Bytes));
    let mut flow = Flow::new(HALF, PLACES, &said(0)).unwrap();
    for _ in 0..PLACES {
        assert_eq!(flow.arrived(Message::Data(1), 1), Ok(News::Noted));
    }
    assert_eq!(flow.arrived(Message::Data(1), 1), Err(Violation::Messages));
    let empty = ConnectData { targets: Target::default(), ..said(0) };
    assert_eq!(Flow::new(HALF, PLACES, &empty).unwrap_err(), Violation::Targets);
}

/// With all control messages under way, nothing is told until one has arrived.
#[test]
fn control_messages_are_few() {
    let mut flow = Flow::new(HALF, PLACES, &said(0)).unwrap();
    for _ in 0..CONTROLS {
        assert!(flow.take_control());
    }
    assert!(!flow.take_control());
    assert_eq!(flow.grant(), None);
    flow.control_done();
    let half = Some((HALF, 1));
    let message = Message::Credits(PLACES);
    assert_eq!(flow.grant(), Some(Grant { message, half }));
    assert_eq!(flow.grant(), None);
}
