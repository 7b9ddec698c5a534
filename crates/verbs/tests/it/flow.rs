//! Flow control per destination, requests that are held back, and ACKs that are owed, over real sockets.

use std::time::{Duration, Instant};

use crate::support::{
    Side, attributes, bring_up, connect, gid_index, open_alone, over_sockets, pattern, side,
};
use ferroce::*;

const LENGTH: usize = 65_536;

/// A device whose socket holds about 13 packets of the largest size.
fn small_buffer() -> Context {
    let sockets = ferroce_sys::Options {
        receive_buffer: 64 << 10,
        force_buffers: false,
        ..ferroce_sys::Options::default()
    };
    open_alone(&Options { sockets, ..over_sockets() })
}

fn pairs(context: &Context, count: usize, size: usize) -> Vec<(Side, Side)> {
    let index = gid_index(context, false).unwrap();
    let service = ServiceType::ReliableConnection;
    let pair = |_| {
        let (one, other) = (side(context, service, size), side(context, service, size));
        connect(&one, &other, index, 4096);
        (one, other)
    };
    (0..count).map(pair).collect()
}

/// Packets that a full socket drops leave a gap, which the receiver counts.
fn assert_no_loss(context: &Context) {
    let counted = context.statistics();
    assert_eq!((counted.out_of_sequence, counted.implied_nak_seq_err), (0, 0), "{counted:?}");
}

#[test]
fn a_hundred_connections_share_a_small_buffer_without_loss() {
    const EACH: u64 = 4;
    let context = small_buffer();
    let pairs = pairs(&context, 100, LENGTH);
    for (number, (one, other)) in pairs.iter().enumerate() {
        one.region.write(0, &pattern(number as u64, LENGTH)).unwrap();
        for id in 0..EACH {
            let write = Operation::Write { remote: other.region.remote(0), immediate: None };
            one.post(id, write, 0, LENGTH);
        }
    }
    for (number, (one, other)) in pairs.iter().enumerate() {
        (0..EACH).for_each(|id| _ = one.expect(id));
        assert!(other.bytes(0, LENGTH) == pattern(number as u64, LENGTH), "connection {number}");
    }
    assert_no_loss(&context);
}

/// UD has no ACKs, and uses the same buffer.
#[test]
fn datagrams_and_connections_share_a_small_buffer_without_loss() {
    const DATAGRAMS: u64 = 400;
    const EACH: u64 = 8;
    let context = small_buffer();
    let index = gid_index(&context, false).unwrap();
    let datagram = ServiceType::UnreliableDatagram;
    let (sender, receiver) = (side(&context, datagram, LENGTH), side(&context, datagram, LENGTH));
    for side in [&sender, &receiver] {
        bring_up(&side.queue_pair, &attributes(&context, index, Qpn(0), 4096));
    }
    let vector = AddressVector {
        port: 1,
        source_index: index,
        destination: context.device().gids()[usize::from(index)].gid,
        ..AddressVector::default()
    };
    let address = sender.pd.address_handle(&vector).unwrap();
    let pairs = pairs(&context, 8, LENGTH);
    let (mut sent, mut received) = (0, 0);
    let mut connections: Vec<_> = pairs.iter().map(|pair| (pair, 0, 0)).collect();
    let deadline = Instant::now() + Duration::from_secs(60);
    while received < DATAGRAMS || connections.iter().any(|&(_, _, done)| done < EACH) {
        assert!(Instant::now() < deadline, "{sent} datagrams sent, {received} received");
        for (pair, posted, done) in &mut connections {
            let (one, other) = pair;
            while *posted < EACH {
                let write = Operation::Write { remote: other.region.remote(0), immediate: None };
                one.post(*posted, write, 0, LENGTH);
                *posted += 1;
            }
            while let Some(entry) = one.completions.poll_one() {
                assert_eq!(entry.status, Status::Success);
                *done += 1;
            }
        }
        while sent < DATAGRAMS && sent < received + 64 {
            receiver.post_receive(sent, 0, 4096 + 40);
            let (number, key) = (receiver.queue_pair.number(), QKey(0x1234));
            let data = sender.data(0, 4096);
            let send = address.request(WorkId(sent), number, key, data);
            sender.queue_pair.post_datagram(send).unwrap();
            sent += 1;
        }
        while let Some(entry) = receiver.completions.poll_one() {
            assert_eq!(entry.status, Status::Success);
            received += 1;
        }
        while sender.completions.poll_one().is_some() {}
    }
    assert_no_loss(&context);
}

#[test]
fn reads_of_many_connections_share_the_own_buffer_without_loss() {
    let context = small_buffer();
    let pairs = pairs(&context, 50, LENGTH);
    for (number, (one, other)) in pairs.iter().enumerate() {
        other.region.write(0, &pattern(number as u64, LENGTH)).unwrap();
        for id in 0..2 {
            one.post(id, Operation::Read { remote: other.region.remote(0) }, 0, LENGTH);
        }
    }
    for (number, (one, _)) in pairs.iter().enumerate() {
        (0..2).for_each(|id| _ = one.expect(id));
        assert!(one.bytes(0, LENGTH) == pattern(number as u64, LENGTH), "connection {number}");
    }
    assert_no_loss(&context);
}

/// The chunks of a READ follow the window, which a program may set; the pool follows the buffer.
#[test]
fn a_read_chunk_may_be_larger_than_the_buffer() {
    let sockets = ferroce_sys::Options {
        receive_buffer: 64 << 10,
        force_buffers: false,
        ..ferroce_sys::Options::default()
    };
    let congestion = Some(Congestion::Unlimited);
    let context = open_alone(&Options { sockets, congestion, ..over_sockets() });
    let (one, other) = pairs(&context, 1, 1 << 20).pop().unwrap();
    other.region.write(0, &pattern(7, 1 << 20)).unwrap();
    one.post(1, Operation::Read { remote: other.region.remote(0) }, 0, 1 << 20);
    one.expect(1);
    assert!(one.bytes(0, 1 << 20) == pattern(7, 1 << 20), "the bytes differ");
}

/// Destroying connections with packets in flight returns their credit: the others go on.
#[test]
fn destroyed_connections_return_their_credit() {
    let context = small_buffer();
    for _ in 0..20 {
        let mut pairs = pairs(&context, 10, LENGTH);
        for (one, other) in &pairs {
            for id in 0..4 {
                let write = Operation::Write { remote: other.region.remote(0), immediate: None };
                one.post(id, write, 0, LENGTH);
            }
        }
        let (last, _peer) = pairs.pop().unwrap();
        drop(pairs);
        (0..4).for_each(|id| _ = last.expect(id));
    }
}

/// As with destroyed connections: no credit is left with queue pairs that are reset and connected again. Whether a QP waits
/// for credit at its RESET, has credit set aside, or has packets in flight, depends on the moment.
#[test]
fn reset_connections_return_their_credit() {
    let context = small_buffer();
    let reset = QueuePairAttributes { state: Some(State::Reset), ..QueuePairAttributes::default() };
    let index = gid_index(&context, false).unwrap();
    for round in 0..10 {
        let churned = pairs(&context, 6, LENGTH);
        for step in 0..8 {
            for (number, (one, other)) in churned.iter().enumerate() {
                for id in 0..4 {
                    let write =
                        Operation::Write { remote: other.region.remote(0), immediate: None };
                    one.post(id, write, 0, LENGTH);
                }
                if (number + step) % 3 != 0 {
                    for side in [one, other] {
                        side.queue_pair.modify(&reset).unwrap();
                    }
                    connect(one, other, index, 4096);
                }
                while one.completions.poll_one().is_some() {}
            }
        }
        drop(churned);
        let (one, other) = pairs(&context, 1, LENGTH).pop().unwrap();
        let write = Operation::Write { remote: other.region.remote(0), immediate: None };
        one.post(9, write, 0, LENGTH);
        assert_eq!((in_time(&one).id, round), (WorkId(9), round));
    }
}

#[test]
fn connections_progress_alike() {
    const COUNT: usize = 10;
    let context = small_buffer();
    let pairs = pairs(&context, COUNT, LENGTH);
    let write = |one: &Side, other: &Side, id| {
        let write = Operation::Write { remote: other.region.remote(0), immediate: None };
        one.post(id, write, 0, LENGTH);
    };
    for (one, other) in &pairs {
        (0..8).for_each(|id| write(one, other, id));
    }
    // Each completion posts the next request, so all always have more to send.
    let mut done = [0_u64; COUNT];
    while done.iter().sum::<u64>() < 2_000 {
        for (count, (one, other)) in done.iter_mut().zip(&pairs) {
            while let Some(completion) = one.completions.poll_one() {
                assert_eq!(completion.status, Status::Success);
                *count += 1;
                write(one, other, 0);
            }
        }
    }
    let (sum, squares) = done.iter().fold((0.0, 0.0), |(sum, squares), &count| {
        (sum + count as f64, squares + (count * count) as f64)
    });
    let jain = sum * sum / (COUNT as f64 * squares);
    assert!(jain > 0.95, "Jain's index {jain}: {done:?}");
}

/// Two devices of one process, as two processes have them: driving one does not drive the other.
fn two_devices() -> (Context, Context) {
    let one = open_alone(&over_sockets());
    let options = Options { congestion: Some(Congestion::Window(1 << 20)), ..over_sockets() };
    (one, open_alone(&options))
}

/// Connects without an ACK timeout: nothing is retransmitted, so what is not sent never arrives.
fn connect_without_timer(one: &Context, other: &Context) -> (Side, Side) {
    let service = ServiceType::ReliableConnection;
    let (from, to) = (side(one, service, LENGTH), side(other, service, LENGTH));
    let index = gid_index(one, false).unwrap();
    for (side, peer) in [(&from, &to), (&to, &from)] {
        let attributes = attributes(&side.context, index, peer.queue_pair.number(), 1024);
        let timeout = Some(AckTimeout(0));
        bring_up(&side.queue_pair, &QueuePairAttributes { timeout, ..attributes });
    }
    (from, to)
}

fn in_time(side: &Side) -> WorkCompletion {
    let deadline = Instant::now() + Duration::from_secs(20);
    side.completions.wait_until(deadline).unwrap().expect("nothing completed in 20 s")
}

/// Requests that were held back leave with the ACK of an earlier one, although the sender makes no further call.
#[test]
fn held_requests_are_sent_without_further_calls() {
    let (one, other) = two_devices();
    let (from, to) = connect_without_timer(&one, &other);
    for round in 0..50 {
        const COUNT: u64 = 20;
        (0..COUNT).for_each(|id| to.post_receive(id, 0, 64));
        // Each post is a call of its own: the first leaves at once, the others are held back.
        (0..COUNT).for_each(|id| from.post(id, Operation::SEND, 0, 64));
        for id in 0..COUNT {
            let done = in_time(&to);
            assert_eq!((done.id, done.status), (WorkId(id), Status::Success), "round {round}");
        }
        (0..COUNT).for_each(|id| _ = from.expect(id));
    }
}

/// An ACK that was left for the program's next call is sent although the program makes none.
#[test]
fn an_owed_ack_is_sent_without_further_calls() {
    let (one, other) = two_devices();
    let (from, to) = connect_without_timer(&one, &other);
    for id in 0..200 {
        to.post_receive(id, 0, 64);
        from.post(id, Operation::SEND, 0, 64);
        // The receiver polls, so its device thread leaves the sockets to it, and then calls nothing more.
        let deadline = Instant::now() + Duration::from_secs(20);
        while to.completions.poll_one().is_none() {
            assert!(Instant::now() < deadline, "nothing received");
        }
        assert_eq!(in_time(&from).id, WorkId(id));
    }
}

/// Completions of the SQ and the RQ have no order, but programs depend on the one that adapters show: a request completes
/// before the reply to it arrives, although the replies leave together with their ACKs.
#[test]
fn a_request_completes_before_its_reply() {
    const ROUNDS: u64 = 300;
    let (one, other) = two_devices();
    let (from, to) = connect_without_timer(&one, &other);
    let received = || {
        loop {
            let done = in_time(&to);
            assert_eq!(done.status, Status::Success);
            if done.kind == CompletionKind::Receive {
                break;
            }
        }
    };
    // One packet, an empty one, several packets, and several messages.
    for (messages, length) in [(1, 64), (1, 0), (1, 5000), (3, 64)] {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..ROUNDS {
                    to.post_receive(0, 0, 64);
                    received();
                    (0..messages).for_each(|id| to.post(id, Operation::SEND, 0, length));
                }
                // The replies of the last round complete before this.
                to.post_receive(0, 0, 64);
                received();
            });
            for round in 0..ROUNDS {
                (0..messages).for_each(|id| from.post_receive(id, 0, length));
                from.post(9, Operation::SEND, 0, 64);
                let done = in_time(&from);
                assert_eq!(done.id, WorkId(9), "round {round}: {messages} of {length} bytes");
                (0..messages).for_each(|id| _ = from.expect(id));
            }
            from.post(9, Operation::SEND, 0, 64);
            from.expect(9);
        });
    }
}

/// One of the waiting threads waits for packets, for all of them.
#[test]
fn threads_wait_for_different_queues_of_a_device() {
    const MESSAGES: u64 = 100;
    let (one, other) = two_devices();
    let pairs: Vec<_> = (0..4).map(|_| connect_without_timer(&one, &other)).collect();
    std::thread::scope(|scope| {
        for (from, to) in &pairs {
            scope.spawn(move || {
                for id in 0..MESSAGES {
                    to.post_receive(id, 0, 64);
                    to.post(id, Operation::SEND, 0, 64);
                    let [first, second] = [(); 2].map(|()| in_time(to));
                    assert!([first, second].iter().all(|done| done.status == Status::Success));
                }
            });
            scope.spawn(move || {
                (0..MESSAGES).for_each(|id| from.post_receive(id, 0, 64));
                for id in 0..MESSAGES {
                    from.post(id, Operation::SEND, 0, 64);
                    // Its own completion and the peer's message, in any order.
                    let _ = [(); 2].map(|()| in_time(from));
                }
            });
        }
    });
}
