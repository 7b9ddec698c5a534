use std::rc::Rc;

use super::*;
use crate::testing::{QueuePair, queue_pair, queue_pairs};

fn pool(full: usize) -> (Pool<Rc<QueuePair>>, Rc<QueuePair>) {
    (Pool::new(full, RESUMED), queue_pair(1))
}

#[test]
fn a_pool_shrinks_once_for_the_bytes_in_flight_and_grows_back() {
    let (mut pool, member) = pool(4 << 20);
    pool.charge(&member, 0, 1 << 20);
    pool.cut();
    assert_eq!(pool.limit, 2 << 20);
    pool.cut();
    assert_eq!(pool.limit, 2 << 20, "these bytes were in flight at the first loss as well");
    pool.charge(&member, 1 << 20, 0);
    for _ in 0..10 {
        pool.cut();
    }
    assert_eq!(pool.limit, MIN_LIMIT);
    let mut acknowledged = 0;
    while pool.limit < pool.full {
        pool.charge(&member, 0, PACKET);
        pool.charge(&member, PACKET, 0);
        acknowledged += PACKET;
        assert!(acknowledged < 200 << 20, "it does not grow: {}", pool.limit);
    }
    assert_eq!(pool.used, 0);
}

#[test]
fn a_small_pool_is_not_cut_below_its_size() {
    let (mut pool, _) = pool(2 * PACKET);
    pool.cut();
    assert_eq!((pool.limit, pool.quantum()), (2 * PACKET, PACKET));
}

#[test]
fn bytes_without_acks_count_and_leave_a_half() {
    let (mut pool, member) = pool(8 * PACKET);
    pool.unacknowledged = 3 * PACKET;
    assert_eq!(pool.free(), 5 * PACKET);
    pool.charge(&member, 0, PACKET);
    assert_eq!(pool.free(), 4 * PACKET);
    pool.unacknowledged = 20 * PACKET;
    assert_eq!(pool.free(), 3 * PACKET);
}

#[test]
fn a_queue_pair_can_always_be_resumed() {
    let (mut pool, _) = pool(2 * PACKET);
    pool.unacknowledged = 20 * PACKET;
    assert!(pool.free() >= pool.quantum());
}

#[test]
fn an_idle_pool_takes_a_request_larger_than_itself() {
    let (mut pool, member) = pool(2 * PACKET);
    assert_eq!(pool.free(), usize::MAX);
    pool.charge(&member, 0, 1);
    assert_eq!(pool.free(), 2 * PACKET - 1);
    pool.charge(&member, 1, 5 * PACKET);
    assert_eq!(pool.free(), 0);
}

#[test]
fn a_queue_pair_gets_no_credit_before_those_that_wait() {
    let [first, second, third] = &queue_pairs(3)[..] else { unreachable!() };
    let (mut pool, mut schedule) = (Pool::new(4 * PACKET, RESUMED), Schedule::default());
    assert_eq!(pool.take(first, 0), 4 * PACKET, "on its own, it may fill the pool");
    pool.charge(first, 0, 3 * PACKET);
    second.marks().credit.state.store(WAITING, Ordering::Relaxed);
    pool.waiting.push_back((second.clone(), 2 * PACKET));
    pool.resume(&mut schedule);
    assert_eq!((schedule.pop().is_some(), pool.take(third, 0)), (false, 0), "less is free");
    pool.charge(first, 3 * PACKET, 2 * PACKET);
    pool.resume(&mut schedule);
    assert_eq!(schedule.pop().map(|resumed| resumed.number()), Some(second.number()));
    assert_eq!(pool.take(third, 0), 0, "what is free is set aside");
    let reserved = second.marks().credit.take_reserved().peer;
    assert_eq!((reserved, pool.take(second, reserved)), (2 * PACKET, 2 * PACKET));
}
