//! The client with handwritten messages.

use std::string::ToString;
use std::vec::Vec;

use ferroce_wire::cm::AckTimeout;
use ferroce_wire::setup::{
    ConnectionAccept, ConnectionConfirm, DeviceDiscoveryResp, MrRegisterResp, Phase, QpCreateResp,
    Status,
};

use super::*;

const CLIENT_QP: u32 = 0x11;
const SERVER_QP: u32 = 0x22;

fn respond(client: &mut Client, now: Instant, message: impl Into<SetupMessage>) {
    client.handle_datagram(now, peer(2), &bytes(message));
}

/// A client that has just sent its request of this phase, and the transaction ID.
fn requesting(phase: Phase) -> (Client, TransactionId) {
    let mut client = client(at(0));
    let mut transaction = sent(&mut client).prefix().transaction;
    for step in [Phase::QueuePairs, Phase::Memory, Phase::Connection] {
        if step > phase {
            break;
        }
        match step {
            Phase::QueuePairs => {
                respond(&mut client, at(0), device().response(EXCHANGE, transaction));
                assert_eq!(client.poll_event(), Some(ClientEvent::Discovered(device())));
                client.create_queue_pair(at(0), queue_pair(CLIENT_QP, QpType::RC)).unwrap();
            }
            Phase::Memory => {
                let server = queue_pair(SERVER_QP, QpType::RC);
                respond(&mut client, at(0), server.response(EXCHANGE, transaction));
                assert_eq!(client.poll_event(), Some(ClientEvent::QueuePairCreated(server)));
                client.register_region(at(0), region(1)).unwrap();
            }
            _ => {
                respond(&mut client, at(0), registered(5).response(EXCHANGE, transaction));
                let event = ClientEvent::RegionRegistered(registered(5));
                assert_eq!(client.poll_event(), Some(event));
                let server_key = registered(5).remote_key;
                let parameters =
                    ConnectionParameters { server_key, ..ConnectionParameters::default() };
                client.connect(at(0), parameters).unwrap();
            }
        }
        transaction = sent(&mut client).prefix().transaction;
    }
    (client, transaction)
}

fn good_accept(transaction: TransactionId) -> ConnectionAccept {
    let parameters = ConnectionParameters::default();
    Agreement {
        client_qp: Qpn(CLIENT_QP),
        server_qp: Qpn(SERVER_QP),
        client_key: RKey(0),
        server_key: registered(5).remote_key,
        max_message_size: parameters.max_message_size,
        timeout: parameters.timeout,
        retry_count: parameters.retry_count,
        rnr_retry_count: parameters.rnr_retry_count,
    }
    .accept(EXCHANGE, transaction)
}

fn refusal(phase: Phase, transaction: TransactionId, status: Status) -> SetupMessage {
    match phase {
        Phase::Discovery => {
            DeviceDiscoveryResp { status, ..DeviceDiscoveryResp::new(EXCHANGE, transaction) }.into()
        }
        Phase::QueuePairs => {
            QpCreateResp { status, ..QpCreateResp::new(EXCHANGE, transaction) }.into()
        }
        Phase::Memory => {
            MrRegisterResp { status, ..MrRegisterResp::new(EXCHANGE, transaction) }.into()
        }
        _ => ConnectionAccept { status, ..ConnectionAccept::new(EXCHANGE, transaction) }.into(),
    }
}

const PHASES: [Phase; 4] = [Phase::Discovery, Phase::QueuePairs, Phase::Memory, Phase::Connection];

#[test]
fn every_status_fails_the_exchange_in_every_phase() {
    for phase in PHASES {
        for &status in Status::ALL.iter().filter(|status| **status != Status::SUCCESS) {
            let (mut client, transaction) = requesting(phase);
            respond(&mut client, at(1), refusal(phase, transaction, status));
            let error = SetupError::Refused(Refused { phase, status });
            assert_eq!(client.poll_event(), Some(ClientEvent::Failed(error)));
            assert!(error.to_string().contains(&phase.to_string()), "{error}");
            assert!(error.to_string().contains(&status.to_string()), "{error}");
            assert_eq!((client.poll_transmit(), client.poll_timeout()), (None, None));
            assert!(client.is_drained());
        }
    }
}

#[test]
fn gives_up_after_the_documented_attempts() {
    for phase in PHASES {
        let (mut client, transaction) = requesting(phase);
        let (mut copies, mut last) = (1, at(0));
        while let Some(now) = client.poll_timeout().filter(|_| client.poll_event().is_none()) {
            assert_eq!(client.poll_transmit(), None);
            client.handle_timeout(now);
            last = now;
            let Some(transmit) = client.poll_transmit() else { break };
            let prefix = transmit.message.prefix();
            if prefix.message_type.response().is_none() {
                // Only a client that requested the connection reports that it gives up.
                assert_eq!((phase, prefix.status), (Phase::Connection, Status::TIMEOUT));
                break;
            }
            assert_eq!((prefix.transaction, prefix.attempt), (transaction, copies));
            copies += 1;
        }
        assert_eq!((copies, last), (8, at(7900)));
        let error = SetupError::NoAnswer { phase, attempts: 8 };
        assert_eq!(client.poll_event(), Some(ClientEvent::Failed(error)));
    }
}

#[test]
fn every_violation_is_reported() {
    let queue_pair_cases: [Case<QpCreateResp, Violation>; 3] = [
        (|response| response.qp_type = QpType::UC, Violation::QpType),
        (|response| response.path_mtu = PathMtu::MTU_2048, Violation::PathMtu),
        (|response| response.path_mtu = PathMtu(9), Violation::PathMtu),
    ];
    for (spoil, violation) in queue_pair_cases {
        let (mut client, transaction) = requesting(Phase::QueuePairs);
        let mut response = queue_pair(SERVER_QP, QpType::RC).response(EXCHANGE, transaction);
        spoil(&mut response);
        respond(&mut client, at(1), response);
        let error = SetupError::Violation { phase: Phase::QueuePairs, violation };
        assert_eq!(client.poll_event(), Some(ClientEvent::Failed(error)));
    }
    let accept_cases: [Case<ConnectionAccept, Violation>; 7] = [
        (|accept| accept.client_qp = Qpn(9), Violation::QueuePairs),
        (|accept| accept.server_qp = Qpn(9), Violation::QueuePairs),
        (|accept| accept.client_key = RKey(9), Violation::Keys),
        (|accept| accept.max_message_size += 1, Violation::MaxMessageSize),
        (|accept| accept.max_message_size = 0, Violation::MaxMessageSize),
        (|accept| accept.retry_count = 1, Violation::Retries),
        (|accept| accept.timeout = AckTimeout(1), Violation::Retries),
    ];
    for (spoil, violation) in accept_cases {
        let (mut client, transaction) = requesting(Phase::Connection);
        let mut accept = good_accept(transaction);
        spoil(&mut accept);
        respond(&mut client, at(1), accept);
        let error = SetupError::Violation { phase: Phase::Connection, violation };
        assert_eq!(client.poll_event(), Some(ClientEvent::Failed(error)));
        // The server considers the connection accepted, so it must be notified.
        assert_eq!(sent(&mut client).prefix().status, Status::INVALID_PARAMETER);
    }
}

#[test]
fn confirms_every_accept_while_lingering() {
    let (mut client, transaction) = requesting(Phase::Connection);
    let accept = ConnectionAccept { max_message_size: 4096, ..good_accept(transaction) };
    respond(&mut client, at(1), accept);
    assert!(matches!(
        client.poll_event(),
        Some(ClientEvent::Accepted(Agreement { max_message_size: 4096, .. }))
    ));
    // Not before the owner is ready.
    respond(&mut client, at(2), accept);
    assert_eq!(client.poll_transmit(), None);
    client.confirm(at(3)).unwrap();
    let confirm = ConnectionConfirm {
        client_qp: Qpn(CLIENT_QP),
        server_qp: Qpn(SERVER_QP),
        ..ConnectionConfirm::new(EXCHANGE, transaction)
    };
    assert_eq!(sent(&mut client), confirm.into());
    for n in 4..8 {
        respond(&mut client, at(n), accept);
        assert_eq!(sent(&mut client), confirm.into());
    }
    assert!(client.is_connected() && !client.is_drained());
    assert_eq!(client.confirm(at(9)), Err(WrongStep));
    assert_eq!(client.poll_timeout(), Some(at(10_003)));
    client.handle_timeout(at(10_003));
    assert!(client.is_drained());
    assert_eq!(client.times().total(), at(3).since(at(0)));
}

#[test]
fn a_failed_accept_ends_a_connected_client() {
    let (mut client, transaction) = requesting(Phase::Connection);
    respond(&mut client, at(1), good_accept(transaction));
    client.confirm(at(1)).unwrap();
    client.poll_event();
    respond(&mut client, at(2), refusal(Phase::Connection, transaction, Status::TIMEOUT));
    let refused = Refused { phase: Phase::Connection, status: Status::TIMEOUT };
    assert_eq!(client.poll_event(), Some(ClientEvent::Failed(SetupError::Refused(refused))));
    assert!(!client.is_connected());
}

#[test]
fn an_aborted_client_refuses_every_accept() {
    let (mut client, transaction) = requesting(Phase::Connection);
    client.abort(at(1), Status::REJECTED);
    assert_eq!(sent(&mut client).prefix().status, Status::REJECTED);
    respond(&mut client, at(2), good_accept(transaction));
    assert_eq!(sent(&mut client).prefix().status, Status::REJECTED);
    assert_eq!(client.poll_event(), None);
    // Before the connection request the server needs no notification.
    let (mut client, _) = requesting(Phase::Memory);
    client.abort(at(1), Status::REJECTED);
    assert_eq!(client.poll_transmit(), None);
    assert!(client.is_drained());
}

#[test]
fn ignores_unrelated_responses() {
    let (mut client, transaction) = requesting(Phase::QueuePairs);
    let good = queue_pair(SERVER_QP, QpType::RC).response(EXCHANGE, transaction);
    client.handle_datagram(at(1), peer(3), &bytes(good));
    respond(&mut client, at(1), QpCreateResp { exchange: ExchangeId(1), ..good });
    respond(&mut client, at(1), QpCreateResp { transaction: TransactionId(1), ..good });
    respond(&mut client, at(1), registered(1).response(EXCHANGE, transaction));
    respond(&mut client, at(1), QpCreateResp { version: 2, ..good });
    assert_eq!(client.poll_event(), None);
    // Only a refusal is understood in another version.
    let status = Status::UNSUPPORTED_VERSION;
    respond(&mut client, at(1), QpCreateResp { version: 2, status, ..good });
    let error = SetupError::Refused(Refused { phase: Phase::QueuePairs, status });
    assert_eq!(client.poll_event(), Some(ClientEvent::Failed(error)));
}

#[test]
fn refuses_steps_in_the_wrong_phase() {
    let mut client = client(at(0));
    assert_eq!(client.create_queue_pair(at(0), queue_pair(9, QpType::RC)), Err(WrongStep));
    assert_eq!(client.register_region(at(0), region(1)), Err(WrongStep));
    assert_eq!(client.connect(at(0), ConnectionParameters::default()), Err(WrongStep));
    assert_eq!(client.confirm(at(0)), Err(WrongStep));
}

#[test]
fn uc_requests_no_retries() {
    let (mut client, transaction) = requesting(Phase::Discovery);
    respond(&mut client, at(0), device().response(EXCHANGE, transaction));
    client.create_queue_pair(at(0), queue_pair(CLIENT_QP, QpType::UC)).unwrap();
    let transaction = sent(&mut client).prefix().transaction;
    let server = queue_pair(SERVER_QP, QpType::UC);
    respond(&mut client, at(0), server.response(EXCHANGE, transaction));
    client.connect(at(0), ConnectionParameters::default()).unwrap();
    let SetupMessage::ConnectionReq(request) = sent(&mut client) else { panic!("not a request") };
    assert_eq!((request.timeout.0, request.retry_count, request.rnr_retry_count.0), (0, 0, 0));
}

#[test]
fn measures_the_round_trip_of_the_answered_copy() {
    let mut client = client(at(0));
    let transaction = sent(&mut client).prefix().transaction;
    client.handle_timeout(at(100));
    client.handle_timeout(at(300));
    let response = device().response(EXCHANGE, transaction);
    respond(&mut client, at(310), DeviceDiscoveryResp { attempt: 1, ..response });
    let time = client.times().phase(Phase::Discovery).unwrap();
    assert_eq!(time.round_trip, Some(at(210).since(at(0))));
    assert_eq!((time.attempts, time.duration()), (3, at(310).since(at(0))));
    // Time before the next request counts for the next phase.
    client.create_queue_pair(at(400), queue_pair(CLIENT_QP, QpType::RC)).unwrap();
    let transaction = sent(&mut client).prefix().transaction;
    let server = queue_pair(SERVER_QP, QpType::RC);
    let response = QpCreateResp { attempt: 9, ..server.response(EXCHANGE, transaction) };
    respond(&mut client, at(410), response);
    let time = client.times().phase(Phase::QueuePairs).unwrap();
    assert_eq!((time.round_trip, time.duration()), (None, at(100).since(at(0))));
    let durations: Vec<_> = PHASES.iter().filter_map(|&it| client.times().duration(it)).collect();
    assert_eq!(durations.iter().sum::<core::time::Duration>(), client.times().total());
}
