//! Events, deadlines and the clock.

use super::{is_readable, open, send};
use crate::{Event, Interest, Poller, Readiness, ReceiveBatch, Service, Slot, Socket, clock};

#[test]
fn types_can_be_shared_between_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<(Socket, Slot, Service, ReceiveBatch, Event, Poller)>();
}

#[test]
fn an_event_wakes_another_thread() {
    let event = Event::new().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| event.signal().unwrap());
        let mut poller = Poller::new();
        let index = poller.watch(&event, Interest::Read);
        assert_eq!(poller.wait(None).unwrap(), 1);
        assert!(poller.readiness(index).readable);
    });
    event.signal().unwrap();
    assert_eq!(event.take().unwrap(), 2);
    assert_eq!(event.take().unwrap(), 0);
    assert!(!is_readable(&event, 0));
}

#[test]
fn a_counting_event_is_taken_once_per_signal() {
    let event = Event::counting().unwrap();
    event.signal().unwrap();
    event.signal().unwrap();
    assert_eq!([(); 3].map(|()| event.take().unwrap()), [1, 1, 0]);
}

#[test]
fn a_wait_ends_at_its_deadline_and_not_before() {
    let event = Event::new().unwrap();
    let deadline = clock::now() + 2_000_000;
    assert!(!is_readable(&event, deadline));
    assert!(clock::now() >= deadline);
    // A deadline in the past does not wait.
    assert!(!is_readable(&event, 0));
}

#[test]
fn waits_for_several_descriptors() {
    let (first, second, event) = (open("127.9.3.1"), open("127.9.3.1"), Event::new().unwrap());
    let mut poller = Poller::new();
    let indices = [&first, &second].map(|socket| poller.watch(socket, Interest::Read));
    let woken = poller.watch(&event, Interest::Read);
    send(&first, second.local(), b"x");
    assert_eq!(poller.wait(None).unwrap(), 1);
    let readable = Readiness { readable: true, ..Readiness::default() };
    assert_eq!(indices.map(|index| poller.readiness(index)), [Readiness::default(), readable]);
    event.signal().unwrap();
    poller.set(indices[0], Interest::Both);
    poller.set(indices[1], Interest::Nothing);
    assert_eq!(poller.wait(None).unwrap(), 2);
    assert!(poller.readiness(indices[0]).writable && poller.readiness(woken).readable);
    assert_eq!(poller.readiness(indices[1]), Readiness::default());
    assert_eq!(poller.readiness(99), Readiness::default());
    poller.clear();
    assert_eq!(poller.wait(Some(0)).unwrap(), 0);
}
