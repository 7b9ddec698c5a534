//! The result of a test, and its JSON.

use std::net::SocketAddr;

use serde::Serialize;

use super::args::{Atomic, Measure, Operation, Transport};
use super::session::Measured;
use super::tally::Tally;
use super::test::{Amount, Test};
use crate::latencies::Latency;

/// How packets reached the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Link {
    /// Memory that both processes share.
    SharedMemory,
    /// UDP sockets.
    Sockets,
}

impl Link {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::SharedMemory => "shared memory",
            Self::Sockets => "UDP sockets",
        }
    }
}

/// The options that the result depends on.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Parameters {
    pub(super) amount: Amount,
    pub(super) qps: u32,
    pub(super) threads: u32,
    pub(super) bidirectional: bool,
    pub(super) events: bool,
    pub(super) verify: bool,
    pub(super) tx_depth: u32,
    pub(super) post_list: u32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) cq_mod: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) atomic: Option<Atomic>,
}

/// The result of a test.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Outcome {
    pub(super) operation: Operation,
    pub(super) test: Measure,
    pub(super) transport: Transport,
    pub(super) server: SocketAddr,
    /// Whether the server was started for this test.
    pub(super) own_server: bool,
    pub(super) link: Link,
    pub(super) parameters: Parameters,
    pub(super) results: Vec<Row>,
    /// The size that was measured when the user interrupted the test.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) interrupted: Option<u64>,
}

impl Outcome {
    pub(super) fn new(server: SocketAddr, own_server: bool, test: &Test) -> Self {
        let parameters = Parameters {
            amount: test.amount,
            qps: test.qps,
            threads: test.threads,
            bidirectional: test.bidirectional,
            events: test.events,
            verify: test.verify,
            tx_depth: test.tx_depth,
            post_list: test.post_list,
            cq_mod: test.cq_mod,
            atomic: (test.operation == Operation::Atomic).then_some(test.atomic),
        };
        Self {
            operation: test.operation,
            test: test.measure,
            transport: test.transport,
            server,
            own_server,
            link: Link::Sockets,
            parameters,
            results: Vec::new(),
            interrupted: None,
        }
    }
}

/// The result of a size.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Row {
    pub(super) size: u64,
    /// Timed messages of both directions, without those that were lost.
    pub(super) messages: u64,
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) bandwidth: Option<Bandwidth>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) latency: Option<Latency>,
    /// Messages that did not arrive, of the warm-up too. Only unreliable services lose messages.
    pub(super) lost: u64,
    /// Bytes that were compared, on both sides and of the warm-up too. A wrong byte is an error, and there is no result.
    pub(super) verified_bytes: u64,
}

/// Rates, in the units of perftest and in GB/s.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub(super) struct Bandwidth {
    pub(super) mib_per_second: f64,
    pub(super) gbit_per_second: f64,
    pub(super) gb_per_second: f64,
    pub(super) million_messages_per_second: f64,
}

impl Row {
    pub(super) fn new(test: &Test, size: u64, measured: &Measured) -> Self {
        let Measured { own, peer } = measured;
        let uncounted = test.transport.is_lossy() && !test.is_one_sided() && !test.verify;
        let lost = |sender: &Tally, receiver: &Tally| match uncounted {
            true => sender.sent.saturating_sub(receiver.received),
            false => sender.lost,
        };
        let (own_lost, peer_lost) = match test.measure {
            // The server repeats answers, but only the client knows which were missing.
            Measure::Lat => (own.lost, 0),
            _ => (lost(own, peer), lost(peer, own)),
        };
        // A latency is that of a message that arrived, after others that were lost.
        let delivered = |tally: &Tally, lost| match test.measure {
            Measure::Lat => tally.messages,
            _ => tally.messages.saturating_sub(lost),
        };
        let rate = |messages: u64, tally: &Tally| match tally.nanoseconds() {
            0 => 0.0,
            time => messages as f64 / (time as f64 / 1e9),
        };
        let (own_messages, peer_messages) = (delivered(own, own_lost), delivered(peer, peer_lost));
        let messages = own_messages + peer_messages;
        let per_second = rate(own_messages, own) + rate(peer_messages, peer);
        let bytes = per_second * size as f64;
        let bandwidth = Bandwidth {
            mib_per_second: bytes / f64::from(1 << 20),
            gbit_per_second: bytes * 8.0 / 1e9,
            gb_per_second: bytes / 1e9,
            million_messages_per_second: per_second / 1e6,
        };
        Self {
            size,
            messages,
            bytes: messages.saturating_mul(size),
            seconds: own.nanoseconds().max(peer.nanoseconds()) as f64 / 1e9,
            bandwidth: (test.measure != Measure::Lat).then_some(bandwidth),
            latency: own.latency.as_ref().map(|latencies| latencies.summary()),
            lost: own_lost + peer_lost,
            verified_bytes: own.verified + peer.verified,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn test(transport: Transport, bidirectional: bool) -> Test {
        Test {
            operation: Operation::Send,
            measure: Measure::Bw,
            transport,
            sizes: vec![1000],
            amount: Amount::Iterations(10),
            qps: 1,
            threads: 1,
            bidirectional,
            events: false,
            verify: false,
            tx_depth: 128,
            post_list: 1,
            cq_mod: None,
            atomic: Atomic::FetchAdd,
        }
    }

    fn sent(messages: u64, received: u64) -> Tally {
        Tally {
            messages,
            sent: messages,
            received,
            start: 5,
            end: 1_000_000_005,
            ..Tally::default()
        }
    }

    #[test]
    fn rates_follow_from_messages_and_time() {
        let own = sent(1_000_000, 0);
        let peer = Tally { received: 1_000_000, ..Tally::default() };
        let row = Row::new(&test(Transport::Rc, false), 1000, &Measured { own, peer });
        let rates = row.bandwidth.unwrap();
        assert_eq!((row.messages, row.bytes, row.lost), (1_000_000, 1_000_000_000, 0));
        assert!((rates.gb_per_second - 1.0).abs() < 1e-9, "{rates:?}");
        assert!((rates.gbit_per_second - 8.0).abs() < 1e-9, "{rates:?}");
        assert!((rates.mib_per_second - 953.674_316).abs() < 1e-3, "{rates:?}");
        assert!((rates.million_messages_per_second - 1.0).abs() < 1e-9, "{rates:?}");
    }

    #[test]
    fn both_directions_are_added() {
        let both = Measured { own: sent(1000, 3000), peer: sent(3000, 1000) };
        let row = Row::new(&test(Transport::Rc, true), 1000, &both);
        assert_eq!((row.messages, row.lost), (4000, 0));
    }

    #[test]
    fn lost_messages_do_not_count() {
        let peer = Tally { received: 900, ..Tally::default() };
        let row =
            Row::new(&test(Transport::Ud, false), 1000, &Measured { own: sent(1000, 0), peer });
        assert_eq!((row.messages, row.lost), (900, 100));
        let both = Measured { own: sent(1000, 3000), peer: sent(3000, 900) };
        let row = Row::new(&test(Transport::Ud, true), 1000, &both);
        assert_eq!((row.messages, row.lost), (3900, 100));
    }
}
