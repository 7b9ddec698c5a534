//! No input causes a panic or unbounded memory.

use proptest::prelude::*;

use super::*;

/// Random bytes, or a message header followed by random bytes.
fn datagram() -> impl Strategy<Value = Vec<u8>> {
    let random = proptest::collection::vec(any::<u8>(), 0..80);
    let genuine = (1u8..10, any::<[u8; MAX_LEN]>(), 0u8..3, 5u32..9, any::<bool>()).prop_map(
        |(kind, mut bytes, exchange, transaction, success)| {
            bytes[..2].copy_from_slice(&[kind, 1]);
            bytes[2] = if success { 0 } else { bytes[2] };
            bytes[4..8].copy_from_slice(b"FeSU");
            let exchange = EXCHANGE.0 + u32::from(exchange);
            bytes[8..12].copy_from_slice(&exchange.to_be_bytes());
            bytes[12..16].copy_from_slice(&transaction.to_be_bytes());
            // A QP that passes the server's checks, and a valid region.
            bytes[20..22].copy_from_slice(&[1, 3]);
            bytes[24] = 0;
            bytes[32] = 0;
            let length = if matches!(kind, 1 | 9) { 32 } else { 64 };
            bytes[..length].to_vec()
        },
    );
    prop_oneof![1 => random, 6 => genuine]
}

proptest! {
    #[test]
    fn a_server_stays_within_its_limits(
        steps in proptest::collection::vec((0u8..20, datagram(), 0u64..3000), 1..300),
        drain: bool,
        answer: bool,
    ) {
        let config = ServerConfig { max_exchanges: 5, max_regions: 3, ..ServerConfig::new(device()) };
        let mut server = Server::new(config);
        let (mut now, mut waiting) = (0, Vec::new());
        for (from, bytes, pause) in steps {
            now += pause;
            server.handle_datagram(at(now), peer(from), &bytes);
            server.handle_timeout(at(now));
            prop_assert!(server.poll_timeout().is_none_or(|timer| timer > at(now)));
            prop_assert!(server.exchanges() <= 5);
            while let Some(event) = drain.then(|| server.poll_event()).flatten() {
                waiting.push(event);
            }
            if drain {
                while server.poll_transmit().is_some() {}
            }
            for event in waiting.drain(..).filter(|_| answer) {
                // An answer may be too late.
                let _ = match event {
                    ServerEvent::CreateQueuePair { request, parameters, .. } => {
                        server.respond_queue_pair(at(now), request, Ok(parameters))
                    }
                    ServerEvent::RegisterRegion { request, .. } => {
                        server.respond_region(at(now), request, Ok(registered(1)))
                    }
                    ServerEvent::Connect { request, .. } => {
                        server.respond_connection(at(now), request, Ok(4096))
                    }
                    _ => Ok(()),
                };
            }
        }
        // Without polling, the number of exchanges bounds the queues: at most 4 events and one for each region.
        let events = core::iter::from_fn(|| server.poll_event()).count();
        prop_assert!(events <= 5 * (4 + 3), "{events} events");
        prop_assert!(core::iter::from_fn(|| server.poll_transmit()).count() <= 5);
        // All state expires.
        while let Some(timer) = server.poll_timeout() {
            server.handle_timeout(timer);
            while server.poll_event().is_some() {}
        }
        prop_assert_eq!(server.exchanges(), 0);
    }

    #[test]
    fn a_client_survives_any_datagram(
        steps in proptest::collection::vec((datagram(), 0u64..500), 1..100),
    ) {
        let mut client = client(at(0));
        let mut discovery =
            Discovery::new(DiscoveryConfig::new(EXCHANGE, TransactionId(7)), at(0));
        let mut now = 0;
        for (bytes, pause) in steps {
            now += pause;
            client.handle_datagram(at(now), peer(2), &bytes);
            client.handle_timeout(at(now));
            discovery.handle_datagram(at(now), peer(2), &bytes);
            discovery.handle_timeout(at(now));
            let _ = match client.poll_event() {
                Some(ClientEvent::Discovered(_)) => {
                    client.create_queue_pair(at(now), queue_pair(9, QpType::RC))
                }
                Some(ClientEvent::QueuePairCreated(_)) => client.register_region(at(now), region(1)),
                Some(ClientEvent::RegionRegistered(_)) => {
                    client.connect(at(now), ConnectionParameters::default())
                }
                Some(ClientEvent::Accepted(_)) => client.confirm(at(now)),
                _ => Ok(()),
            };
            prop_assert!(core::iter::from_fn(|| client.poll_transmit()).count() <= 2);
        }
        let mut wakes = 0;
        while let Some(timer) = client.poll_timeout() {
            client.handle_timeout(timer);
            wakes += 1;
            prop_assert!(wakes <= 20);
        }
    }
}
