//! A program that polls continuously needs no other thread: polling also runs the timers.

use std::time::{Duration, Instant};

use crate::support::{connect, gid_index, open_alone, options, side};
use ferroce::*;

/// Polls a CQ continuously until it has a completion.
fn poll(queue: &CompletionQueue) -> WorkCompletion {
    // Long, for a busy host.
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(done) = queue.poll_one() {
            return done;
        }
    }
    panic!("a timer did not expire while the program polled");
}

/// The sender receives an RNR NAK, and retransmits when its timer expires.
#[test]
fn timers_expire_while_the_program_polls() {
    let context = open_alone(&options());
    let index = gid_index(&context, false).unwrap();
    let service = ServiceType::ReliableConnection;
    let (one, other) = (side(&context, service, 4096), side(&context, service, 4096));
    connect(&one, &other, index, 1024);
    for round in 0..50 {
        let before = context.statistics().packets_in;
        one.post(round, Operation::SEND, 0, 100);
        // The message and the RNR NAK.
        while context.statistics().packets_in < before + 2 {
            assert_eq!(one.completions.poll_one(), None);
        }
        other.post_receive(round, 0, 100);
        let done = poll(&one.completions);
        assert_eq!((done.id, done.status), (WorkId(round), Status::Success));
        let done = poll(&other.completions);
        assert_eq!((done.id, done.length), (WorkId(round), 100));
    }
}
