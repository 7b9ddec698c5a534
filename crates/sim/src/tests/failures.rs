//! Partitions, pauses, crashes and restarts.

use std::time::Duration;

use ferroce_proto::time::Instant;

use super::toys::{NOT_ECT, RECEIVER, SENDER, Station, StopAndWait, at, exchange, pair, v4};
use crate::{
    Bandwidth, Crash, Directions, DropCause, Fabric, FaultPlan, HostId, LinkConfig, Outcome,
    Partition, Pause, Settings, WhilePaused,
};

/// One frame every microsecond; the first reaches the switch at 1 µs and the receiver at 2 µs.
fn steady(faults: FaultPlan) -> Settings {
    let link = LinkConfig { latency: Duration::from_micros(1), ..LinkConfig::default() };
    // A frame of 158 bytes takes 1 µs.
    let bandwidth = Bandwidth(158 * 8 * 1_000_000);
    let uplink = LinkConfig { bandwidth, overhead: 0, latency: Duration::ZERO, ..link.clone() };
    Settings { uplink, downlink: link, faults, ..Settings::default() }
}

fn micros(count: u64) -> Instant {
    at(count * 1_000)
}

fn partition(one: &[u32], other: Option<&[u32]>, directions: Directions) -> FaultPlan {
    let hosts = |numbers: &[u32]| numbers.iter().copied().map(HostId).collect();
    let partition = Partition {
        from: micros(3),
        until: micros(6),
        side_a: hosts(one),
        side_b: other.map(hosts),
        directions,
    };
    FaultPlan { partitions: vec![partition], ..FaultPlan::default() }
}

#[test]
fn a_partition_drops_frames_until_it_heals() {
    for (plan, cut) in [
        (partition(&[0], None, Directions::Both), true),
        (partition(&[1], None, Directions::Both), true),
        (partition(&[0], Some(&[1]), Directions::Both), true),
        (partition(&[1], Some(&[0]), Directions::AToB), true),
        (partition(&[0], None, Directions::BToA), true),
        (partition(&[0], None, Directions::AToB), false),
        (partition(&[1], None, Directions::BToA), false),
        (partition(&[0, 1], None, Directions::Both), false),
        (partition(&[0], Some(&[5, u32::MAX]), Directions::Both), false),
        (partition(&[], None, Directions::Both), false),
    ] {
        let mut fabric = pair(1, steady(plan.clone()), NOT_ECT, 8);
        assert_eq!(fabric.run(), Outcome::Idle);
        let received = fabric.host(RECEIVER).unwrap().numbers();
        // Frames 2, 3 and 4 are at the switch at 3, 4 and 5 µs.
        let expected: &[u32] = if cut { &[0, 1, 5, 6, 7] } else { &[0, 1, 2, 3, 4, 5, 6, 7] };
        assert_eq!(received, expected, "{plan:?}");
        assert_eq!(fabric.totals().dropped.of(DropCause::Partition), if cut { 3 } else { 0 });
    }
}

fn pause(host: HostId, from: u64, until: u64, arriving: WhilePaused) -> FaultPlan {
    let pause = Pause { host, from: micros(from), until: micros(until), arriving };
    FaultPlan { pauses: vec![pause], ..FaultPlan::default() }
}

#[test]
fn a_paused_receiver_handles_queued_frames_later() {
    let mut fabric = pair(1, steady(pause(RECEIVER, 3, 6, WhilePaused::Wait)), NOT_ECT, 6);
    fabric.with_host(RECEIVER, |host, _| host.wake_at = Some(micros(4))).unwrap();
    assert_eq!(fabric.run_to(micros(5)), Outcome::TimeReached);
    // All six were sent, and one was delivered.
    assert_eq!(fabric.totals().in_flight, 5);
    assert!(fabric.totals().are_conserved());
    assert_eq!(fabric.run(), Outcome::Idle);
    let receiver = fabric.host(RECEIVER).unwrap();
    let times: Vec<_> = receiver.received.iter().map(|(time, _)| *time).collect();
    // Frames 1, 2 and 3 were queued; the host is running again when the frame of 6 µs arrives.
    assert_eq!(times, [2, 6, 6, 6, 6, 7].map(micros));
    assert_eq!(receiver.numbers(), [0, 1, 2, 3, 4, 5]);
    assert_eq!(receiver.woken, [micros(6)]);
}

#[test]
fn a_paused_receiver_may_drop_frames() {
    let mut fabric = pair(1, steady(pause(RECEIVER, 3, 6, WhilePaused::Drop)), NOT_ECT, 6);
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(RECEIVER).unwrap().numbers(), [0, 4, 5]);
    assert_eq!(fabric.totals().dropped.of(DropCause::HostPaused), 3);
}

#[test]
fn a_paused_sender_sends_nothing() {
    let mut plan = pause(SENDER, 0, 9, WhilePaused::Wait);
    // Pauses may overlap, adjoin, be empty, and name a host that does not exist.
    for (host, from, until) in
        [(SENDER, 5, 12), (SENDER, 12, 20), (SENDER, 30, 30), (HostId(99), 1, 2)]
    {
        let arriving = WhilePaused::Drop;
        plan.pauses.push(Pause { host, from: micros(from), until: micros(until), arriving });
    }
    let mut fabric = pair(1, steady(plan), NOT_ECT, 1);
    assert_eq!(fabric.run(), Outcome::Idle);
    // A pause that begins when another ends leaves no gap.
    assert_eq!(fabric.host(RECEIVER).unwrap().received[0].0, micros(22));
}

#[test]
fn a_crashed_host_stays_down() {
    let crash = Crash { host: RECEIVER, at: micros(4), restart: None };
    let plan = FaultPlan { crashes: vec![crash], ..FaultPlan::default() };
    let mut fabric = pair(1, steady(plan), NOT_ECT, 6);
    fabric.with_host(RECEIVER, |host, _| host.wake_at = Some(micros(1000))).unwrap();
    assert_eq!(fabric.run(), Outcome::Idle);
    assert!(fabric.host(RECEIVER).is_none());
    assert_eq!(fabric.totals().delivered, 2);
    assert_eq!(fabric.totals().dropped.of(DropCause::HostDown), 4);
    // The deadline of a crashed host does not keep the run going.
    assert_eq!(fabric.now(), micros(7));
    assert_eq!(fabric.hosts().count(), 1);
    assert_eq!(fabric.with_host(RECEIVER, |_, _| ()), None);
}

#[test]
fn a_crash_during_a_pause_drops_queued_frames() {
    let mut plan = pause(RECEIVER, 1, 10, WhilePaused::Wait);
    plan.crashes.push(Crash { host: RECEIVER, at: micros(5), restart: Some(micros(8)) });
    let mut fabric = pair(1, steady(plan), NOT_ECT, 6);
    fabric.on_restart(|_, _| Station::default());
    assert_eq!(fabric.run(), Outcome::Idle);
    // The new host inherits the pause: it receives what arrives from 8 µs on, here nothing.
    assert_eq!(fabric.totals().dropped.of(DropCause::HostDown), 6);
    assert_eq!(fabric.host(RECEIVER).unwrap().received.len(), 0);
    assert!(fabric.totals().are_conserved());
}

#[test]
fn a_restarted_host_has_no_state() {
    let crash = Crash { host: RECEIVER, at: micros(3), restart: Some(micros(5)) };
    let plan = FaultPlan { crashes: vec![crash], ..FaultPlan::default() };
    let mut fabric = pair(1, steady(plan), NOT_ECT, 6);
    fabric.on_restart(|id, now| {
        assert_eq!((id, now), (RECEIVER, micros(5)));
        Station::sending(v4(0), v4(1), NOT_ECT, 1, 100)
    });
    assert_eq!(fabric.run(), Outcome::Idle);
    assert_eq!(fabric.host(RECEIVER).unwrap().numbers(), [3, 4, 5]);
    assert_eq!(
        fabric.host(SENDER).unwrap().received.len(),
        1,
        "the new host was polled for frames"
    );
    assert_eq!(fabric.host_statistics(RECEIVER).unwrap().restarts, 1);
    assert_eq!(fabric.totals().dropped.of(DropCause::HostDown), 2);
}

#[test]
fn hosts_can_be_paused_crashed_and_restarted_by_hand() {
    let mut fabric = pair(1, steady(FaultPlan::default()), NOT_ECT, 3);
    fabric.pause(RECEIVER, WhilePaused::Wait);
    assert_eq!(fabric.run(), Outcome::Idle);
    fabric.resume(RECEIVER, WhilePaused::Wait);
    assert_eq!(fabric.host(RECEIVER).unwrap().numbers(), [0, 1, 2]);
    let dead = fabric.crash(RECEIVER).unwrap();
    assert_eq!(dead.received.len(), 3);
    assert!(fabric.crash(RECEIVER).is_none());
    assert!(fabric.restart(RECEIVER, Station::default()).is_none());
    assert!(fabric.restart(RECEIVER, Station::default()).is_some());
    assert!(fabric.restart(HostId(9), Station::default()).is_none());
    fabric.pause(HostId(9), WhilePaused::Wait);
    fabric.resume(HostId(9), WhilePaused::Wait);
    fabric.resume(RECEIVER, WhilePaused::Drop);
}

/// A protocol that retransmits survives all temporary failures.
#[test]
fn retransmission_survives_temporary_failures() {
    let mut plan = partition(&[0], None, Directions::Both);
    plan.partitions[0].until = micros(2_000);
    plan.pauses = pause(SENDER, 2_500, 4_000, WhilePaused::Drop).pauses;
    let mut fabric: Fabric<StopAndWait> = Fabric::new(1, steady(plan));
    exchange(&mut fabric, 1, 2_000, v4);
    assert_eq!(fabric.run(), Outcome::Idle);
    let expected: Vec<u32> = (0..2_000u32).map(|number| number.wrapping_mul(77)).collect();
    for (_, host) in fabric.hosts() {
        assert!(host.is_done());
        assert_eq!(host.received, expected);
    }
    assert!(fabric.totals().dropped.of(DropCause::Partition) > 0);
    assert!(fabric.totals().dropped.of(DropCause::HostPaused) > 0);
}
