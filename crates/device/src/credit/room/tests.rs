use core::time::Duration;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::testing::queue_pairs;

const QUEUE_PAIRS: usize = 5;
const QUEUES: u64 = 2;

#[derive(Clone, Copy, Debug)]
enum Step {
    Wait(usize, u64),
    Resume(u64, usize),
    Leave(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (index, queue) = (0..QUEUE_PAIRS, 1..=QUEUES);
    let step = prop_oneof![
        6 => (index.clone(), queue.clone()).prop_map(|(index, queue)| Step::Wait(index, queue)),
        3 => (queue, 0..4_usize).prop_map(|(queue, most)| Step::Resume(queue, most)),
        1 => index.prop_map(Step::Leave),
    ];
    prop::collection::vec(step, 1..100)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    /// Each waits for one transmit queue at a time, once, and is resumed in FIFO order.
    #[test]
    fn waiting_queue_pairs_are_resumed_in_order(steps in steps()) {
        let all = queue_pairs(QUEUE_PAIRS);
        let (mut room, mut schedule) = (Room::default(), Schedule::default());
        let mut waiting = Vec::<(usize, u64)>::new();
        let end = (1..=QUEUES).map(|queue| Step::Resume(queue, usize::MAX));
        for step in steps.into_iter().chain(end) {
            match step {
                Step::Wait(index, queue) => {
                    room.wait(&all[index], queue);
                    if !waiting.contains(&(index, queue)) {
                        waiting.retain(|&(one, _)| one != index);
                        waiting.push((index, queue));
                    }
                }
                Step::Resume(queue, most) => {
                    let here = waiting.iter().filter(|&&(_, awaited)| awaited == queue);
                    let resumed: Vec<_> = here.take(most).map(|&(index, _)| index).collect();
                    waiting.retain(|(index, _)| !resumed.contains(index));
                    let left = waiting.iter().any(|&(_, awaited)| awaited == queue);
                    prop_assert_eq!(room.resume(queue, most, &mut schedule), left);
                    let popped = std::iter::from_fn(|| schedule.pop());
                    let popped: Vec<_> = popped.map(|one| one.number().0 as usize).collect();
                    prop_assert_eq!(popped, resumed);
                }
                Step::Leave(index) => {
                    room.leave(&all[index]);
                    waiting.retain(|&(one, _)| one != index);
                }
            }
            prop_assert_eq!(room.waiting(), waiting.len());
        }
        prop_assert_eq!(room.waiting(), 0);
    }
}

#[test]
fn datagrams_are_dropped_when_there_was_no_room_for_a_while() {
    let mut room = Room::<std::rc::Rc<crate::testing::QueuePair>>::default();
    let start = Instant::from_nanos(7);
    let nearly = start + (PATIENCE - Duration::from_nanos(1));
    assert!(!room.is_stalled(1, start) && !room.is_stalled(1, nearly));
    assert!(room.is_stalled(1, start + PATIENCE) && !room.is_stalled(2, start + PATIENCE));
    room.found(1);
    assert!(!room.is_stalled(1, start + PATIENCE));
    room.resume(1, 1, &mut Schedule::default());
    assert!(!room.is_stalled(1, start + PATIENCE + PATIENCE), "it had room in between");
}
