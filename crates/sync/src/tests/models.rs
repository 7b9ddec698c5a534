//! How a post finds its way to the wire: the posted queue, the mark, the ownership word and the wakeup of the device thread,
//! together as `verbs` uses them.

use std::collections::VecDeque;

use loom::sync::atomic::{AtomicBool, Ordering};
use loom::sync::{Arc, Mutex};
use loom::thread;

use crate::{Guard, Owned, PostedQueue, QueuedMark, Requests};

const TX: Requests = Requests::bit(3);

/// A queue pair. Loom checks the crate's own mutex by itself.
#[derive(Default)]
struct QueuePair {
    mark: QueuedMark,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    posted: u32,
    sent: u32,
    /// An ACK of the peer is on its way.
    unacknowledged: bool,
}

type Handle = Arc<QueuePair>;

/// What the owner of the device has.
type Ready = VecDeque<Handle>;

struct Device {
    driver: Owned<Ready>,
    posted: PostedQueue<Handle>,
    woken: AtomicBool,
}

impl Device {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            driver: Owned::new(Ready::new()),
            posted: PostedQueue::default(),
            woken: AtomicBool::new(false),
        })
    }

    /// Posts a request, and sends it or lets the owner do so. Returns how many are posted now.
    fn post(&self, queue_pair: &Handle) -> u32 {
        let mut state = queue_pair.state.lock().unwrap();
        state.posted += 1;
        let posted = state.posted;
        drop(state);
        if let Some(mut ready) = self.driver.try_own() {
            push(&mut ready, queue_pair);
            self.transmit(ready);
        } else {
            self.posted.push(queue_pair, &queue_pair.mark);
            if let Some(ready) = self.driver.own_or_request(TX) {
                self.transmit(ready);
            }
        }
        posted
    }

    /// Posts a request that may leave with later ones, if an ACK will come.
    fn post_and_hold(&self, queue_pair: &Handle) {
        let mut state = queue_pair.state.lock().unwrap();
        state.posted += 1;
        let held = state.unacknowledged;
        drop(state);
        if held {
            self.posted.push(queue_pair, &queue_pair.mark);
        } else if let Some(mut ready) = self.driver.own_or_request(TX) {
            push(&mut ready, queue_pair);
            self.transmit(ready);
        }
    }

    /// Transmits for a thread that posts: as often as others ask for it, but only twice, and leaves more to the device thread.
    fn transmit(&self, mut ready: Guard<'_, Ready>) {
        for _ in 0..2 {
            self.send_all(&mut ready);
            match ready.release() {
                Ok(()) => return,
                Err((next, _)) => ready = next,
            }
        }
        let _ = ready.give_up();
        self.woken.store(true, Ordering::Relaxed);
    }

    fn send_all(&self, ready: &mut Ready) {
        self.posted.move_to(ready);
        while let Some(queue_pair) = ready.pop_front() {
            queue_pair.mark.clear();
            let mut state = queue_pair.state.lock().unwrap();
            state.sent = state.posted;
        }
    }

    /// Makes a pass that receives the ACK of a queue pair.
    fn receive_ack(&self, queue_pair: &Handle) {
        let mut next = self.driver.own_or_request(TX);
        while let Some(mut ready) = next {
            let mut state = queue_pair.state.lock().unwrap();
            state.unacknowledged = false;
            let pending = state.posted > state.sent;
            drop(state);
            if pending {
                push(&mut ready, queue_pair);
            }
            self.send_all(&mut ready);
            next = ready.release().err().map(|(ready, _)| ready);
        }
    }

    /// Whether the first `count` requests were sent, or will be.
    fn serves(&self, queue_pair: &Handle, count: u32) -> bool {
        queue_pair.state.lock().unwrap().sent >= count || self.woken.load(Ordering::Relaxed)
    }
}

/// Queues a queue pair for the owner.
fn push(ready: &mut Ready, queue_pair: &Handle) {
    if queue_pair.mark.set() {
        ready.push_back(Arc::clone(queue_pair));
    }
}

/// Explores all interleavings with up to three preemptions.
pub(crate) fn explore(model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(model);
}

/// Two threads use one queue pair at the same time. The second one returns how many of its requests have to be sent then.
fn explore_two(
    unacknowledged: bool,
    one: fn(&Device, &Handle),
    other: fn(&Device, &Handle) -> u32,
) {
    explore(move || {
        let (device, queue_pair) = (Device::new(), Handle::default());
        queue_pair.state.lock().unwrap().unacknowledged = unacknowledged;
        let first = {
            let (device, queue_pair) = (Arc::clone(&device), Arc::clone(&queue_pair));
            thread::spawn(move || one(&device, &queue_pair))
        };
        let count = other(&device, &queue_pair);
        first.join().unwrap();
        assert!(device.serves(&queue_pair, count), "not sent");
    });
}

fn post(device: &Device, queue_pair: &Handle) {
    device.post(queue_pair);
}

/// Every request is sent by one of the threads, or the device thread is woken.
#[test]
fn a_posted_request_is_sent() {
    explore_two(false, post, |device, queue_pair| {
        device.post(queue_pair);
        2
    });
}

/// Three threads post to two queue pairs.
#[test]
fn every_posted_request_is_sent() {
    explore(|| {
        let (device, queue_pairs) = (Device::new(), [Handle::default(), Handle::default()]);
        let others = [0, 1].map(|index: usize| {
            let (device, queue_pair) = (Arc::clone(&device), Arc::clone(&queue_pairs[index]));
            thread::spawn(move || device.post(&queue_pair))
        });
        device.post(&queue_pairs[0]);
        others.into_iter().for_each(|other| _ = other.join().unwrap());
        assert!(device.serves(&queue_pairs[0], 2) && device.serves(&queue_pairs[1], 1), "not sent");
    });
}

/// A request is held back because an ACK will come, and that ACK comes now: the pass that handles it sends the request.
#[test]
fn a_held_request_is_sent() {
    explore_two(true, Device::post_and_hold, |device, queue_pair| {
        device.receive_ack(queue_pair);
        1
    });
}

/// One thread holds a request back, and another posts one that is to be sent now.
#[test]
fn a_request_beside_a_held_one_is_sent() {
    explore_two(true, Device::post_and_hold, Device::post);
}
