//! Waiting for events of the connection manager.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ferroce::cm::{CmId, ConnectParameters, Established, EventChannel, EventKind, RejectReason};
use ferroce::cm::{PortSpace, ResponseTimeout};
use ferroce::{AckTimeout, RnrTimer};

use super::failure::Failure;

/// How long a step of the connection manager may take before the manager itself counts as broken.
const EVENT_TIMEOUT: Duration = Duration::from_secs(30);

/// How long address resolution may take; it needs no response from a peer.
pub(crate) const RESOLVE: Duration = Duration::from_secs(5);

/// READs and atomics in flight.
const READS: u8 = 16;

/// How soon a client considers packets lost. Servers use the client's setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Haste {
    /// Within seconds.
    Hasty,
    /// Longer than a busy machine delays a process, so that nothing is retransmitted unless packets are lost.
    Calm,
}

/// The connection parameters of both sides.
pub(crate) fn parameters(private_data: Vec<u8>, haste: Haste) -> ConnectParameters {
    let (ack, response) = match haste {
        // 0.5 s, eight retries; 1.1 s, four retries.
        Haste::Hasty => (17, 18),
        // 1.1 s; 2.1 s.
        Haste::Calm => (18, 19),
    };
    ConnectParameters {
        private_data,
        responder_resources: READS,
        initiator_depth: READS,
        ack_timeout: AckTimeout(ack),
        response_timeout: ResponseTimeout(response),
        max_retries: 3,
        // 1.28 ms.
        min_rnr_timer: RnrTimer::from_code(14).unwrap_or_default(),
        ..ConnectParameters::default()
    }
}

/// A client's cm_id and its events.
#[derive(Debug)]
pub(crate) struct Caller {
    channel: EventChannel,
    pub(crate) id: CmId,
    peer: SocketAddr,
}

impl Caller {
    pub(crate) fn new(channel: EventChannel, peer: SocketAddr) -> Result<Self, Failure> {
        let id = CmId::new(&channel, PortSpace::Tcp)?;
        Ok(Self { channel, id, peer })
    }

    fn next(&self, what: &'static str) -> Result<EventKind, Failure> {
        let deadline = Instant::now() + EVENT_TIMEOUT;
        loop {
            match self.channel.wait(Some(deadline))? {
                Some(event) if event.id == self.id.name() => return Ok(event.kind),
                Some(_) => {}
                None => return Err(Failure::Timeout(what, EVENT_TIMEOUT.as_secs())),
            }
        }
    }

    fn unexpected(&self, what: EventKind) -> Failure {
        match what {
            EventKind::AddressError(error)
            | EventKind::RouteError(error)
            | EventKind::ConnectError(error) => error.into(),
            EventKind::Unreachable(_) => Failure::Unreachable(self.peer),
            EventKind::Rejected { reason: RejectReason::INVALID_SERVICE_ID, .. } => {
                Failure::NoListener(self.peer)
            }
            EventKind::Rejected { reason: RejectReason::CONSUMER_REJECT, private_data } => {
                let end = private_data.iter().position(|byte| *byte == 0);
                let text = &private_data[..end.unwrap_or(private_data.len())];
                Failure::Refused(printed(text))
            }
            EventKind::Rejected { reason, .. } => Failure::Rejected(self.peer, reason),
            EventKind::Disconnected(_) => Failure::Disconnected,
            other => Failure::Other(format!("unexpected CM event: {other:?}")),
        }
    }

    pub(crate) fn resolve_address(&self) -> Result<(), Failure> {
        self.id.resolve_address(None, self.peer, RESOLVE)?;
        match self.next("the address")? {
            EventKind::AddressResolved => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    pub(crate) fn resolve_route(&self) -> Result<(), Failure> {
        self.id.resolve_route(RESOLVE)?;
        match self.next("the route")? {
            EventKind::RouteResolved => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }

    pub(crate) fn connect(&self, wish: &ConnectParameters) -> Result<Box<Established>, Failure> {
        self.id.connect(wish)?;
        match self.next("the server's answer")? {
            EventKind::Established(established) => Ok(established),
            other => Err(self.unexpected(other)),
        }
    }

    pub(crate) fn disconnect(&self) -> Result<(), Failure> {
        self.id.disconnect()?;
        match self.next("the end of the connection")? {
            EventKind::Disconnected(_) => Ok(()),
            other => Err(self.unexpected(other)),
        }
    }
}

/// Text from the peer, without control characters.
pub(crate) fn printed(text: &[u8]) -> String {
    crate::style::printable(&String::from_utf8_lossy(text)).into_owned()
}
