use ferroce_wire::setup::{DeviceDiscoveryResp, Status};

use super::*;

fn discovery(max_responders: usize) -> Discovery {
    let config = DiscoveryConfig::new(EXCHANGE, TransactionId(1));
    Discovery::new(DiscoveryConfig { max_responders, ..config }, at(0))
}

fn response(attempt: u8) -> DeviceDiscoveryResp {
    DeviceDiscoveryResp { attempt, ..device().response(EXCHANGE, TransactionId(1)) }
}

#[test]
fn sends_three_requests_and_lists_responders_until_the_deadline() {
    let mut discovery = discovery(256);
    let mut asked = Vec::new();
    while let Some(now) = discovery.poll_timeout() {
        if let Some(question) = discovery.poll_transmit() {
            asked.push(question.prefix().attempt);
        }
        if asked.len() == 2 {
            let soon = Instant::from_nanos(now.as_nanos() - 1_000_000);
            discovery.handle_datagram(soon, peer(5), &bytes(response(1)));
            discovery.handle_datagram(soon, peer(6), &bytes(response(0)));
            // A second response of the same server is not listed again.
            discovery.handle_datagram(soon, peer(5), &bytes(response(0)));
        }
        discovery.handle_timeout(now);
    }
    assert_eq!(asked, [0, 1, 2]);
    assert!(discovery.is_finished());
    let times: Vec<_> =
        discovery.found().iter().map(|it| it.round_trip.unwrap().as_millis()).collect();
    assert_eq!(times, [249, 499]);
    assert!(
        matches!(discovery.poll_event(), Some(DiscoveryEvent::Found(it)) if it.peer == peer(5))
    );
    assert!(
        matches!(discovery.poll_event(), Some(DiscoveryEvent::Found(it)) if it.peer == peer(6))
    );
    assert_eq!(discovery.poll_event(), Some(DiscoveryEvent::Finished));
    assert_eq!(discovery.poll_event(), None);
    discovery.handle_datagram(at(1001), peer(7), &bytes(response(0)));
    assert_eq!(discovery.found().len(), 2);
}

#[test]
fn a_refusal_is_replaced_by_an_offer() {
    let mut discovery = discovery(256);
    let refused = DeviceDiscoveryResp { status: Status::NO_RESOURCES, ..response(0) };
    discovery.handle_datagram(at(1), peer(5), &bytes(refused));
    assert_eq!(discovery.found()[0].answer, Err(Status::NO_RESOURCES));
    discovery.handle_datagram(at(2), peer(5), &bytes(response(0)));
    discovery.handle_datagram(at(3), peer(5), &bytes(refused));
    assert_eq!(discovery.found()[0].answer, Ok(device()));
    assert_eq!(discovery.found().len(), 1);
}

#[test]
fn limits_the_list_and_ignores_unrelated_responses() {
    let mut discovery = discovery(3);
    let other = DeviceDiscoveryResp { exchange: ExchangeId(9), ..response(0) };
    discovery.handle_datagram(at(1), peer(1), &bytes(other));
    discovery.handle_datagram(at(1), peer(1), &[1, 2, 3]);
    assert!(discovery.found().is_empty());
    for number in 0..10 {
        discovery.handle_datagram(at(1), peer(number), &bytes(response(0)));
    }
    assert_eq!((discovery.found().len(), discovery.unlisted()), (3, 7));
}
