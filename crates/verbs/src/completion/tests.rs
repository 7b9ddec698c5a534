use std::sync::{Arc, Weak};

use ferroce_proto::work::{Completion, CompletionKind, Status, WorkId};
use ferroce_wire::number::Qpn;

use super::{Channel, CompletionChannel, Queue, WorkCompletion};
use crate::event::Events;

/// A queue of this channel, with an event that nobody has taken.
fn raised(channel: &CompletionChannel) -> Arc<Queue> {
    let events = Arc::new(Events::new().unwrap());
    let queue = Arc::new(Queue::new(4, Some(Arc::clone(&channel.channel)), events));
    queue.ring.arm(false);
    let completion = Completion::new(WorkId(1), CompletionKind::Send, Status::Success);
    queue.push(WorkCompletion { queue_pair: Qpn(17), time: 0, completion }).unwrap();
    queue
}

#[test]
fn an_event_that_nobody_takes_keeps_neither_queue_nor_channel() {
    let channel = CompletionChannel::new().unwrap();
    let kept: Weak<Channel> = Arc::downgrade(&channel.channel);
    let queue = raised(&channel);
    let gone = Arc::downgrade(&queue);
    drop(queue);
    assert!(gone.upgrade().is_none(), "the queue is there although nobody has it");
    drop(channel);
    assert!(kept.upgrade().is_none(), "the channel is there although nobody has it");
}

#[test]
fn events_go_with_their_queue_and_with_no_other() {
    let channel = CompletionChannel::new().unwrap();
    let (first, second, third) = (raised(&channel), raised(&channel), raised(&channel));
    drop(second);
    assert_eq!(channel.take().unwrap(), Some(first.id));
    drop(first);
    assert_eq!(channel.take().unwrap(), Some(third.id));
    assert_eq!(channel.take().unwrap(), None);
    // The descriptor counts what waits: with nothing left, it says so.
    assert!(channel.channel.wait(Some(0)).unwrap().is_none());
}

/// A program that waits for events arms the queue and looks once more. Taken for one that polls without a pause, it would
/// not be woken for up to half a millisecond.
#[test]
fn who_looks_once_more_before_it_sleeps_does_not_poll() {
    let device = crate::Device::named("lo").unwrap();
    let context = crate::Context::open(&device, &crate::Options::default()).unwrap();
    let channel = CompletionChannel::new().unwrap();
    let queue = context.completion_queue(4, Some(&channel)).unwrap();
    queue.arm(false);
    for _ in 0..100 {
        assert_eq!(queue.poll_one(), None);
        assert!(!context.adapter().thread.is_polled());
    }
}
