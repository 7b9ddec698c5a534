use super::super::wire::ByteOrder;
use super::*;

const HALF: u32 = 1000;
const CAPACITY: u16 = 16;

/// The private data of a peer whose memory begins at this address.
fn peer_at(address: u64) -> ConnectData {
    ConnectData {
        order: ByteOrder::Little,
        credits: CAPACITY,
        maps: Some(0),
        targets: Target { address, key: 1, length: TARGET_ENTRIES },
        buffer: Target { address: address + 100, key: 2, length: HALF },
    }
}

fn flow() -> FlowControl {
    FlowControl::new(HALF, CAPACITY, &peer_at(0)).unwrap()
}

/// Two sides, with the memory that each writes to.
struct Pair {
    sides: [FlowControl; 2],
    target_lists: [[Target; 2]; 2],
    buffers: [Vec<u8>; 2],
}

const BUFFERS: [u64; 2] = [10_000, 50_000];

impl Pair {
    fn new() -> Self {
        let flow = |peer: u64| FlowControl::new(HALF, CAPACITY, &peer_at(peer - 100)).unwrap();
        Self {
            sides: [flow(BUFFERS[1]), flow(BUFFERS[0])],
            target_lists: [[Target::default(); 2]; 2],
            buffers: [vec![0; 2 * HALF as usize], vec![0; 2 * HALF as usize]],
        }
    }

    /// Sends all credit updates of a side that are due.
    fn update_credits(&mut self, side: usize) {
        while let Some(update) = self.sides[side].credit_update() {
            let peer = 1 - side;
            let written = update.target.map_or(0, |(offset, entry)| {
                let address = BUFFERS[side] + u64::from(offset);
                self.target_lists[peer][entry as usize] = Target { address, key: 2, length: HALF };
                TARGET_BYTES as u32
            });
            assert_eq!(self.sides[peer].receive_message(update.message, written), Ok(None));
            self.sides[side].release_control_slot();
        }
    }

    /// Sends as much as flow control allows, in messages of at most `max` bytes. Returns the number of bytes sent.
    fn send(&mut self, side: usize, data: &[u8], max: usize) -> usize {
        let (mut sent, peer) = (0, 1 - side);
        while sent < data.len() {
            if let Some(entry) = self.sides[side].next_target() {
                let target = self.target_lists[side][entry as usize];
                self.sides[side].set_target(target);
            }
            let bytes = (data.len() - sent).min(max).min(self.sides[side].sendable() as usize);
            if bytes == 0 {
                break;
            }
            let to = self.sides[side].send(bytes as u32);
            let at = (to.address - BUFFERS[peer]) as usize;
            self.buffers[peer][at..at + bytes].copy_from_slice(&data[sent..sent + bytes]);
            let message = StreamMessage::Data(bytes as u32);
            assert_eq!(self.sides[peer].receive_message(message, bytes as u32), Ok(None));
            sent += bytes;
        }
        sent
    }

    fn receive(&mut self, side: usize, max: usize) -> Vec<u8> {
        let mut out = Vec::new();
        for (offset, length) in self.sides[side].readable(max) {
            let part = offset as usize..(offset + length) as usize;
            out.extend_from_slice(&self.buffers[side][part]);
        }
        self.sides[side].consume(out.len() as u32);
        out
    }
}

#[test]
fn a_stream_arrives_in_order_for_every_message_and_read_size() {
    let data: Vec<u8> = (0..200_000u32).map(|value| (value * 7 % 251) as u8).collect();
    for (message, piece) in [(1, 1), (7, 3), (64, 5000), (999, 17), (1000, 1000), (5000, 333)] {
        let mut pair = Pair::new();
        let data = &data[..data.len().min(message * 2000)];
        let (mut sent, mut received) = (0, Vec::new());
        while received.len() < data.len() {
            sent += pair.send(0, &data[sent..], message);
            let got = pair.receive(1, piece);
            assert!(!got.is_empty(), "{message} {piece}: stalled after {}", received.len());
            received.extend(got);
            pair.update_credits(1);
        }
        assert_eq!(received, data, "{message} {piece}");
    }
}

/// More than 2^16 messages in each direction: sequence numbers wrap, and sending never stalls.
#[test]
fn sequence_numbers_wrap_in_both_directions() {
    let mut pair = Pair::new();
    let mut messages = 0;
    while messages < 70_000 {
        for side in [0, 1] {
            let sent = pair.send(side, &[9; 8], 1);
            assert!(sent > 0, "stalled after {messages} messages");
            messages += sent;
            assert_eq!(pair.receive(1 - side, 8).len(), sent);
            pair.update_credits(1 - side);
        }
    }
}

#[test]
fn a_reader_that_does_not_read_limits_bytes_to_both_halves() {
    let mut pair = Pair::new();
    pair.update_credits(1);
    assert_eq!(pair.send(0, &[1; 5000], 500), 2 * HALF as usize);
}

#[test]
fn a_reader_that_does_not_read_limits_messages_to_the_receive_queue() {
    let mut pair = Pair::new();
    pair.update_credits(1);
    assert_eq!(pair.send(0, &[1; 5000], 1), usize::from(CAPACITY));
}

#[test]
fn bytes_beyond_the_grant_are_a_violation() {
    let excess = StreamMessage::Data(HALF + 1);
    assert_eq!(flow().receive_message(excess, HALF + 1), Err(Violation::Bytes));
    let mut flow = flow();
    assert_eq!(flow.receive_message(StreamMessage::Data(HALF), HALF), Ok(None));
    assert_eq!(flow.receive_message(StreamMessage::Data(1), 1), Err(Violation::Bytes));
}

#[test]
fn messages_beyond_the_credits_are_a_violation() {
    let mut flow = flow();
    for _ in 0..CAPACITY {
        assert_eq!(flow.receive_message(StreamMessage::Data(1), 1), Ok(None));
    }
    assert_eq!(flow.receive_message(StreamMessage::Data(1), 1), Err(Violation::Messages));
}

#[test]
fn an_empty_target_list_is_a_violation() {
    let empty = ConnectData { targets: Target::default(), ..peer_at(0) };
    assert_eq!(FlowControl::new(HALF, CAPACITY, &empty).unwrap_err(), Violation::Targets);
}

#[test]
fn no_credit_update_is_sent_while_all_control_messages_are_in_flight() {
    let mut flow = flow();
    for _ in 0..MAX_CONTROL_MESSAGES {
        assert!(flow.take_control_slot());
    }
    assert!(!flow.take_control_slot());
    assert_eq!(flow.credit_update(), None);
    flow.release_control_slot();
    let target = Some((HALF, 1));
    let message = StreamMessage::Credits(CAPACITY);
    assert_eq!(flow.credit_update(), Some(CreditUpdate { message, target }));
    assert_eq!(flow.credit_update(), None);
}

#[test]
fn control_slots_never_exceed_their_number() {
    let mut flow = flow();
    flow.release_control_slot();
    for _ in 0..MAX_CONTROL_MESSAGES {
        assert!(flow.take_control_slot());
    }
    assert!(!flow.take_control_slot());
}

#[test]
fn the_second_half_is_granted_at_the_start_and_the_first_after_it_was_read() {
    let mut flow = flow();
    assert_eq!(flow.credit_update().unwrap().target, Some((HALF, 1)));
    assert_eq!(flow.credit_update(), None);
    assert_eq!(flow.receive_message(StreamMessage::Data(HALF), HALF), Ok(None));
    flow.consume(HALF - 1);
    assert_eq!(flow.credit_update(), None);
    flow.consume(1);
    assert_eq!(flow.credit_update().unwrap().target, Some((0, 0)));
}

/// Small messages use up credits long before bytes: reading half the receive queue returns credits without a target.
#[test]
fn credits_are_returned_when_half_the_receive_queue_was_read() {
    let mut flow = flow();
    flow.credit_update().unwrap();
    for _ in 0..CAPACITY {
        flow.receive_message(StreamMessage::Data(1), 1).unwrap();
    }
    flow.consume(u32::from(CAPACITY) / 2 - 1);
    assert_eq!(flow.credit_update(), None);
    flow.consume(1);
    let message = StreamMessage::Credits(CAPACITY + CAPACITY / 2);
    assert_eq!(flow.credit_update(), Some(CreditUpdate { message, target: None }));
}

#[test]
fn reading_wraps_around_the_end_of_the_buffer() {
    let mut flow = flow();
    flow.credit_update().unwrap();
    for _ in 0..2 {
        flow.receive_message(StreamMessage::Data(HALF), HALF).unwrap();
    }
    flow.consume(2 * HALF - 10);
    flow.credit_update().unwrap();
    flow.receive_message(StreamMessage::Data(30), 30).unwrap();
    assert_eq!(flow.readable(40), [(2 * HALF - 10, 10), (0, 30)]);
    assert_eq!(flow.readable(15), [(2 * HALF - 10, 10), (0, 5)]);
    assert_eq!(flow.readable(5), [(2 * HALF - 10, 5)]);
}

#[test]
fn reading_part_of_a_message_leaves_the_rest() {
    let mut flow = flow();
    flow.receive_message(StreamMessage::Data(10), 10).unwrap();
    flow.receive_message(StreamMessage::Data(5), 5).unwrap();
    flow.consume(12);
    assert_eq!(flow.readable(100), [(12, 3)]);
    assert!(flow.has_data());
    flow.consume(3);
    assert!(!flow.has_data());
}

#[test]
fn an_empty_message_returns_its_credit_without_being_read() {
    let mut flow = flow();
    flow.credit_update().unwrap();
    for _ in 0..CAPACITY / 2 {
        flow.receive_message(StreamMessage::Data(0), 0).unwrap();
    }
    assert!(!flow.has_data());
    assert!(flow.credit_update().is_some());
}

#[test]
fn a_message_ends_at_the_end_of_its_target() {
    let mut flow = flow();
    assert_eq!(flow.sendable(), HALF);
    let to = flow.send(300);
    assert_eq!((to.address, to.length), (100, 300));
    assert_eq!(flow.sendable(), HALF - 300);
    assert_eq!(flow.send(HALF - 300).address, 400);
    assert_eq!((flow.sendable(), flow.next_target()), (0, None));
}

#[test]
fn a_new_target_is_used_once_the_old_one_is_full() {
    let mut flow = flow();
    let credits = StreamMessage::Credits(CAPACITY);
    flow.receive_message(credits, TARGET_BYTES as u32).unwrap();
    assert_eq!(flow.next_target(), None);
    flow.send(HALF);
    assert_eq!(flow.next_target(), Some(1));
    flow.set_target(Target { address: 7, key: 3, length: 50 });
    assert_eq!((flow.sendable(), flow.next_target()), (50, None));
    assert_eq!(flow.send(50), Target { address: 7, key: 3, length: 50 });
}

#[test]
fn a_credit_update_without_bytes_brings_no_target() {
    let mut flow = flow();
    flow.send(HALF);
    flow.receive_message(StreamMessage::Credits(40), 0).unwrap();
    flow.receive_message(StreamMessage::Credits(40), TARGET_BYTES as u32 - 1).unwrap();
    assert_eq!(flow.next_target(), None);
}

#[test]
fn a_peer_cannot_announce_more_targets_than_the_list_has() {
    let mut flow = flow();
    for _ in 0..5 {
        flow.receive_message(StreamMessage::Credits(CAPACITY), TARGET_BYTES as u32).unwrap();
    }
    flow.send(HALF);
    for _ in 0..TARGET_ENTRIES {
        assert!(flow.next_target().is_some());
        flow.set_target(Target::default());
    }
    assert_eq!(flow.next_target(), None);
}

#[test]
fn sending_stops_when_the_credits_are_used() {
    let mut flow = flow();
    for _ in 0..CAPACITY - 1 {
        flow.send(1);
    }
    assert!(flow.has_credit());
    flow.use_credit();
    assert!(!flow.has_credit());
    assert_eq!(flow.sendable(), 0);
    flow.receive_message(StreamMessage::Credits(CAPACITY + 1), 0).unwrap();
    assert_eq!(flow.sendable(), HALF - u32::from(CAPACITY - 1));
}

#[test]
fn shutdown_and_disconnect_are_told_apart() {
    let mut flow = flow();
    let received = |flow: &mut FlowControl, message| flow.receive_message(message, 0);
    assert_eq!(received(&mut flow, StreamMessage::Shutdown), Ok(Some(PeerClose::Shutdown)));
    assert_eq!(received(&mut flow, StreamMessage::Disconnect), Ok(Some(PeerClose::Disconnect)));
}

#[test]
fn keep_alive_and_unknown_messages_change_nothing() {
    let mut flow = flow();
    let before = format!("{flow:?}");
    for message in
        [StreamMessage::KeepAlive, StreamMessage::Mapped(3), StreamMessage::Unknown(0xf000_0000)]
    {
        assert_eq!(flow.receive_message(message, 24), Ok(None));
    }
    assert_eq!(format!("{flow:?}"), before);
}
