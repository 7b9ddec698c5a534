//! The server with handwritten requests.

use ferroce_wire::setup::{
    ConnectionConfirm, ConnectionReq, DeviceDiscoveryReq, MessageType, MrRegisterReq, Phase,
    QpCreateReq, Status,
};

use super::*;

const CLIENT_QP: u32 = 0x11;
const SERVER_QP: u32 = 0x22;

fn server() -> Server {
    Server::new(ServerConfig::new(device()))
}

fn discover() -> DeviceDiscoveryReq {
    DeviceDiscoveryReq::new(EXCHANGE, TransactionId(1))
}

fn create(qp_type: QpType) -> QpCreateReq {
    queue_pair(CLIENT_QP, qp_type).request(EXCHANGE, TransactionId(2))
}

fn register(transaction: u32) -> MrRegisterReq {
    region(transaction).request(EXCHANGE, TransactionId(transaction))
}

fn connect() -> ConnectionReq {
    let parameters = ConnectionParameters::default();
    ConnectionReq {
        client_qp: Qpn(CLIENT_QP),
        server_qp: Qpn(SERVER_QP),
        server_guid: device().guid,
        server_key: registered(3).remote_key,
        max_message_size: parameters.max_message_size,
        timeout: parameters.timeout,
        retry_count: parameters.retry_count,
        rnr_retry_count: parameters.rnr_retry_count,
        ..ConnectionReq::new(EXCHANGE, TransactionId(4))
    }
}

fn confirm(status: Status) -> ConnectionConfirm {
    ConnectionConfirm { status, ..ConnectionConfirm::new(EXCHANGE, TransactionId(4)) }
}

fn send(server: &mut Server, now: Instant, message: impl Into<SetupMessage>) {
    server.handle_datagram(now, peer(1), &bytes(message));
}

/// The only message to send.
fn reply(server: &mut Server) -> SetupMessage {
    let transmit = server.poll_transmit().expect("a reply");
    assert_eq!((transmit.to, server.poll_transmit()), (peer(1), None));
    transmit.message
}

fn status(server: &mut Server) -> Status {
    reply(server).prefix().status
}

fn request(server: &mut Server) -> RequestHandle {
    match server.poll_event().expect("an event") {
        ServerEvent::CreateQueuePair { request, .. }
        | ServerEvent::RegisterRegion { request, .. }
        | ServerEvent::Connect { request, .. } => request,
        other => panic!("{other:?}"),
    }
}

/// A server with an exchange just before this phase.
fn before(phase: Phase) -> Server {
    let mut server = server();
    send(&mut server, at(0), discover());
    assert_eq!(status(&mut server), Status::SUCCESS);
    if phase > Phase::QueuePairs {
        send(&mut server, at(0), create(QpType::RC));
        let handle = request(&mut server);
        let answer = queue_pair(SERVER_QP, QpType::RC);
        server.respond_queue_pair(at(0), handle, Ok(answer)).unwrap();
        assert_eq!(status(&mut server), Status::SUCCESS);
    }
    if phase > Phase::Memory {
        send(&mut server, at(0), register(3));
        let handle = request(&mut server);
        server.respond_region(at(0), handle, Ok(registered(3))).unwrap();
        assert_eq!(status(&mut server), Status::SUCCESS);
    }
    server
}

/// A server that has accepted and waits for the confirmation.
fn accepted() -> (Server, ExchangeHandle) {
    let mut server = before(Phase::Connection);
    send(&mut server, at(0), connect());
    let handle = request(&mut server);
    server.respond_connection(at(0), handle, Ok(u32::MAX)).unwrap();
    assert_eq!(status(&mut server), Status::SUCCESS);
    (server, handle.exchange())
}

#[test]
fn a_retransmission_gets_the_same_response() {
    let mut server = before(Phase::QueuePairs);
    send(&mut server, at(1), create(QpType::RC));
    send(&mut server, at(2), QpCreateReq { attempt: 1, ..create(QpType::RC) });
    let handle = request(&mut server);
    assert_eq!((server.poll_event(), server.poll_transmit()), (None, None));
    server.respond_queue_pair(at(3), handle, Ok(queue_pair(SERVER_QP, QpType::RC))).unwrap();
    let first = reply(&mut server);
    assert_eq!(first.prefix().attempt, 1);
    assert_eq!(
        server.respond_queue_pair(at(3), handle, Err(Status::REJECTED)),
        Err(UnknownRequest)
    );
    for attempt in 2..9 {
        send(&mut server, at(4), QpCreateReq { attempt, ..create(QpType::RC) });
        let SetupMessage::QpCreateResp(mut again) = reply(&mut server) else {
            panic!("not a response")
        };
        assert_eq!(core::mem::replace(&mut again.attempt, 1), attempt);
        assert_eq!(SetupMessage::from(again), first);
    }
    assert_eq!(server.poll_event(), None);
}

#[test]
fn the_server_only_lowers_limits() {
    let mut server = before(Phase::QueuePairs);
    send(&mut server, at(1), QpCreateReq { path_mtu: PathMtu::MTU_512, ..create(QpType::RC) });
    let handle = request(&mut server);
    server.respond_queue_pair(at(1), handle, Ok(queue_pair(SERVER_QP, QpType::UC))).unwrap();
    let SetupMessage::QpCreateResp(response) = reply(&mut server) else { panic!("not a response") };
    assert_eq!((response.path_mtu, response.qp_type), (PathMtu::MTU_512, QpType::RC));

    let mut server = before(Phase::Connection);
    send(&mut server, at(1), ConnectionReq { max_message_size: 1 << 31, ..connect() });
    let handle = request(&mut server);
    server.respond_connection(at(1), handle, Ok(u32::MAX)).unwrap();
    let SetupMessage::ConnectionAccept(accept) = reply(&mut server) else {
        panic!("not an accept")
    };
    assert_eq!(accept.max_message_size, device().max_message_size);
}

#[test]
fn refuses_invalid_requests() {
    let queue_pairs: [Case<QpCreateReq, Status>; 5] = [
        (|it| it.qp_type = QpType(9), Status::UNSUPPORTED_TRANSPORT),
        (|it| it.path_mtu = PathMtu(0), Status::INVALID_PARAMETER),
        (|it| it.qp_number = Qpn(1), Status::INVALID_PARAMETER),
        (|it| it.qp_number = Qpn::MULTICAST, Status::INVALID_PARAMETER),
        (|it| it.exchange = ExchangeId(99), Status::UNKNOWN_EXCHANGE),
    ];
    for (spoil, expected) in queue_pairs {
        let mut server = before(Phase::QueuePairs);
        let mut request = create(QpType::RC);
        spoil(&mut request);
        send(&mut server, at(1), request);
        assert_eq!(status(&mut server), expected);
        // The owner does not know it.
        assert_eq!(server.poll_event(), None);
    }
    let connections: [Case<ConnectionReq, Status>; 7] = [
        (|it| it.client_qp = Qpn(9), Status::NO_QUEUE_PAIR),
        (|it| it.server_qp = Qpn(9), Status::NO_QUEUE_PAIR),
        (|it| it.server_key = RKey(9), Status::KEY_MISMATCH),
        (|it| it.server_guid = Guid(9), Status::INVALID_PARAMETER),
        (|it| it.max_message_size = 0, Status::INVALID_PARAMETER),
        (|it| it.max_message_size = (1 << 31) + 1, Status::INVALID_PARAMETER),
        (|it| it.version = 2, Status::UNSUPPORTED_VERSION),
    ];
    for (spoil, expected) in connections {
        let mut server = before(Phase::Connection);
        let mut request = connect();
        spoil(&mut request);
        send(&mut server, at(1), request);
        assert_eq!(status(&mut server), expected);
        let event = server.poll_event();
        if expected == Status::UNSUPPORTED_VERSION {
            // Such a message can only be refused.
            assert_eq!(event, None);
            continue;
        }
        let refused = Refused { phase: Phase::Connection, status: expected };
        assert!(matches!(
            event,
            Some(ServerEvent::Failed { failure: Failure::Refused(it), .. }) if it == refused
        ));
        // The valid request is too late: the exchange has ended, and a retransmission is refused in the same way.
        send(&mut server, at(2), connect());
        assert_eq!(status(&mut server), expected);
        assert_eq!(server.poll_event(), None);
    }
}

#[test]
fn limits_regions_and_checks_their_range() {
    let mut server = before(Phase::Memory);
    for number in 0..16 {
        send(&mut server, at(1), register(100 + number));
        let handle = request(&mut server);
        server.respond_region(at(1), handle, Ok(registered(number))).unwrap();
        assert_eq!(status(&mut server), Status::SUCCESS);
    }
    send(&mut server, at(1), register(200));
    assert_eq!(status(&mut server), Status::NO_MEMORY_REGION);

    let mut server = before(Phase::Memory);
    send(&mut server, at(1), MrRegisterReq { length: u64::MAX, ..register(3) });
    assert_eq!(status(&mut server), Status::INVALID_PARAMETER);
}

#[test]
fn enforces_the_order_of_phases() {
    for phase in [Phase::QueuePairs, Phase::Memory, Phase::Connection] {
        let mut server = before(phase);
        match phase {
            Phase::QueuePairs => send(&mut server, at(1), register(9)),
            // A second QP in one exchange is not a retransmission.
            Phase::Memory => {
                let transaction = TransactionId(9);
                send(&mut server, at(1), QpCreateReq { transaction, ..create(QpType::RC) });
            }
            _ => {
                send(&mut server, at(1), register(9));
                request(&mut server);
                // The owner has not answered for the region.
                send(&mut server, at(1), connect());
            }
        }
        assert_eq!(status(&mut server), Status::OUT_OF_ORDER, "{phase}");
    }
}

#[test]
fn the_owner_refuses_with_any_status_but_success() {
    for &refusal in Status::ALL {
        let expected = match refusal {
            Status::SUCCESS => Status::INTERNAL_ERROR,
            status => status,
        };
        for phase in [Phase::QueuePairs, Phase::Memory, Phase::Connection] {
            let mut server = before(phase);
            match phase {
                Phase::QueuePairs => send(&mut server, at(1), create(QpType::RC)),
                Phase::Memory => send(&mut server, at(1), register(3)),
                _ => send(&mut server, at(1), connect()),
            }
            let handle = request(&mut server);
            match phase {
                Phase::QueuePairs => server.respond_queue_pair(at(2), handle, Err(refusal)),
                Phase::Memory => server.respond_region(at(2), handle, Err(refusal)),
                _ => server.respond_connection(at(2), handle, Err(refusal)),
            }
            .unwrap();
            assert_eq!(status(&mut server), expected);
            let failure = Failure::Refused(Refused { phase, status: expected });
            let exchange = handle.exchange();
            assert_eq!(server.poll_event(), Some(ServerEvent::Failed { exchange, failure }));
            assert_eq!(server.poll_event(), None);
        }
    }
}

#[test]
fn retransmits_accept_until_confirmed() {
    let (mut server, exchange) = accepted();
    for now in [at(100), at(300), at(700)] {
        assert_eq!(server.poll_timeout(), Some(now));
        server.handle_timeout(now);
        assert_eq!(reply(&mut server).prefix().message_type, MessageType::CONNECTION_ACCEPT);
    }
    send(&mut server, at(710), confirm(Status::SUCCESS));
    let Some(ServerEvent::Connected { times, .. }) = server.poll_event() else { panic!("no news") };
    assert_eq!(times.total(), at(710).since(at(0)));
    assert_eq!(times.phase(Phase::Connection).unwrap().attempts, 4);
    // Neither a second confirmation nor data raise an event.
    send(&mut server, at(711), confirm(Status::SUCCESS));
    server.handle_data_received(at(711), exchange);
    assert_eq!((server.poll_event(), server.poll_transmit()), (None, None));
    // The client retransmits because its request was slow.
    send(&mut server, at(712), ConnectionReq { attempt: 1, ..connect() });
    assert_eq!(status(&mut server), Status::SUCCESS);
    assert_eq!(server.poll_timeout(), Some(at(10_710)));
    server.handle_timeout(at(10_710));
    assert_eq!((server.exchanges(), server.poll_timeout(), server.poll_event()), (0, None, None));
}

#[test]
fn data_replaces_a_lost_confirmation() {
    let (mut server, exchange) = accepted();
    server.handle_data_received(at(5), exchange);
    assert!(matches!(server.poll_event(), Some(ServerEvent::Connected { .. })));
    // No accept is retransmitted any more.
    server.handle_timeout(at(100));
    assert_eq!(server.poll_transmit(), None);
    // Before the accept, data has no effect.
    let mut server = before(Phase::Connection);
    send(&mut server, at(0), connect());
    let exchange = request(&mut server).exchange();
    server.handle_data_received(at(1), exchange);
    assert_eq!(server.poll_event(), None);
}

#[test]
fn gives_up_an_unconfirmed_accept() {
    let (mut server, exchange) = accepted();
    let mut accepts = 1;
    let failure = loop {
        server.handle_timeout(server.poll_timeout().unwrap());
        let sent = reply(&mut server).prefix();
        match server.poll_event() {
            None => accepts += u8::from(sent.status == Status::SUCCESS),
            Some(ServerEvent::Failed { failure, .. }) => {
                assert_eq!(sent.status, Status::TIMEOUT);
                break failure;
            }
            Some(other) => panic!("{other:?}"),
        }
    };
    assert_eq!((accepts, failure), (8, Failure::Unconfirmed { attempts: 8 }));
    // Too late: the client learns that the server gave up.
    send(&mut server, at(7901), confirm(Status::SUCCESS));
    assert_eq!(status(&mut server), Status::TIMEOUT);
    server.handle_data_received(at(7902), exchange);
    assert_eq!(server.poll_event(), None);
}

#[test]
fn ignores_an_unexpected_confirmation() {
    // Before the owner has accepted, and for another request.
    let mut server = before(Phase::Connection);
    send(&mut server, at(0), connect());
    let handle = request(&mut server);
    send(&mut server, at(1), confirm(Status::SUCCESS));
    assert_eq!((server.poll_event(), server.poll_transmit()), (None, None));
    server.respond_connection(at(2), handle, Ok(u32::MAX)).unwrap();
    assert_eq!(status(&mut server), Status::SUCCESS);
    for status in [Status::SUCCESS, Status::REJECTED] {
        let other = ConnectionConfirm { transaction: TransactionId(5), ..confirm(status) };
        send(&mut server, at(3), other);
        assert_eq!((server.poll_event(), server.poll_transmit()), (None, None));
    }
    send(&mut server, at(4), confirm(Status::SUCCESS));
    assert!(matches!(server.poll_event(), Some(ServerEvent::Connected { .. })));
}

#[test]
fn refuses_answers_for_a_finished_exchange() {
    let mut server = before(Phase::Connection);
    send(&mut server, at(0), connect());
    let handle = request(&mut server);
    assert!(server.times(handle.exchange()).is_some_and(|times| times.start() == at(0)));
    server.abort(at(1), handle.exchange(), Status::REJECTED).unwrap();
    assert_eq!(server.respond_connection(at(2), handle, Ok(1)), Err(UnknownRequest));
    assert_eq!(server.poll_transmit(), None);
    // The client learns this from its retransmission. Then the exchange and its times are removed.
    send(&mut server, at(3), ConnectionReq { attempt: 1, ..connect() });
    assert_eq!(status(&mut server), Status::REJECTED);
    server.handle_timeout(server.poll_timeout().unwrap());
    assert_eq!((server.exchanges(), server.times(handle.exchange())), (0, None));
    assert_eq!(server.respond_connection(at(20_000), handle, Ok(1)), Err(UnknownRequest));
}

#[test]
fn releases_clients_that_abort_or_time_out() {
    let (mut server, exchange) = accepted();
    send(&mut server, at(1), confirm(Status::REJECTED));
    let failure = Failure::Abandoned { status: Status::REJECTED };
    assert_eq!(server.poll_event(), Some(ServerEvent::Failed { exchange, failure }));

    for phase in [Phase::QueuePairs, Phase::Memory, Phase::Connection] {
        let mut server = before(phase);
        let deadline = server.poll_timeout().unwrap();
        assert_eq!(deadline, at(15_000));
        server.handle_timeout(deadline);
        match (phase, server.poll_event()) {
            // Discovery only.
            (Phase::QueuePairs, None) => assert_eq!(server.exchanges(), 0),
            (_, Some(ServerEvent::Failed { failure: Failure::Silent { phase: last }, .. })) => {
                assert_eq!(last as u8 + 1, phase as u8);
            }
            (_, other) => panic!("{other:?}"),
        }
        assert_eq!(server.poll_transmit(), None);
    }
}

#[test]
fn a_ud_exchange_has_two_phases() {
    let mut server = before(Phase::QueuePairs);
    send(&mut server, at(1), create(QpType::UD));
    let handle = request(&mut server);
    server.respond_queue_pair(at(1), handle, Ok(queue_pair(SERVER_QP, QpType::UD))).unwrap();
    assert_eq!(status(&mut server), Status::SUCCESS);
    send(&mut server, at(1), connect());
    assert_eq!(status(&mut server), Status::OUT_OF_ORDER);
    server.handle_timeout(at(10_001));
    assert_eq!((server.exchanges(), server.poll_event()), (0, None));
}

#[test]
fn the_owner_can_abort_an_exchange() {
    let (mut server, exchange) = accepted();
    server.abort(at(1), exchange, Status::REJECTED).unwrap();
    assert_eq!(status(&mut server), Status::REJECTED);
    assert_eq!(server.abort(at(1), exchange, Status::REJECTED), Err(UnknownRequest));
    send(&mut server, at(2), confirm(Status::SUCCESS));
    assert_eq!(status(&mut server), Status::REJECTED);
    assert_eq!(server.poll_event(), None);
}

#[test]
fn refuses_a_client_without_required_capabilities() {
    let config = ServerConfig { required: Capabilities::ATOMIC, ..ServerConfig::new(device()) };
    let mut server = Server::new(config);
    send(&mut server, at(0), discover());
    assert_eq!(status(&mut server), Status::UNSUPPORTED_CAPABILITY);
    send(
        &mut server,
        at(0),
        DeviceDiscoveryReq { capabilities: Capabilities::ATOMIC, ..discover() },
    );
    assert_eq!(status(&mut server), Status::SUCCESS);
}

#[test]
fn evicts_only_exchanges_without_resources() {
    let config = ServerConfig { max_exchanges: 4, ..ServerConfig::new(device()) };
    let mut server = Server::new(config);
    let from = |server: &mut Server, number: u8, message: SetupMessage| {
        server.handle_datagram(at(0), peer(number), &bytes(message));
        server.poll_transmit().map(|transmit| transmit.message.prefix().status)
    };
    // Three with a QP, and many with discovery only.
    for number in 0..3 {
        assert_eq!(from(&mut server, number, discover().into()), Some(Status::SUCCESS));
        assert_eq!(from(&mut server, number, create(QpType::RC).into()), None);
    }
    for number in 10..50 {
        assert_eq!(from(&mut server, number, discover().into()), Some(Status::SUCCESS));
        assert!(server.exchanges() <= 4);
    }
    let evicted = from(&mut server, 48, create(QpType::RC).into());
    assert_eq!(evicted, Some(Status::UNKNOWN_EXCHANGE));
    assert_eq!(from(&mut server, 49, create(QpType::RC).into()), None);
    // Now all four hold resources.
    assert_eq!(from(&mut server, 50, discover().into()), Some(Status::NO_RESOURCES));
    assert_eq!(core::iter::from_fn(|| server.poll_event()).count(), 4);
}
