//! Queue pairs whose peer's port is closed.

use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::support::{attributes, bring_up, gid_index, open_alone, options, side};
use ferroce::*;

/// Polls for the next completion, for up to a minute on a busy host.
fn next(queue: &CompletionQueue) -> WorkCompletion {
    let deadline = Instant::now() + Duration::from_secs(60);
    while Instant::now() < deadline {
        if let Some(done) = queue.poll_one() {
            return done;
        }
        std::thread::yield_now();
    }
    panic!("no completion");
}

/// The retries would take four minutes; the peer's host reports the closed port by ICMP at once.
#[test]
fn a_closed_port_exhausts_the_retries_at_once() {
    let context = open_alone(&options());
    let index = gid_index(&context, false).unwrap();
    let side = side(&context, ServiceType::ReliableConnection, 1 << 16);
    let mut attributes = attributes(&context, index, Qpn(0x12_3456), 1024);
    let closed = Gid::from_ip(IpAddr::from([127, 9, 9, 9]));
    attributes.path = attributes.path.map(|path| AddressVector { destination: closed, ..path });
    attributes.timeout = Some(AckTimeout(23));
    bring_up(&side.queue_pair, &attributes);
    // Several packets, each of which may cause an ICMP message.
    side.post(1, Operation::SEND, 0, 20_000);
    side.post(2, Operation::SEND, 0, 10);
    let first = next(&side.completions);
    assert_eq!((first.id, first.status), (WorkId(1), Status::RetryExceeded));
    let second = next(&side.completions);
    assert_eq!((second.id, second.status), (WorkId(2), Status::Flushed));
}
