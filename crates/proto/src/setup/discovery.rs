//! Who is there? One question to many servers, and the list of those who answer.

use alloc::collections::VecDeque;
use alloc::vec::Vec;
use core::time::Duration;

use ferroce_wire::setup::{
    Capabilities, DeviceDiscoveryReq, ExchangeId, Message, PeerId, Status, TransactionId,
};

use super::retry::{Attempts, Due};
use super::{Device, Growth, Peer, RetryPolicy};
use crate::time::Instant;

/// How to ask around.
#[derive(Clone, Copy, Debug)]
pub struct DiscoveryConfig {
    /// The number of the exchange, in the question and all answers.
    pub exchange: ExchangeId,
    /// The number of the question.
    pub transaction: TransactionId,
    /// The client's name for itself.
    pub id: PeerId,
    /// What the client can do.
    pub capabilities: Capabilities,
    /// How often the question is repeated for those whom a copy did not reach. All answers count until the deadline.
    pub retry: RetryPolicy,
    /// How long answers are collected.
    pub duration: Duration,
    /// How many servers are listed. Further ones are counted only.
    pub max_responders: usize,
}

impl DiscoveryConfig {
    /// Asks three times in a second, at 0, 250 and 500 ms, and lists up to 256 servers.
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

/// A server that answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Responder {
    /// Where it is.
    pub peer: Peer,
    /// What it is, or why it will not serve.
    pub answer: Result<Device, Status>,
    /// From the copy of the question that it answered to its answer.
    pub round_trip: Option<Duration>,
}

/// News of a [`Discovery`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DiscoveryEvent {
    /// A server answered for the first time, or offers service that it refused before.
    Found(Responder),
    /// The deadline has come: the list is complete.
    Finished,
}

/// Asks many servers at once, and lists who answers until a deadline.
///
/// The question is one message; where it goes is the owner's choice: to a multicast group, to a broadcast address, or
/// to one peer after the other. To connect to one of those found, begin a [`Client`](super::Client) with it, with an
/// exchange number of its own.
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
    /// Begins to ask.
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
        discovery.transmit = Some(discovery.question(0));
        discovery
    }

    /// Those who answered so far, in the order in which they first did.
    pub fn found(&self) -> &[Responder] {
        &self.found
    }

    /// Answers from servers for which the list has no room.
    pub const fn unlisted(&self) -> u64 {
        self.unlisted
    }

    /// Whether the deadline has passed.
    pub const fn is_finished(&self) -> bool {
        self.deadline.is_none()
    }

    /// A datagram with the set-up exchange's queue key came from `from`. Others' datagrams are ignored.
    pub fn handle_datagram(&mut self, now: Instant, from: Peer, bytes: &[u8]) {
        let Ok(Message::DeviceDiscoveryResp(response)) = Message::parse(bytes) else { return };
        let ours = (self.config.exchange, self.config.transaction);
        // Time may have come without handle_timeout having been called.
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

    /// The time that [`Discovery::poll_timeout`] gave has come.
    pub fn handle_timeout(&mut self, now: Instant) {
        let Some(deadline) = self.deadline else { return };
        if now >= deadline {
            (self.deadline, self.transmit) = (None, None);
            self.events.push_back(DiscoveryEvent::Finished);
        } else if let Due::Repeat(attempt) = self.attempts.due(now) {
            // Giving up means to ask no more, not to listen no more.
            self.transmit = Some(self.question(attempt));
        }
    }

    /// The question, to be sent to everyone who might answer.
    pub fn poll_transmit(&mut self) -> Option<Message> {
        self.transmit.take().map(Message::from)
    }

    /// The next piece of news.
    pub fn poll_event(&mut self) -> Option<DiscoveryEvent> {
        self.events.pop_front()
    }

    /// When [`Discovery::handle_timeout`] is to be called.
    pub fn poll_timeout(&self) -> Option<Instant> {
        let deadline = self.deadline?;
        let asks_again = self.attempts.made() < self.config.retry.attempts();
        Some(if asks_again { deadline.min(self.attempts.deadline()) } else { deadline })
    }

    fn question(&self, attempt: u8) -> DeviceDiscoveryReq {
        DeviceDiscoveryReq {
            attempt,
            client_id: self.config.id,
            capabilities: self.config.capabilities,
            ..DeviceDiscoveryReq::new(self.config.exchange, self.config.transaction)
        }
    }
}
