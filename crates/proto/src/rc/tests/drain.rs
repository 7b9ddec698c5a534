//! SQD: started requests complete, others wait (IBA 10.3.1.5).

use super::helpers::{clean, read, statuses, write};
use super::pair::{Faults, Pair};
use crate::congestion::{Congestion, cost};
use crate::work::Status;

#[test]
fn an_empty_queue_drains_immediately() {
    let mut pair = clean(256);
    assert!(!pair.hosts[0].qp.is_drained(), "nobody asked");
    pair.hosts[0].qp.drain();
    assert!(pair.hosts[0].qp.is_drained());
}

#[test]
fn started_requests_complete_and_others_wait() {
    let mut pair = Pair::with(1, Faults::default(), 256, |config| {
        config.congestion = Congestion::Window(8 * cost(256, 1));
    });
    // The first is longer than the window: it is partly sent when draining starts.
    for request in [write(1, 256 * 20), write(2, 256)] {
        pair.hosts[0].qp.post_send(request).unwrap();
    }
    pair.drain();
    pair.hosts[0].qp.drain();
    pair.hosts[0].qp.post_send(read(3, 8)).unwrap();
    assert!(!pair.hosts[0].qp.is_drained());
    pair.run();
    assert!(pair.hosts[0].qp.is_drained());
    assert_eq!(statuses(&pair), [(1, Status::Success)]);
    pair.hosts[0].qp.start_sending();
    assert!(!pair.hosts[0].qp.is_drained());
    pair.run();
    assert_eq!(statuses(&pair), [1, 2, 3].map(|id| (id, Status::Success)));
}

#[test]
fn losses_do_not_start_waiting_requests() {
    for seed in 0..200 {
        let mut pair = Pair::new(seed, Faults::of(seed), 256);
        pair.hosts[0].qp.post_send(read(1, 4000)).unwrap();
        pair.hosts[0].qp.post_send(write(2, 4000)).unwrap();
        pair.drain();
        pair.hosts[0].qp.drain();
        pair.hosts[0].qp.post_send(write(3, 4000)).unwrap();
        pair.run();
        assert!(pair.hosts[0].qp.fault().is_some() || pair.hosts[0].qp.is_drained());
        assert!(pair.hosts[0].qp.fault().is_some() || statuses(&pair).len() == 2, "seed {seed}");
        pair.hosts[0].qp.start_sending();
        pair.run();
        assert_eq!(statuses(&pair).len(), 3, "seed {seed}");
    }
}
