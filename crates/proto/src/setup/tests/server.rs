//! The server against requests written by hand.

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

fn ask(server: &mut Server, now: Instant, message: impl Into<SetupMessage>) {
    server.handle_datagram(now, peer(1), &bytes(message));
}

/// The one message that is sent.
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

/// A server with an exchange in which this phase is the next.
fn before(phase: Phase) -> Server {
    let mut server = server();
    ask(&mut server, at(0), discover());
    assert_eq!(status(&mut server), Status::SUCCESS);
    if phase > Phase::QueuePairs {
        ask(&mut server, at(0), create(QpType::RC));
        let handle = request(&mut server);
        let answer = queue_pair(SERVER_QP, QpType::RC);
        server.respond_queue_pair(at(0), handle, Ok(answer)).unwrap();
        assert_eq!(status(&mut server), Status::SUCCESS);
    }
    if phase > Phase::Memory {
        ask(&mut server, at(0), register(3));
        let handle = request(&mut server);
        server.respond_region(at(0), handle, Ok(registered(3))).unwrap();
        assert_eq!(status(&mut server), Status::SUCCESS);
    }
    server
}

/// A server that has accepted and waits to hear that the client is ready.
fn accepted() -> (Server, ExchangeHandle) {
    let mut server = before(Phase::Connection);
    ask(&mut server, at(0), connect());
    let handle = request(&mut server);
    server.respond_connection(at(0), handle, Ok(u32::MAX)).unwrap();
    assert_eq!(status(&mut server), Status::SUCCESS);
    (server, handle.exchange())
}

#[test]
fn a_repetition_gets_the_same_response_and_the_owner_is_asked_once() {
    let mut server = before(Phase::QueuePairs);
    ask(&mut server, at(1), create(QpType::RC));
    ask(&mut server, at(2), QpCreateReq { attempt: 1, ..create(QpType::RC) });
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
        ask(&mut server, at(4), QpCreateReq { attempt, ..create(QpType::RC) });
        let SetupMessage::QpCreateResp(mut again) = reply(&mut server) else {
            panic!("not a response")
        };
        assert_eq!(core::mem::replace(&mut again.attempt, 1), attempt);
        assert_eq!(SetupMessage::from(again), first);
    }
    assert_eq!(server.poll_event(), None);
}

#[test]
fn the_server_lowers_and_never_raises() {
    let mut server = before(Phase::QueuePairs);
    ask(&mut server, at(1), QpCreateReq { path_mtu: PathMtu::MTU_512, ..create(QpType::RC) });
    let handle = request(&mut server);
    server.respond_queue_pair(at(1), handle, Ok(queue_pair(SERVER_QP, QpType::UC))).unwrap();
    let SetupMessage::QpCreateResp(response) = reply(&mut server) else { panic!("not a response") };
    assert_eq!((response.path_mtu, response.qp_type), (PathMtu::MTU_512, QpType::RC));

    let mut server = before(Phase::Connection);
    ask(&mut server, at(1), ConnectionReq { max_message_size: 1 << 31, ..connect() });
    let handle = request(&mut server);
    server.respond_connection(at(1), handle, Ok(u32::MAX)).unwrap();
    let SetupMessage::ConnectionAccept(accept) = reply(&mut server) else {
        panic!("not an accept")
    };
    assert_eq!(accept.max_message_size, device().max_message_size);
}

#[test]
fn requests_that_are_refused_by_rule() {
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
        ask(&mut server, at(1), request);
        assert_eq!(status(&mut server), expected);
        // The owner never heard of it.
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
        ask(&mut server, at(1), request);
        assert_eq!(status(&mut server), expected);
        let event = server.poll_event();
        if expected == Status::UNSUPPORTED_VERSION {
            // Nothing is known about such a message but that it must be refused.
            assert_eq!(event, None);
            continue;
        }
        let refused = Refused { phase: Phase::Connection, status: expected };
        assert!(matches!(
            event,
            Some(ServerEvent::Failed { failure: Failure::Refused(it), .. }) if it == refused
        ));
        // The right request comes too late: the exchange is over, and its repetition is refused the same way.
        ask(&mut server, at(2), connect());
        assert_eq!(status(&mut server), expected);
        assert_eq!(server.poll_event(), None);
    }
}

#[test]
fn regions_have_a_limit_and_must_fit_the_address_space() {
    let mut server = before(Phase::Memory);
    for number in 0..16 {
        ask(&mut server, at(1), register(100 + number));
        let handle = request(&mut server);
        server.respond_region(at(1), handle, Ok(registered(number))).unwrap();
        assert_eq!(status(&mut server), Status::SUCCESS);
    }
    ask(&mut server, at(1), register(200));
    assert_eq!(status(&mut server), Status::NO_MEMORY_REGION);

    let mut server = before(Phase::Memory);
    ask(&mut server, at(1), MrRegisterReq { length: u64::MAX, ..register(3) });
    assert_eq!(status(&mut server), Status::INVALID_PARAMETER);
}

#[test]
fn phases_follow_each_other() {
    for phase in [Phase::QueuePairs, Phase::Memory, Phase::Connection] {
        let mut server = before(phase);
        match phase {
            Phase::QueuePairs => ask(&mut server, at(1), register(9)),
            // A second queue pair in one exchange is not a repetition.
            Phase::Memory => {
                let transaction = TransactionId(9);
                ask(&mut server, at(1), QpCreateReq { transaction, ..create(QpType::RC) });
            }
            _ => {
                ask(&mut server, at(1), register(9));
                request(&mut server);
                // The owner has not answered for the region.
                ask(&mut server, at(1), connect());
            }
        }
        assert_eq!(status(&mut server), Status::OUT_OF_ORDER, "{phase}");
    }
}

#[test]
fn the_owner_can_refuse_with_any_status_but_success() {
    for &refusal in Status::ALL {
        let expected = match refusal {
            Status::SUCCESS => Status::INTERNAL_ERROR,
            status => status,
        };
        for phase in [Phase::QueuePairs, Phase::Memory, Phase::Connection] {
            let mut server = before(phase);
            match phase {
                Phase::QueuePairs => ask(&mut server, at(1), create(QpType::RC)),
                Phase::Memory => ask(&mut server, at(1), register(3)),
                _ => ask(&mut server, at(1), connect()),
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
fn accept_is_repeated_until_confirmed() {
    let (mut server, exchange) = accepted();
    for now in [at(100), at(300), at(700)] {
        assert_eq!(server.poll_timeout(), Some(now));
        server.handle_timeout(now);
        assert_eq!(reply(&mut server).prefix().message_type, MessageType::CONNECTION_ACCEPT);
    }
    ask(&mut server, at(710), confirm(Status::SUCCESS));
    let Some(ServerEvent::Connected { times, .. }) = server.poll_event() else { panic!("no news") };
    assert_eq!(times.total(), at(710).since(at(0)));
    assert_eq!(times.phase(Phase::Connection).unwrap().attempts, 4);
    // Neither a second confirmation nor data are news.
    ask(&mut server, at(711), confirm(Status::SUCCESS));
    server.handle_data_received(at(711), exchange);
    assert_eq!((server.poll_event(), server.poll_transmit()), (None, None));
    // The client asks again because its copy of the request was slow.
    ask(&mut server, at(712), ConnectionReq { attempt: 1, ..connect() });
    assert_eq!(status(&mut server), Status::SUCCESS);
    assert_eq!(server.poll_timeout(), Some(at(10_710)));
    server.handle_timeout(at(10_710));
    assert_eq!((server.exchanges(), server.poll_timeout(), server.poll_event()), (0, None, None));
}

#[test]
fn data_confirms_when_the_confirmation_is_lost() {
    let (mut server, exchange) = accepted();
    server.handle_data_received(at(5), exchange);
    assert!(matches!(server.poll_event(), Some(ServerEvent::Connected { .. })));
    // No accept is repeated any more.
    server.handle_timeout(at(100));
    assert_eq!(server.poll_transmit(), None);
    // Before the accept, data means nothing.
    let mut server = before(Phase::Connection);
    ask(&mut server, at(0), connect());
    let exchange = request(&mut server).exchange();
    server.handle_data_received(at(1), exchange);
    assert_eq!(server.poll_event(), None);
}

#[test]
fn an_accept_that_nobody_confirms_is_given_up() {
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
    // Too late: the client learns that its connection is none.
    ask(&mut server, at(7901), confirm(Status::SUCCESS));
    assert_eq!(status(&mut server), Status::TIMEOUT);
    server.handle_data_received(at(7902), exchange);
    assert_eq!(server.poll_event(), None);
}

#[test]
fn a_confirmation_of_nothing_is_ignored() {
    // Before the owner has accepted, and of another request.
    let mut server = before(Phase::Connection);
    ask(&mut server, at(0), connect());
    let handle = request(&mut server);
    ask(&mut server, at(1), confirm(Status::SUCCESS));
    assert_eq!((server.poll_event(), server.poll_transmit()), (None, None));
    server.respond_connection(at(2), handle, Ok(u32::MAX)).unwrap();
    assert_eq!(status(&mut server), Status::SUCCESS);
    for status in [Status::SUCCESS, Status::REJECTED] {
        let other = ConnectionConfirm { transaction: TransactionId(5), ..confirm(status) };
        ask(&mut server, at(3), other);
        assert_eq!((server.poll_event(), server.poll_transmit()), (None, None));
    }
    ask(&mut server, at(4), confirm(Status::SUCCESS));
    assert!(matches!(server.poll_event(), Some(ServerEvent::Connected { .. })));
}

#[test]
fn a_request_of_an_exchange_that_is_over_cannot_be_answered() {
    let mut server = before(Phase::Connection);
    ask(&mut server, at(0), connect());
    let handle = request(&mut server);
    assert!(server.times(handle.exchange()).is_some_and(|times| times.start() == at(0)));
    server.abort(at(1), handle.exchange(), Status::REJECTED).unwrap();
    assert_eq!(server.respond_connection(at(2), handle, Ok(1)), Err(UnknownRequest));
    assert_eq!(server.poll_transmit(), None);
    // The client learns of it when it asks again. Then the exchange is forgotten with its times.
    ask(&mut server, at(3), ConnectionReq { attempt: 1, ..connect() });
    assert_eq!(status(&mut server), Status::REJECTED);
    server.handle_timeout(server.poll_timeout().unwrap());
    assert_eq!((server.exchanges(), server.times(handle.exchange())), (0, None));
    assert_eq!(server.respond_connection(at(20_000), handle, Ok(1)), Err(UnknownRequest));
}

#[test]
fn a_client_that_gives_up_or_falls_silent_is_let_go() {
    let (mut server, exchange) = accepted();
    ask(&mut server, at(1), confirm(Status::REJECTED));
    let failure = Failure::Abandoned { status: Status::REJECTED };
    assert_eq!(server.poll_event(), Some(ServerEvent::Failed { exchange, failure }));

    for phase in [Phase::QueuePairs, Phase::Memory, Phase::Connection] {
        let mut server = before(phase);
        let deadline = server.poll_timeout().unwrap();
        assert_eq!(deadline, at(15_000));
        server.handle_timeout(deadline);
        match (phase, server.poll_event()) {
            // Only asked who is there.
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
fn a_datagram_queue_pair_needs_two_phases() {
    let mut server = before(Phase::QueuePairs);
    ask(&mut server, at(1), create(QpType::UD));
    let handle = request(&mut server);
    server.respond_queue_pair(at(1), handle, Ok(queue_pair(SERVER_QP, QpType::UD))).unwrap();
    assert_eq!(status(&mut server), Status::SUCCESS);
    ask(&mut server, at(1), connect());
    assert_eq!(status(&mut server), Status::OUT_OF_ORDER);
    server.handle_timeout(at(10_001));
    assert_eq!((server.exchanges(), server.poll_event()), (0, None));
}

#[test]
fn the_owner_can_end_an_exchange() {
    let (mut server, exchange) = accepted();
    server.abort(at(1), exchange, Status::REJECTED).unwrap();
    assert_eq!(status(&mut server), Status::REJECTED);
    assert_eq!(server.abort(at(1), exchange, Status::REJECTED), Err(UnknownRequest));
    ask(&mut server, at(2), confirm(Status::SUCCESS));
    assert_eq!(status(&mut server), Status::REJECTED);
    assert_eq!(server.poll_event(), None);
}

#[test]
fn a_client_must_be_able_to_do_what_is_required() {
    let config = ServerConfig { required: Capabilities::ATOMIC, ..ServerConfig::new(device()) };
    let mut server = Server::new(config);
    ask(&mut server, at(0), discover());
    assert_eq!(status(&mut server), Status::UNSUPPORTED_CAPABILITY);
    ask(
        &mut server,
        at(0),
        DeviceDiscoveryReq { capabilities: Capabilities::ATOMIC, ..discover() },
    );
    assert_eq!(status(&mut server), Status::SUCCESS);
}

#[test]
fn only_those_who_hold_nothing_make_room() {
    let config = ServerConfig { max_exchanges: 4, ..ServerConfig::new(device()) };
    let mut server = Server::new(config);
    let from = |server: &mut Server, number: u8, message: SetupMessage| {
        server.handle_datagram(at(0), peer(number), &bytes(message));
        server.poll_transmit().map(|transmit| transmit.message.prefix().status)
    };
    // Three with a queue pair, and many that only look around.
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
    // Now all four hold something.
    assert_eq!(from(&mut server, 50, discover().into()), Some(Status::NO_RESOURCES));
    assert_eq!(core::iter::from_fn(|| server.poll_event()).count(), 4);
}
