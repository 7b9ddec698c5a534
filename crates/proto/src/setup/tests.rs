mod client;
mod discovery;
mod errors;
mod pair;
mod random;
mod server;

use std::format;
use std::vec::Vec;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::PathMtu;
use ferroce_wire::number::{Guid, LKey, Psn, Qpn, RKey, VirtualAddress};
use ferroce_wire::setup::{
    AccessFlags, Capabilities, DomainId, ExchangeId, MAX_LEN, PeerId, QpType, RegionId,
    SetupMessage, TransactionId, Transports,
};

use super::*;
use crate::time::Instant;

/// A modification of a message, and the expected result.
type Case<T, E> = (fn(&mut T), E);

const EXCHANGE: ExchangeId = ExchangeId(0x0102_0304);

fn peer(number: u8) -> Peer {
    Peer::service(Gid([number; 16]))
}

fn device() -> Device {
    Device {
        id: PeerId(0x8765_4321),
        capabilities: Capabilities(0x0f),
        guid: Guid(0x8765_4321_fedc_ba98),
        max_queue_pairs: 1024,
        max_memory_regions: 1024,
        max_message_size: 0x0100_0000,
        transports: Transports(0x0f),
        path_mtu: PathMtu::MTU_4096,
    }
}

fn queue_pair(number: u32, qp_type: QpType) -> QpParameters {
    QpParameters {
        qp_number: Qpn(number),
        qp_type,
        path_mtu: PathMtu::MTU_1024,
        responder_resources: 16,
        initiator_depth: 16,
        max_send_wqe: 10,
        max_recv_wqe: 10,
        max_send_sge: 1,
        max_recv_sge: 1,
        send_queue_size: 0x1000,
        recv_queue_size: 0x1000,
        starting_psn: Psn(number * 1000),
        ..QpParameters::default()
    }
}

fn region(number: u32) -> RegionParameters {
    RegionParameters {
        id: RegionId(number),
        access: AccessFlags::REMOTE_READ | AccessFlags::REMOTE_WRITE,
        address: VirtualAddress(0x7f8b_4000_0000),
        length: 0x0100_0000,
        domain: DomainId(1),
    }
}

fn registered(number: u32) -> RegisteredRegion {
    RegisteredRegion {
        region: region(number),
        remote_key: RKey(0x1000_0000 + number),
        local_key: LKey(0x2000_0000 + number),
    }
}

fn bytes(message: impl Into<SetupMessage>) -> Vec<u8> {
    message.into().emit(&mut [0; MAX_LEN]).to_vec()
}

fn at(milliseconds: u64) -> Instant {
    Instant::from_nanos(milliseconds * 1_000_000)
}

fn client(now: Instant) -> Client {
    let config = ClientConfig::new(EXCHANGE, TransactionId(7));
    Client::new(config, peer(2), now)
}

/// The only message to send.
fn sent(client: &mut Client) -> SetupMessage {
    let message = client.poll_transmit().expect("a message").message;
    assert_eq!(client.poll_transmit(), None);
    message
}

#[test]
fn a_retry_policy_computes_its_intervals() {
    let policy = RetryPolicy::default();
    let intervals: Vec<u128> = (0..8).map(|n| policy.interval(n).as_millis()).collect();
    assert_eq!(intervals, [100, 200, 400, 800, 1600, 1600, 1600, 1600]);
    assert_eq!(policy.gives_up_after().as_millis(), 7900);
    let fixed = RetryPolicy { growth: Growth::Fixed, attempts: 0, ..policy };
    assert_eq!((fixed.interval(9).as_millis(), fixed.attempts()), (100, 1));
    let endless = RetryPolicy { attempts: 255, ..policy };
    assert_eq!(endless.attempts(), MAX_ATTEMPTS);
    assert_eq!(endless.interval(255).as_millis(), 1600);
}

const DOCUMENT: &str = include_str!("../../../../docs/set-up-exchange.md");

#[test]
fn the_document_contains_the_defaults() {
    let server = ServerConfig::new(device());
    let client = ClientConfig::new(EXCHANGE, TransactionId(1));
    let given_up = client.retry.gives_up_after().as_secs_f64();
    for row in [
        format!("and of CONNECTION_ACCEPT | {} |", client.retry.attempts()),
        format!("| given up after | {given_up} s |"),
        format!("client silent | {} s |", server.idle.as_secs()),
        format!("is remembered | {} s |", server.linger.as_secs()),
        format!("is still answered | {} s |", client.linger.as_secs()),
        format!("exchanges at once | {} |", server.max_exchanges),
        format!("regions of an exchange | {} |", server.max_regions),
        format!("at most {MAX_ATTEMPTS} attempts"),
    ] {
        assert!(DOCUMENT.contains(&row), "{row}");
    }
    // Otherwise a client could find its exchange gone while it still retransmits, and a server its client.
    assert!(server.idle > client.retry.gives_up_after());
    assert!(client.linger > server.retry.gives_up_after());
}
