use std::collections::VecDeque;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::testing::queue_pairs;

const QUEUE_PAIRS: usize = 5;

#[derive(Clone, Copy, Debug)]
enum Step {
    Push(usize),
    PushFront(usize),
    /// Another thread queues the QP.
    Post(usize),
    Received(usize, Pending),
    ReleaseOwed,
    Pop,
    SetTimer(usize, u64),
    /// The clock advances by this much, and timers run.
    Expire(u64),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let index = 0..QUEUE_PAIRS;
    let pending = prop_oneof![Just(Pending::Nothing), Just(Pending::Ack), Just(Pending::Urgent)];
    let step = prop_oneof![
        4 => index.clone().prop_map(Step::Push),
        1 => index.clone().prop_map(Step::PushFront),
        2 => index.clone().prop_map(Step::Post),
        4 => (index.clone(), pending).prop_map(|(index, pending)| Step::Received(index, pending)),
        1 => Just(Step::ReleaseOwed),
        6 => Just(Step::Pop),
        4 => (index, 0..50_u64).prop_map(|(index, time)| Step::SetTimer(index, time)),
        2 => (0..20_u64).prop_map(Step::Expire),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Each QP is queued once, in the order of the calls; each timer expires once, at the earliest time that was set.
    #[test]
    fn queue_pairs_and_timers_come_out_in_order(steps in steps()) {
        let all = queue_pairs(QUEUE_PAIRS);
        let mut members: [Membership; QUEUE_PAIRS] = Default::default();
        let mut schedule = Schedule::default();
        let (mut ready, mut owed) = (VecDeque::new(), Vec::new());
        let mut timers = [None::<u64>; QUEUE_PAIRS];
        let mut now = 0;
        let push = |ready: &mut VecDeque<usize>, index: usize| {
            let new = !ready.contains(&index);
            new.then(|| ready.push_back(index)).is_some()
        };
        for step in steps {
            match step {
                Step::Push(index) => {
                    schedule.push(all[index].clone());
                    push(&mut ready, index);
                }
                Step::PushFront(index) => {
                    schedule.push_front(all[index].clone());
                    if !ready.contains(&index) {
                        ready.push_front(index);
                    }
                }
                Step::Post(index) => {
                    let posted = PostedQueue::default();
                    posted.push(&all[index], all[index].marks().queued());
                    prop_assert_eq!(posted.has_some(), push(&mut ready, index));
                    schedule.take_posted(&posted);
                }
                Step::Received(index, pending) => {
                    schedule.received(&all[index], pending);
                    match pending {
                        Pending::Nothing => {}
                        Pending::Ack if owed.contains(&index) => {}
                        Pending::Ack => owed.push(index),
                        Pending::Urgent => {
                            push(&mut ready, index);
                        }
                    }
                }
                Step::ReleaseOwed => {
                    schedule.release_owed();
                    owed.drain(..).for_each(|index| { push(&mut ready, index); });
                }
                Step::Pop => {
                    let popped = schedule.pop().map(|queue_pair| queue_pair.number().0 as usize);
                    prop_assert_eq!(popped, ready.pop_front());
                }
                Step::SetTimer(index, time) => {
                    let time = now + time;
                    let at = Instant::from_nanos(time);
                    schedule.set_timer(&all[index], &mut members[index], Some(at));
                    timers[index] = Some(timers[index].map_or(time, |standing| standing.min(time)));
                    prop_assert!(members[index].is_armed(at));
                }
                Step::Expire(elapsed) => {
                    now += elapsed;
                    while let Some((time, number)) = schedule.pop_timer(Instant::from_nanos(now)) {
                        let index = number.0 as usize;
                        if members[index].take_timer(time) {
                            prop_assert_eq!(timers[index].take(), Some(time.as_nanos()));
                        }
                    }
                    prop_assert!(timers.iter().flatten().all(|&time| time > now), "{timers:?} at {now}");
                }
            }
            schedule.check_invariants();
            prop_assert_eq!(schedule.has_ready(), !ready.is_empty());
            prop_assert_eq!(schedule.owes_acks(), !owed.is_empty());
        }
    }
}
