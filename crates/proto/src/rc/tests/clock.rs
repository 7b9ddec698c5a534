//! A clock that jumps: forward by hours, as after the process was stopped or its machine was moved; and back, a little as
//! a clock that is read in two ways may, or by hours, which CLOCK_MONOTONIC does not.

use core::time::Duration;
use std::vec::Vec;

use super::helpers::{read, statuses, write};
use super::pair::{Faults, Pair};
use crate::congestion::{Congestion, DcqcnParameters};
use crate::time::Instant;
use crate::work::Status;

const HOUR: u64 = 3_600_000_000_000;
const MILLISECOND: u64 = 1_000_000;

fn jump(pair: &mut Pair, back: u64) {
    let now = pair.now.as_nanos();
    let to = match pair.random.chance(500) {
        true => now + pair.random.below(3 * HOUR),
        false => now.saturating_sub(pair.random.below(back)),
    };
    pair.set_clock(Instant::from_nanos(to));
}

/// Runs requests while the clock jumps, at most so far back, and returns their results.
fn run(seed: u64, back: u64) -> (Pair, Vec<(u64, Status)>) {
    let faults = Faults { loss: seed % 20, duplication: seed % 30, reordering: seed % 40 };
    let mut pair = Pair::with(seed, faults, 1024, |config| {
        config.keepalive = Some(Duration::from_millis(10));
        if seed % 2 == 1 {
            config.congestion = Congestion::Dcqcn(DcqcnParameters::default());
        }
    });
    pair.marking = seed % 3 == 0;
    for id in 0..30 {
        let request = if id % 3 == 0 { read(id, 3000) } else { write(id, 5000) };
        pair.hosts[0].qp.post_send(request).unwrap();
    }
    for step in 0.. {
        pair.drain();
        if pair.hosts[0].sent.len() == 30 {
            break;
        }
        assert!(step < 100_000 && pair.step(), "seed {seed}: {:?}", statuses(&pair));
        if pair.random.chance(10) {
            jump(&mut pair, back);
        }
    }
    let statuses = statuses(&pair);
    assert!(statuses.iter().map(|(id, _)| *id).eq(0..30), "seed {seed}: {statuses:?}");
    (pair, statuses)
}

#[test]
fn requests_survive_jumps_of_the_clock() {
    for seed in 0..100 {
        let (mut pair, statuses) = run(seed, MILLISECOND);
        let all = statuses.iter().all(|(_, status)| *status == Status::Success);
        assert!(all, "seed {seed}: {statuses:?}");
        // The keepalive goes on.
        jump(&mut pair, MILLISECOND);
        pair.run_for(Duration::from_secs(1));
        assert!(pair.hosts.iter().all(|host| host.qp.fault().is_none()), "seed {seed}");
    }
}

/// A pacer waits until the clock is where it was, for longer than the retries last.
#[test]
fn requests_end_if_the_clock_goes_back_by_hours() {
    for seed in 0..100 {
        let (_, statuses) = run(seed, 3 * HOUR);
        let ended =
            |status| matches!(status, Status::Success | Status::RetryExceeded | Status::Flushed);
        assert!(statuses.iter().all(|&(_, status)| ended(status)), "seed {seed}: {statuses:?}");
    }
}
