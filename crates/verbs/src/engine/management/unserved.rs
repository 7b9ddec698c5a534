//! Requests for a service that no process listens for. They are not rejected at once, but looked at again for 100 ms.
//!
//! A program may close a listener and open another one while its peer connects already: perftest with `--rdma_cm` does, and
//! nothing tells its client when the second listener exists. With hardware it does in time, because the client resolves an
//! address and a route and creates a QP, which takes milliseconds; here it takes some ten microseconds.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_sys::RxInfo;

use crate::sync::lock;

/// When a request is looked at again, each after the time before.
const WAITS: [Duration; 3] =
    [Duration::from_millis(10), Duration::from_millis(20), Duration::from_millis(70)];

/// Maximum number of requests that wait. Others are rejected at once.
const MAX_REQUESTS: usize = 64;

/// A received management datagram.
#[derive(Debug)]
pub(super) struct Datagram<'a> {
    pub(super) local: SocketAddr,
    pub(super) info: RxInfo,
    /// The packet, to forward it.
    pub(super) packet: Cow<'a, [u8]>,
    /// Its payload.
    pub(super) mad: Cow<'a, [u8]>,
    /// How often it has waited.
    pub(super) waits: usize,
}

/// Requests, and until when they wait.
#[derive(Debug, Default)]
pub(super) struct UnservedRequests(Mutex<Vec<(Instant, Datagram<'static>)>>);

impl UnservedRequests {
    /// Keeps a request. Returns false if it has waited long enough, or too many wait.
    pub(super) fn keep(&self, now: Instant, request: &Datagram<'_>) -> bool {
        let Some(&wait) = WAITS.get(request.waits) else { return false };
        let mut requests = lock(&self.0);
        if requests.len() >= MAX_REQUESTS {
            return false;
        }
        let request = Datagram {
            packet: request.packet.to_vec().into(),
            mad: request.mad.to_vec().into(),
            waits: request.waits + 1,
            ..*request
        };
        requests.push((now + wait, request));
        true
    }

    /// When the next one has waited.
    pub(super) fn next(&self) -> Option<Instant> {
        lock(&self.0).iter().map(|(until, _)| *until).min()
    }

    /// Removes and returns those that have waited.
    pub(super) fn take_due(&self, now: Instant) -> Vec<Datagram<'static>> {
        let mut requests = lock(&self.0);
        let (due, others) = requests.drain(..).partition(|(until, _)| *until <= now);
        *requests = others;
        due.into_iter().map(|(_, request)| request).collect()
    }
}
