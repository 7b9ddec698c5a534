//! Requests for a service that no process listens for. They are not rejected at once, but looked at again for 100 ms.
//!
//! A program may close a listener and open another one while its peer connects already: perftest with `--rdma_cm` does, and
//! nothing tells its client when the second listener exists. With hardware it does in time, because the client resolves an
//! address and a route and creates a QP, which takes milliseconds; here it takes some ten microseconds.

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
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram<'a> {
    pub(super) link: u8,
    pub(super) local: SocketAddr,
    pub(super) info: &'a RxInfo,
    /// The packet, to forward it.
    pub(super) packet: &'a [u8],
    /// Its payload.
    pub(super) mad: &'a [u8],
    /// How often it has waited.
    pub(super) waits: usize,
}

#[derive(Debug)]
pub(super) struct UnservedRequest {
    link: u8,
    local: SocketAddr,
    info: RxInfo,
    packet: Box<[u8]>,
    mad: Box<[u8]>,
    waits: usize,
    until: Instant,
}

impl UnservedRequest {
    pub(super) fn datagram(&self) -> Datagram<'_> {
        Datagram {
            link: self.link,
            local: self.local,
            info: &self.info,
            packet: &self.packet,
            mad: &self.mad,
            waits: self.waits,
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct UnservedRequests(Mutex<Vec<UnservedRequest>>);

impl UnservedRequests {
    /// Keeps a request. Returns false if it has waited long enough, or too many wait.
    pub(super) fn keep(&self, now: Instant, request: &Datagram<'_>) -> bool {
        let Some(&wait) = WAITS.get(request.waits) else { return false };
        let mut requests = lock(&self.0);
        if requests.len() >= MAX_REQUESTS {
            return false;
        }
        requests.push(UnservedRequest {
            link: request.link,
            local: request.local,
            info: *request.info,
            packet: request.packet.into(),
            mad: request.mad.into(),
            waits: request.waits + 1,
            until: now + wait,
        });
        true
    }

    /// When the next one has waited.
    pub(super) fn next(&self) -> Option<Instant> {
        lock(&self.0).iter().map(|request| request.until).min()
    }

    /// Removes and returns those that have waited.
    pub(super) fn take_due(&self, now: Instant) -> Vec<UnservedRequest> {
        let mut requests = lock(&self.0);
        let (due, others) =
            requests.drain(..).partition(|request: &UnservedRequest| request.until <= now);
        *requests = others;
        due
    }
}
