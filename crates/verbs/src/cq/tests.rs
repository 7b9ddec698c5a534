use std::sync::Arc;

use ferroce_proto::work::{Completion, CompletionKind, Status, WorkId};
use ferroce_wire::number::Qpn;

use super::channel::ShardSet;
use super::{CompletionChannel, Queue, WorkCompletion};
use crate::device::Device;
use crate::engine::Counters;
use crate::event::Events;

/// A CQ of this channel with a pending event.
fn raised(channel: &CompletionChannel) -> Arc<Queue> {
    let events = Arc::new(Events::new().unwrap());
    let device = Counters::of(&Device::named("lo").unwrap(), true, 1);
    let queue = Arc::new(Queue::new(4, Some(channel.clone()), events, &device));
    queue.arm(false);
    let completion = Completion::new(WorkId(1), CompletionKind::Send, Status::Success);
    queue
        .push(WorkCompletion {
            queue_pair: Qpn(17),
            time: crate::time::Timestamp::default(),
            completion,
        })
        .unwrap();
    queue
}

#[test]
fn a_pending_event_keeps_neither_queue_nor_channel_alive() {
    let channel = CompletionChannel::new().unwrap();
    let weak_channel = Arc::downgrade(&channel.0);
    let queue = raised(&channel);
    let weak_queue = Arc::downgrade(&queue);
    drop(queue);
    assert!(weak_queue.upgrade().is_none(), "the queue was not dropped");
    drop(channel);
    assert!(weak_channel.upgrade().is_none(), "the channel was not dropped");
}

#[test]
fn dropping_a_queue_removes_its_events_only() {
    let channel = CompletionChannel::new().unwrap();
    let (first, second, third) = (raised(&channel), raised(&channel), raised(&channel));
    drop(second);
    assert_eq!(channel.try_event().unwrap(), Some(first.id));
    drop(first);
    assert_eq!(channel.try_event().unwrap(), Some(third.id));
    assert_eq!(channel.try_event().unwrap(), None);
    // The descriptor counts the pending events.
    assert!(channel.wait_with(None, Some(std::time::Instant::now())).unwrap().is_none());
}

/// A program that waits arms the queue and polls once more. Treated as a program that polls continuously, it would not be
/// woken for up to 0.5 ms.
#[test]
fn polling_an_armed_queue_does_not_count_as_polling() {
    let device = crate::Device::named("lo").unwrap();
    let context = crate::Context::open(&device, &crate::Options::default()).unwrap();
    let channel = CompletionChannel::new().unwrap();
    let queue = context.completion_queue(4, Some(&channel)).unwrap();
    queue.arm(false);
    for _ in 0..100 {
        assert_eq!(queue.poll_one(), None);
        assert!(!context.adapter().signals.is_polled());
    }
}

#[test]
fn a_set_lists_its_shards_in_order() {
    let set = ShardSet::default();
    assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (None, vec![0]));
    set.add(5);
    set.add(2);
    assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (Some(2), vec![2, 5]));
}
