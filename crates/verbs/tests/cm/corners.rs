//! Concurrent connections, calls in the wrong state, and cm_ids that are dropped early.

use std::net::{Ipv6Addr, SocketAddr};

use crate::ends::*;
use ferroce::cm::{CmId, ConnectParameters, EventKind, PortSpace, RejectReason, SidrStatus};
use ferroce::*;

/// Each thread has its own cm_ids and channel; the thread of the listener polls meanwhile.
#[test]
fn many_threads_connect_at_once() {
    const THREADS: usize = 4;
    const CONNECTIONS_EACH: usize = 10;
    let there = channel();
    let (_listener, address) = listener(&there, PortSpace::Tcp, V4, 0);
    std::thread::scope(|scope| {
        for thread in 0..THREADS {
            scope.spawn(move || {
                let here = channel();
                for round in 0..CONNECTIONS_EACH {
                    let client = resolved(&here, PortSpace::Tcp, address);
                    let end = equip(&client);
                    end.receive(1024, 1024);
                    client.connect(&with_data(&[thread as u8, round as u8])).unwrap();
                    let up = expect!(here, client, EventKind::Established(up) => up);
                    assert_eq!(up.private_data[..2], [thread as u8, round as u8]);
                    assert_eq!(end.done().id, WorkId(7));
                    end.holds(1024, &[thread as u8, round as u8]);
                    client.disconnect().unwrap();
                    expect!(here, client, EventKind::Disconnected(_));
                }
            });
        }
        let mut servers = Vec::new();
        let mut over = 0;
        while over < THREADS * CONNECTIONS_EACH {
            let event = next(&there);
            match event.kind {
                EventKind::ConnectRequest(asked) => {
                    let end = equip(&asked.id);
                    asked.id.accept(&with_data(&asked.private_data[..2])).unwrap();
                    servers.push((asked.id, end, asked.private_data));
                }
                EventKind::Established(_) => {
                    let server = servers.iter().find(|(id, ..)| id.name() == event.id).unwrap();
                    server.1.send(&server.2[..2]);
                }
                EventKind::Disconnected(_) => over += 1,
                EventKind::TimewaitExit => {}
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn calls_in_the_wrong_state_are_refused() {
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    let client = CmId::new(&channel, PortSpace::Tcp).unwrap();
    assert!(client.resolve_route(SECOND).is_err());
    assert!(client.connect(&ConnectParameters::default()).is_err());
    assert!(client.accept(&ConnectParameters::default()).is_err());
    assert!(client.reject(&[]).is_err());
    assert!(client.disconnect().is_err());
    client.resolve_address(None, address, SECOND).unwrap();
    expect!(channel, client, EventKind::AddressResolved);
    assert!(client.resolve_address(None, address, SECOND).is_err());
    assert!(client.bind(SocketAddr::new(V4, 0)).is_err());
    assert!(client.listen(1).is_err());
    client.resolve_route(SECOND).unwrap();
    expect!(channel, client, EventKind::RouteResolved);
    // No queue pair.
    assert!(client.connect(&ConnectParameters::default()).is_err());
    let _end = equip(&client);
    assert!(client.connect(&with_data(&[1; 57])).is_err());
    client.connect(&with_data(&[1; 56])).unwrap();
    assert!(client.connect(&ConnectParameters::default()).is_err());
    let asked = request(&channel, &listener);
    assert_eq!(asked.private_data, [1; 56]);
    assert!(asked.id.accept(&ConnectParameters::default()).is_err());
    let _other = equip(&asked.id);
    assert!(asked.id.accept(&with_data(&[2; 197])).is_err());
    asked.id.accept(&with_data(&[2; 196])).unwrap();
    assert!(asked.id.accept(&ConnectParameters::default()).is_err());
    assert!(asked.id.reject(&[]).is_err());
}

#[test]
fn a_port_has_one_owner() {
    let channel = channel();
    let (first, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    let second = CmId::new(&channel, PortSpace::Tcp).unwrap();
    let error = second.bind(address).unwrap_err();
    assert_eq!(error.errno(), ferroce_sys::errno::EADDRINUSE);
    // The port spaces are separate.
    let datagrams = CmId::new(&channel, PortSpace::Udp).unwrap();
    datagrams.bind(address).unwrap();
    drop(first);
    second.bind(address).unwrap();
    second.listen(1).unwrap();
    let foreign = CmId::new(&channel, PortSpace::Tcp).unwrap();
    let error = foreign.bind("192.0.2.77:0".parse().unwrap()).unwrap_err();
    assert_eq!(error.errno(), ferroce_sys::errno::EADDRNOTAVAIL);
}

#[test]
fn a_listener_on_the_unspecified_address_accepts_all() {
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, Ipv6Addr::UNSPECIFIED.into(), 0);
    for ip in [V4, V6] {
        let client = resolved(&channel, PortSpace::Tcp, SocketAddr::new(ip, address.port()));
        let _end = equip(&client);
        client.connect(&ConnectParameters::default()).unwrap();
        let asked = request(&channel, &listener);
        assert_eq!(asked.id.local_address(), Some(SocketAddr::new(ip, address.port())));
        asked.id.reject(&[]).unwrap();
        expect!(channel, client, EventKind::Rejected { .. });
    }
}

#[test]
fn requests_beyond_the_backlog_are_repeated() {
    let (here, there) = (channel(), channel());
    let (listener, address) = listener(&there, PortSpace::Tcp, V4, 1);
    let wish = ConnectParameters { max_retries: 15, ..short_timeouts() };
    let clients: Vec<_> = (0..2)
        .map(|_| {
            let client = resolved(&here, PortSpace::Tcp, address);
            let end = equip(&client);
            client.connect(&wish).unwrap();
            (client, end)
        })
        .collect();
    let first = request(&there, &listener);
    assert!(there.try_event().unwrap().is_none());
    let (mut ends, mut up) = (Vec::new(), 0);
    let mut accept = |id: CmId| {
        let end = equip(&id);
        id.accept(&wish).unwrap();
        ends.push((id, end));
    };
    accept(first.id);
    while up < 2 {
        match next(&there).kind {
            EventKind::ConnectRequest(second) => accept(second.id),
            EventKind::Established(_) => up += 1,
            other => panic!("{other:?}"),
        }
    }
    for _ in 0..2 {
        let event = next(&here);
        assert!(matches!(event.kind, EventKind::Established(_)), "{event:?}");
    }
    assert!(clients.iter().all(|(id, _)| id.is_connected()));
    assert!(ends.iter().all(|(id, _)| id.is_connected()));
}

#[test]
fn a_cm_id_may_be_dropped_at_any_time() {
    let (here, there) = (channel(), channel());
    let (listener, address) = listener(&there, PortSpace::Tcp, V4, 0);
    let wish = ConnectParameters { ack_timeout: AckTimeout(8), ..ConnectParameters::default() };
    let start = || {
        let client = resolved(&here, PortSpace::Tcp, address);
        let end = equip(&client);
        client.connect(&wish).unwrap();
        (client, end)
    };
    // The server's cm_id, with a pending request.
    let (client, _end) = start();
    drop(request(&there, &listener));
    let reason = expect!(here, client, EventKind::Rejected { reason, .. } => reason);
    assert_eq!(reason, RejectReason::CONSUMER_REJECT);
    // The client, before the response.
    let (client, end) = start();
    let asked = request(&there, &listener);
    drop(client);
    expect!(there, asked.id, EventKind::Rejected { .. });
    assert_eq!(end.queue_pair.state(), State::Error);
    // Either side, connected.
    for by_client in [true, false] {
        let (client, _end) = start();
        let asked = request(&there, &listener);
        let _other = equip(&asked.id);
        asked.id.accept(&ConnectParameters::default()).unwrap();
        expect!(here, client, EventKind::Established(_));
        expect!(there, asked.id, EventKind::Established(_));
        if by_client {
            drop(client);
            expect!(there, asked.id, EventKind::Disconnected(_));
        } else {
            drop(asked);
            expect!(here, client, EventKind::Disconnected(_));
        }
    }
    // The listener, with an unread request.
    let (client, _end) = start();
    let mut poller = ferroce_sys::Poller::new();
    poller.watch(&there, ferroce_sys::Interest::Read);
    assert_eq!(poller.wait(None).unwrap(), 1);
    drop(listener);
    let reason = expect!(here, client, EventKind::Rejected { reason, .. } => reason);
    assert_eq!(reason, RejectReason::CONSUMER_REJECT);
    assert!(there.try_event().unwrap().is_none());
    // It is removed.
    let (client, _end) = start();
    let reason = expect!(here, client, EventKind::Rejected { reason, .. } => reason);
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
}

/// An end with a QP that the cm_id did not create.
fn own(id: &CmId) -> End {
    let context = id.context().unwrap();
    let pd = context.protection_domain();
    let events = CompletionChannel::new().unwrap();
    let completions = context.completion_queue(64, Some(&events)).unwrap();
    let options = QueuePairOptions::new(ServiceType::ReliableConnection, &completions);
    let queue_pair = pd.queue_pair(&options).unwrap();
    queue_pair.modify(&id.attributes(State::Init).unwrap()).unwrap();
    let region = pd.allocate(1 << 16, ACCESS).unwrap();
    End { queue_pair, completions, region, pd }
}

fn bring_up(id: &CmId, end: &End) {
    for state in [State::ReadyToReceive, State::ReadyToSend] {
        end.queue_pair.modify(&id.attributes(state).unwrap()).unwrap();
    }
}

fn of(end: &End) -> ConnectParameters {
    ConnectParameters { queue_pair: Some(end.queue_pair.number()), ..ConnectParameters::default() }
}

#[test]
fn a_queue_pair_created_by_the_program_can_be_connected() {
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    let client = resolved(&channel, PortSpace::Tcp, address);
    let end = own(&client);
    end.receive(1024, 1024);
    client.connect(&of(&end)).unwrap();
    let asked = request(&channel, &listener);
    let other = own(&asked.id);
    other.receive(1024, 1024);
    bring_up(&asked.id, &other);
    asked.id.accept(&of(&other)).unwrap();
    expect!(channel, client, EventKind::ConnectResponse(_));
    bring_up(&client, &end);
    client.establish().unwrap();
    expect!(channel, asked.id, EventKind::Established(_));
    assert!(asked.id.notify_established().is_err());
    data_both_ways(&end, &other);
}

#[test]
fn data_before_the_rtu_establishes_the_connection() {
    let channel = channel();
    let (listener, address) = listener(&channel, PortSpace::Tcp, V4, 0);
    let client = resolved(&channel, PortSpace::Tcp, address);
    let end = own(&client);
    client.connect(&of(&end)).unwrap();
    let asked = request(&channel, &listener);
    let other = equip(&asked.id);
    other.receive(1024, 1024);
    asked.id.accept(&ConnectParameters::default()).unwrap();
    expect!(channel, client, EventKind::ConnectResponse(_));
    bring_up(&client, &end);
    end.send(b"early");
    other.done();
    asked.id.notify_established().unwrap();
    expect!(channel, asked.id, EventKind::Established(_));
    client.establish().unwrap();
    asked.id.disconnect().unwrap();
    for _ in 0..2 {
        assert!(matches!(next(&channel).kind, EventKind::Disconnected(_)));
    }
}

/// A host where no process has a device open responds with ICMP: the connection is rejected at once, instead of after 90 s.
#[test]
fn a_host_without_any_process_rejects() {
    let channel = channel();
    let nobody = SocketAddr::from(([127, 9, 9, 9], 7471));
    let client = resolved(&channel, PortSpace::Tcp, nobody);
    let end = equip(&client);
    client.connect(&ConnectParameters::default()).unwrap();
    let reason = expect!(channel, client, EventKind::Rejected { reason, .. } => reason);
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
    drop(end);
    let client = resolved(&channel, PortSpace::Udp, nobody);
    client.connect(&ConnectParameters::default()).unwrap();
    expect!(channel, client, EventKind::Unreachable(Some(SidrStatus::UNSUPPORTED_SERVICE)));
}
