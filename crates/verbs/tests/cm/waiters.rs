//! Threads that wait on one channel, each for events of its own; deadlines; and a listener that a client waits for.

use std::time::{Duration, Instant};

use ferroce::cm::{CmId, ConnectParameters, DisconnectCause, Error, EventKind, PortSpace};

use crate::ends::*;

/// On a busy host.
fn soon() -> Instant {
    Instant::now() + Duration::from_secs(60)
}

/// A thread accepts connections, and each accepted connection has a thread that waits for its end, all on one channel.
#[test]
fn threads_on_one_channel_do_not_take_each_others_events() {
    const CONNECTIONS: usize = 20;
    let (passive, active) = (channel(), channel());
    let (_listener, address) = listener(&passive, PortSpace::Tcp, V4, CONNECTIONS);
    std::thread::scope(|scope| {
        let acceptor = scope.spawn(|| {
            std::thread::scope(|connections| {
                for _ in 0..CONNECTIONS {
                    let request = passive.wait_request(soon()).unwrap();
                    connections.spawn(move || {
                        let _end = equip(&request.id);
                        request.id.accept(&ConnectParameters::default()).unwrap();
                        let ended = request.id.wait_disconnected(soon()).unwrap();
                        assert_eq!(ended, DisconnectCause::Peer);
                    });
                }
            });
        });
        for _ in 0..CONNECTIONS {
            let id = CmId::resolve(&active, PortSpace::Tcp, address, SECOND).unwrap();
            let _end = equip(&id);
            id.connect_blocking(&ConnectParameters::default(), soon()).unwrap();
            id.disconnect().unwrap();
            assert_eq!(id.wait_disconnected(soon()).unwrap(), DisconnectCause::Local);
        }
        acceptor.join().unwrap();
    });
}

#[test]
fn waits_end_at_their_deadlines() {
    let (passive, active) = (channel(), channel());
    let (listener, address) = listener(&passive, PortSpace::Tcp, V4, 1);
    assert!(matches!(passive.wait_request(Instant::now()), Err(Error::TimedOut)));
    let id = CmId::resolve(&active, PortSpace::Tcp, address, SECOND).unwrap();
    let _end = equip(&id);
    // Nobody answers the request.
    let refused = id.connect_blocking(&ConnectParameters::default(), Instant::now());
    assert!(matches!(refused, Err(Error::TimedOut)), "{refused:?}");
    let request = passive.wait_request(soon()).unwrap();
    let _other = equip(&request.id);
    // The attempt goes on.
    request.id.accept(&ConnectParameters::default()).unwrap();
    expect!(active, id, EventKind::Established(_));
    expect!(passive, request.id, EventKind::Established(_));
    assert!(matches!(id.wait_disconnected(Instant::now()), Err(Error::TimedOut)));
    // An event that nobody waits for stays, and the descriptor stays readable.
    let second = CmId::resolve(&active, PortSpace::Tcp, address, SECOND).unwrap();
    let _third = equip(&second);
    second.connect(&ConnectParameters::default()).unwrap();
    let mut poller = ferroce_sys::Poller::new();
    poller.watch(&passive, ferroce_sys::Interest::Read);
    assert_eq!(poller.wait(Some(ferroce_sys::clock::now() + 20_000_000_000)).unwrap(), 1);
    assert!(matches!(request.id.wait_disconnected(Instant::now()), Err(Error::TimedOut)));
    assert_eq!(poller.wait(Some(0)).unwrap(), 1);
    expect!(passive, listener, EventKind::ConnectRequest(_));
}

/// A program closes a listener and opens the next one, while its peer connects already.
#[test]
fn a_listener_may_be_a_little_late() {
    const LATEST: Duration = Duration::from_millis(100);
    let (passive, active) = (channel(), channel());
    let (first, address) = listener(&passive, PortSpace::Tcp, V4, 1);
    let mut first = Some(first);
    for _ in 0..50 {
        let id = CmId::resolve(&active, PortSpace::Tcp, address, SECOND).unwrap();
        let _end = equip(&id);
        drop(first.take());
        let start = Instant::now();
        id.connect(&ConnectParameters::default()).unwrap();
        let late = CmId::new(&passive, PortSpace::Tcp).unwrap();
        late.bind(address).unwrap();
        late.listen(1).unwrap();
        let took = start.elapsed();
        let request = loop {
            let next = Instant::now() + Duration::from_millis(10);
            match passive.wait_request(next) {
                Ok(request) => break Some(request),
                Err(error) => assert!(matches!(error, Error::TimedOut), "{error:?}"),
            }
            if let Some(event) = active.try_event().unwrap() {
                assert!(matches!(event.kind, EventKind::Rejected { .. }), "{event:?}");
                break None;
            }
        };
        let Some(request) = request else {
            // This process had to wait for the processor.
            assert!(took >= LATEST, "the listener was there after {took:?}");
            first = Some(late);
            continue;
        };
        let _other = equip(&request.id);
        request.id.accept(&ConnectParameters::default()).unwrap();
        expect!(active, id, EventKind::Established(_));
        return;
    }
    panic!("each time, it took longer than {LATEST:?} to listen");
}
