//! Who polls without a pause needs no other thread: timers run out meanwhile, too.

mod support;

use std::time::{Duration, Instant};

use ferroce::*;
use support::{connect, gid_index, open_alone, side};

/// Polls a queue without a pause until it has a completion.
fn poll(queue: &CompletionQueue) -> WorkCompletion {
    // For a machine that is very busy.
    let deadline = Instant::now() + Duration::from_secs(20);
    while Instant::now() < deadline {
        if let Some(done) = queue.poll_one() {
            return done;
        }
    }
    panic!("a timer did not run out while its owner polled");
}

/// The sender is told to wait, and only a timer makes it go on.
#[test]
fn timers_run_out_while_their_owner_polls() {
    let context = open_alone(&Options::default());
    let index = gid_index(&context, false).unwrap();
    let service = ServiceType::ReliableConnection;
    let (one, other) = (side(&context, service, 4096), side(&context, service, 4096));
    connect(&one, &other, index, 1024);
    for round in 0..50 {
        let before = context.statistics().packets_in;
        one.post(round, Operation::SEND, 0, 100);
        // The message, and the answer that there is no receive.
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
