//! Discovery: one request to many servers, and the list of those that respond.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use ferroce_wire::setup::{
    Capabilities, DeviceDiscoveryReq, ExchangeId, PeerId, SetupMessage, Status, TransactionId,
};

use super::retry::{Attempts, Due};
use super::{Device, Growth, Peer, RetryPolicy};
use crate::time::Instant;

/// Parameters of a discovery.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryConfig {
    /// The exchange ID, in the request and all responses.
    pub exchange: ExchangeId,
    /// The transaction ID of the request.
    pub transaction: TransactionId,
    /// The client's ID.
    pub id: PeerId,
    /// The client's capabilities.
    pub capabilities: Capabilities,
    /// Retransmission of the request. Responses to all copies count until the deadline.
    pub retry: RetryPolicy,
    /// How long responses are collected.
    pub duration: Duration,
    /// Maximum number of listed servers. Further ones are only counted.
    pub max_responders: usize,
}

impl DiscoveryConfig {
    /// Sends the request three times, at 0, 250 and 500 ms, collects responses for a second, and lists up to 256
    /// servers.
    pub fn new(exchange: ExchangeId, transaction: TransactionId) -> Self {
        let interval = Duration::from_millis(250);
        Self {
            exchange,
            transaction,
            id: PeerId(0),
            capabilities: Capabilities(0),
            retry: RetryPolicy {
                attempts: 3,
                first: interval,
                growth: Growth::Fixed,
                longest: interval,
            },
            duration: Duration::from_secs(1),
            max_responders: 256,
        }
    }
}

/// A server that responded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responder {
    /// Its address.
    pub peer: Peer,
    /// Its device, or the status of its refusal.
    pub answer: Result<Device, Status>,
    /// Time from the answered copy of the request to the response.
    pub round_trip: Option<Duration>,
}

/// Events of a [`Discovery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryEvent {
    /// A server responded for the first time, or offers a service that it refused before.
    Found(Responder),
    /// The deadline passed: the list is complete.
    Finished,
}

/// Sends a request to many servers, and lists those that respond before a deadline.
///
/// The request is one message; the owner chooses its destinations: a multicast group, a broadcast address, or
/// individual peers. To connect to a listed server, create a [`Client`](super::Client) with a new exchange ID.
#[derive(Clone, Debug)]
pub struct Discovery {
    config: DiscoveryConfig,
    attempts: Attempts,
    deadline: Option<Instant>,
    transmit: Option<DeviceDiscoveryReq>,
    found: Vec<Responder>,
    unlisted: u64,
    events: VecDeque<DiscoveryEvent>,
}

impl Discovery {
    /// Starts a discovery.
    pub fn new(config: DiscoveryConfig, now: Instant) -> Self {
        let mut discovery = Self {
            config,
            attempts: Attempts::begin(config.retry, now),
            deadline: Some(now + config.duration),
            transmit: None,
            found: Vec::new(),
            unlisted: 0,
            events: VecDeque::new(),
        };
        discovery.transmit = Some(discovery.request(0));
        discovery
    }

    /// The servers that responded so far, in order.
    pub fn found(&self) -> &[Responder] {
        &self.found
    }

    /// Number of responses from servers that the list has no room for.
    pub const fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Whether the deadline has passed.
    pub const fn is_finished(&self) -> bool {
        self.deadline.is_none()
    }

    /// Handles a datagram with the Q_Key of the set-up exchange. Unrelated datagrams are ignored.
    pub fn handle_datagram(&mut self, now: Instant, from: Peer, bytes: &[u8]) {
        let Ok(SetupMessage::DeviceDiscoveryResp(response)) = SetupMessage::parse(bytes) else {
            return;
        };
        let ours = (self.config.exchange, self.config.transaction);
        // The deadline may have passed without a call of `handle_timeout`.
        let late = self.deadline.is_none_or(|deadline| now >= deadline);
        if (response.exchange, response.transaction) != ours || late {
            return;
        }
        let responder = Responder {
            peer: from,
            answer: match response.status {
                Status::SUCCESS => Ok(Device::read(&response)),
                status => Err(status),
            },
            round_trip: self.attempts.since(response.attempt, now),
        };
        let has_room = self.found.len() < self.config.max_responders;
        match self.found.iter_mut().find(|known| known.peer == from) {
            Some(known) if known.answer.is_err() && responder.answer.is_ok() => *known = responder,
            Some(_) => return,
            None if has_room => self.found.push(responder),
            None => {
                self.unlisted = self.unlisted.saturating_add(1);
                return;
            }
        }
        self.events.push_back(DiscoveryEvent::Found(responder));
    }

    /// Handles the expiry of [`Discovery::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(deadline) = self.deadline else { return };
        if now >= deadline {
            (self.deadline, self.transmit) = (None, None);
            self.events.push_back(DiscoveryEvent::Finished);
        } else if let Due::Repeat(attempt) = self.attempts.due(now) {
            // After the last attempt, responses are still collected.
            self.transmit = Some(self.request(attempt));
        }
    }

    /// The request, to be sent to all destinations.
    pub fn poll_transmit(&mut self) -> Option<SetupMessage> {
        self.transmit.take().map(SetupMessage::from)
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<DiscoveryEvent> {
        self.events.pop_front()
    }

    /// When to call [`Discovery::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.deadline?;
        let retransmits = self.attempts.made() < self.config.retry.attempts();
        Some(if retransmits { deadline.min(self.attempts.deadline()) } else { deadline })
    }

    fn request(&self, attempt: u8) -> DeviceDiscoveryReq {
        DeviceDiscoveryReq {
            attempt,
            client_id: self.config.id,
            capabilities: self.config.capabilities,
            ..DeviceDiscoveryReq::new(self.config.exchange, self.config.transaction)
        }
    }
}
