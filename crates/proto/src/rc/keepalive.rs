//! Keepalives: an idle connection finds out whether its peer is still there.
//!
//! Without them, the end of a peer is detected by the ACK timer of the next request, so a QP that only waits for
//! messages never does. If the owner asks for it, a QP that has heard nothing for some time sends an empty WRITE with
//! the PSN before its next one. For the responder it is a duplicate: it acknowledges it, and executes nothing (IBA
//! C9-105). So the peer needs no support for it, no PSN is used up, and neither memory nor receive requests are touched.
//!
//! A keepalive without an answer is sent again after the ACK timeout, as often as the retry count says. Then the QP
//! enters ERR.

use core::time::Duration;

use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{Bth, Reth};

use super::queue_pair::{Config, Role};
use crate::sequence::Sequence;
use crate::time::Instant;
use crate::transmit::{Payload, Transmit};

/// The peer does not answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Silent;

#[derive(Debug, Default)]
pub(super) struct Keepalive {
    /// The last packet from the peer.
    heard: Instant,
    /// When to look whether the peer was heard. Not moved by each packet, so that a busy QP sets no timer for it.
    due: Option<Instant>,
    /// Keepalives sent since the peer was last heard.
    unanswered: u16,
    /// One is to be sent.
    is_pending: bool,
}

impl Keepalive {
    /// How long the peer may be silent. XRC targets cannot ask, and its initiators would have to name an SRQ.
    pub(super) fn interval(config: &Config) -> Option<Duration> {
        config.keepalive.filter(|_| config.role == Role::Both)
    }

    /// Begins to watch.
    pub(super) fn start(&mut self, now: Instant, interval: Duration) {
        if self.due.is_none() {
            (self.heard, self.due) = (now, Some(now + interval));
        }
    }

    /// A packet has come from the peer.
    pub(super) fn on_packet(&mut self, now: Instant) {
        self.heard = now;
        self.unanswered = 0;
        self.is_pending = false;
    }

    /// An error message of the network says that the last one has not arrived.
    pub(super) fn on_unreachable(&mut self, now: Instant) {
        if self.unanswered > 0 {
            self.due = Some(now);
        }
    }

    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Handles the expiry of [`Keepalive::due`]. A QP with requests in flight (`busy`) has its ACK timer.
    pub(super) fn handle_timeout(
        &mut self,
        now: Instant,
        busy: bool,
        config: &Config,
    ) -> Result<(), Silent> {
        let Some(interval) = Self::interval(config) else {
            self.due = None;
            return Ok(());
        };
        if self.due.is_none_or(|due| due > now) {
            return Ok(());
        }
        let silent_since = if busy { now } else { self.heard };
        if self.unanswered == 0 && silent_since + interval > now {
            self.due = Some(silent_since + interval);
            return Ok(());
        }
        if self.unanswered > u16::from(config.retry_count) {
            return Err(Silent);
        }
        self.unanswered += 1;
        self.is_pending = true;
        self.due = Some(now + config.timeout.unwrap_or(interval));
        Ok(())
    }

    pub(super) fn is_pending(&self) -> bool {
        self.is_pending
    }

    /// The packet to send, if it is time. `next` is the position of the next request.
    pub(super) fn poll_transmit(
        &mut self,
        next: Sequence,
        config: &Config,
    ) -> Option<Transmit<'static>> {
        core::mem::take(&mut self.is_pending).then(|| Transmit {
            bth: Bth {
                opcode: Opcode::RC_RDMA_WRITE_ONLY,
                migrated: true,
                partition: config.partition,
                destination: config.destination,
                ack_request: true,
                psn: next.before().psn(),
                ..Bth::default()
            },
            extensions: ExtensionHeaders {
                reth: Some(Reth::default()),
                ..ExtensionHeaders::default()
            },
            payload: Payload::None,
            by: config.accessor(),
        })
    }
}
