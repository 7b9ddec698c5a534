//! The server side: many clients, within limits, and every request executed once.

mod event;
mod exchange;
mod table;

use alloc::collections::VecDeque;

use ferroce_wire::setup::{
    DeviceDiscoveryReq, DeviceDiscoveryResp, ExchangeId, Magic, MessageType, ParseError, Phase,
    Prefix, SetupMessage, Status,
};

use super::retry::{Attempts, Due};
use super::{
    Agreement, Failure, Peer, PhaseTimes, QpParameters, Refused, RegisteredRegion, SetupTransmit,
    UnknownRequest,
};
use crate::time::Instant;
pub use event::{ExchangeHandle, RequestHandle, ServerConfig, ServerEvent};
use exchange::{
    Exchange, PendingRequest, State, Verdict, is_connected, min_mtu, queue_pair_response, refusal,
    region_response,
};
use table::Table;

/// Serves the exchanges of many clients.
///
/// An exchange is identified by its client and ID, and a request by its transaction ID: a retransmission gets the
/// same response, and the owner is not asked again. This holds for [`ServerConfig::linger`] after the end of the
/// exchange.
#[derive(Debug)]
pub struct Server {
    config: ServerConfig,
    table: Table,
    transmits: VecDeque<SetupTransmit>,
    events: VecDeque<ServerEvent>,
}

impl Server {
    /// Creates a server without exchanges.
    pub fn new(config: ServerConfig) -> Self {
        Self {
            config,
            table: Table::new(config.max_exchanges),
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Number of exchanges, at most [`ServerConfig::max_exchanges`].
    pub fn exchanges(&self) -> usize {
        self.table.len()
    }

    /// The times of finished phases, as long as the exchange is kept.
    pub fn times(&self, exchange: ExchangeHandle) -> Option<&PhaseTimes> {
        self.table.get(exchange.0).map(|exchange| &exchange.times)
    }

    /// Handles a datagram with the Q_Key of the set-up exchange. Other messages than requests are ignored.
    pub fn handle_datagram(&mut self, now: Instant, from: Peer, bytes: &[u8]) {
        let Some((prefix, _)) = Prefix::split(bytes) else { return };
        if prefix.magic != Magic::SETUP {
            return;
        }
        let message = match SetupMessage::parse(bytes) {
            Ok(message) => message,
            Err(ParseError::Version(_)) => {
                return self.reply(from, refusal(&prefix, Status::UNSUPPORTED_VERSION));
            }
            Err(_) => return,
        };
        if let SetupMessage::DeviceDiscoveryReq(request) = &message {
            return self.handle_discovery(now, from, &prefix, request);
        }
        let Some(serial) = self.table.find(from, prefix.exchange) else {
            return self.reply(from, refusal(&prefix, Status::UNKNOWN_EXCHANGE));
        };
        let Some(exchange) = self.table.get_mut(serial) else { return };
        let config = &self.config;
        let verdict = match &message {
            SetupMessage::QpCreateReq(request) => {
                exchange.handle_queue_pair(config, &prefix, request)
            }
            SetupMessage::MrRegisterReq(request) => {
                exchange.handle_region(config, &prefix, request)
            }
            SetupMessage::ConnectionReq(request) => {
                exchange.handle_connection(config, &prefix, request)
            }
            SetupMessage::ConnectionConfirm(confirm) => exchange.handle_confirm(confirm),
            _ => return,
        };
        // The client is alive. While CONNECTION_ACCEPT is retransmitted, and after the end, other timers run.
        if exchange.state == State::Open && exchange.accept.is_none() {
            self.table.set_timer(serial, Some(now + self.config.idle));
        }
        self.execute(now, serial, from, &prefix, verdict);
    }

    /// A packet arrived on the exchange's QP: data confirms the connection when CONNECTION_CONFIRM is lost or
    /// overtaken. Only useful while the QP is in RTR.
    pub fn handle_data_received(&mut self, now: Instant, exchange: ExchangeHandle) {
        let is_pending =
            |exchange: &&Exchange| exchange.state == State::Open && exchange.accept.is_some();
        if self.table.get(exchange.0).filter(is_pending).is_some() {
            self.establish(now, exchange.0);
        }
    }

    /// Handles the expiry of [`Server::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(serial) = self.table.pop_expired(now) {
            let Some(exchange) = self.table.get_mut(serial) else { continue };
            match (exchange.state, &mut exchange.accept) {
                (State::Open, Some(accept)) => match accept.due(now) {
                    Due::GiveUp => {
                        let attempts = accept.made();
                        self.give_up(now, serial, Status::TIMEOUT);
                        self.fail_event(serial, Failure::Unconfirmed { attempts });
                    }
                    Due::Repeat(_) | Due::Nothing => {
                        let (deadline, peer) = (accept.deadline(), exchange.peer);
                        let message = exchange.accept_message();
                        self.reply(peer, message);
                        self.table.set_timer(serial, Some(deadline));
                    }
                },
                // The owner does not know an exchange that only did discovery.
                (State::Open, None) if exchange.queue_pair.is_none() => self.table.remove(serial),
                (State::Open, None) => {
                    let phase = exchange.phase();
                    self.give_up(now, serial, Status::TIMEOUT);
                    self.fail_event(serial, Failure::Silent { phase });
                }
                (State::Established | State::Failed(_), _) => self.table.remove(serial),
            }
        }
    }

    /// Phase 2: the server's QP, or the status of a refusal. The path MTU is limited to the client's.
    pub fn respond_queue_pair(
        &mut self,
        now: Instant,
        request: RequestHandle,
        answer: Result<QpParameters, Status>,
    ) -> Result<(), UnknownRequest> {
        let serial = request.exchange.0;
        let (exchange, peer) = self.waiting(request)?;
        let pending = exchange.queue_pair.as_mut();
        let pending =
            pending.filter(|pending| is_pending(pending, request)).ok_or(UnknownRequest)?;
        let prefix = prefix_of(MessageType::QP_CREATE_REQ, exchange.id, pending);
        match answer {
            Ok(mut answer) => {
                answer.qp_type = pending.request.qp_type;
                answer.path_mtu = min_mtu(answer.path_mtu, pending.request.path_mtu);
                pending.answer = Some(answer);
                let connected = is_connected(&pending.request);
                let message = queue_pair_response(exchange.id, pending, &answer);
                exchange.times.finish(Phase::QueuePairs, now, None, 0);
                if connected {
                    self.table.set_timer(serial, Some(now + self.config.idle));
                } else {
                    exchange.state = State::Established;
                    self.table.set_timer(serial, Some(now + self.config.linger));
                }
                self.reply(peer, Some(message));
            }
            Err(status) => self.refuse(now, serial, &prefix, status),
        }
        Ok(())
    }

    /// Phase 3: the server's MR, or the status of a refusal.
    pub fn respond_region(
        &mut self,
        now: Instant,
        request: RequestHandle,
        answer: Result<RegisteredRegion, Status>,
    ) -> Result<(), UnknownRequest> {
        let serial = request.exchange.0;
        let (exchange, peer) = self.waiting(request)?;
        let pending = exchange.regions.iter_mut().find(|pending| is_pending(pending, request));
        let pending = pending.ok_or(UnknownRequest)?;
        let prefix = prefix_of(MessageType::MR_REGISTER_REQ, exchange.id, pending);
        match answer {
            Ok(answer) => {
                pending.answer = Some(answer);
                let message = region_response(exchange.id, pending, &answer);
                exchange.times.finish(Phase::Memory, now, None, 0);
                self.table.set_timer(serial, Some(now + self.config.idle));
                self.reply(peer, Some(message));
            }
            Err(status) => self.refuse(now, serial, &prefix, status),
        }
        Ok(())
    }

    /// Phase 4: the maximum message size, or the status of a refusal. The QP must be in RTR, since the client may
    /// send immediately. The size is limited to the client's and the device's.
    pub fn respond_connection(
        &mut self,
        now: Instant,
        request: RequestHandle,
        answer: Result<u32, Status>,
    ) -> Result<(), UnknownRequest> {
        let (serial, retry) = (request.exchange.0, self.config.retry);
        let device_limit = self.config.device.max_message_size;
        let (exchange, peer) = self.waiting(request)?;
        let pending = exchange.connection.as_mut();
        let pending =
            pending.filter(|pending| is_pending(pending, request)).ok_or(UnknownRequest)?;
        let prefix = prefix_of(MessageType::CONNECTION_REQ, exchange.id, pending);
        match answer {
            Ok(limit) => {
                let limit = limit.min(device_limit).min(pending.request.max_message_size).max(1);
                pending.answer = Some(Agreement { max_message_size: limit, ..pending.request });
                let attempts = Attempts::begin(retry, now);
                exchange.accept = Some(attempts);
                let message = exchange.accept_message();
                self.table.set_timer(serial, Some(attempts.deadline()));
                self.reply(peer, message);
            }
            Err(status) => self.refuse(now, serial, &prefix, status),
        }
        Ok(())
    }

    /// Ends an exchange in progress. No event follows.
    pub fn abort(
        &mut self,
        now: Instant,
        exchange: ExchangeHandle,
        status: Status,
    ) -> Result<(), UnknownRequest> {
        let open = |exchange: &&Exchange| exchange.state == State::Open;
        self.table.get(exchange.0).filter(open).ok_or(UnknownRequest)?;
        self.give_up(now, exchange.0, not_success(status));
        Ok(())
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<SetupTransmit> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ServerEvent> {
        let event = self.events.pop_front()?;
        self.table.event_polled(event.exchange().0);
        Some(event)
    }

    /// When to call [`Server::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.table.next_timer()
    }

    /// Discovery always gets the same response, for new and known exchanges.
    fn handle_discovery(
        &mut self,
        now: Instant,
        from: Peer,
        prefix: &Prefix,
        request: &DeviceDiscoveryReq,
    ) {
        if !request.capabilities.contains(self.config.required) {
            return self.reply(from, refusal(prefix, Status::UNSUPPORTED_CAPABILITY));
        }
        if self.table.find(from, prefix.exchange).is_none() {
            let Some(serial) = self.table.open(Exchange::new(from, prefix.exchange, now)) else {
                return self.reply(from, refusal(prefix, Status::NO_RESOURCES));
            };
            self.table.set_timer(serial, Some(now + self.config.idle));
        }
        let response = self.config.device.response(prefix.exchange, prefix.transaction);
        let response = DeviceDiscoveryResp { attempt: prefix.attempt, ..response };
        self.reply(from, Some(response.into()));
    }

    fn execute(
        &mut self,
        now: Instant,
        serial: u64,
        peer: Peer,
        prefix: &Prefix,
        verdict: Verdict,
    ) {
        let exchange = ExchangeHandle(serial);
        let request = RequestHandle { exchange, transaction: prefix.transaction };
        match verdict {
            Verdict::Ignore => {}
            Verdict::Reply(message) => self.reply(peer, Some(message)),
            Verdict::AskQueuePair(parameters) => {
                self.table.retain(serial);
                self.event(ServerEvent::CreateQueuePair { request, peer, parameters });
            }
            Verdict::AskRegion(parameters) => {
                self.event(ServerEvent::RegisterRegion { request, peer, parameters });
            }
            Verdict::AskConnection(parameters) => {
                self.event(ServerEvent::Connect { request, peer, parameters });
            }
            Verdict::Refuse(status) => self.refuse(now, serial, prefix, status),
            Verdict::Confirmed => self.establish(now, serial),
            Verdict::Abandoned(status) => {
                self.end(now, serial, status);
                self.fail_event(serial, Failure::Abandoned { status });
            }
        }
    }

    fn establish(&mut self, now: Instant, serial: u64) {
        let Some(exchange) = self.table.get_mut(serial) else { return };
        let attempts = exchange.accept.take().map_or(0, |accept| u32::from(accept.made()));
        exchange.state = State::Established;
        exchange.times.finish(Phase::Connection, now, None, attempts);
        let times = exchange.times;
        let agreement = exchange.connection.as_ref().and_then(|pending| pending.answer);
        self.table.set_timer(serial, Some(now + self.config.linger));
        if let Some(agreement) = agreement {
            let exchange = ExchangeHandle(serial);
            self.event(ServerEvent::Connected { exchange, agreement, times });
        }
    }

    /// Ends an exchange with the response to one of its requests.
    fn refuse(&mut self, now: Instant, serial: u64, prefix: &Prefix, status: Status) {
        let status = not_success(status);
        let Some(exchange) = self.table.get(serial) else { return };
        let (peer, has_queue_pair) = (exchange.peer, exchange.queue_pair.is_some());
        self.end(now, serial, status);
        self.reply(peer, refusal(prefix, status));
        // The owner does not know an exchange that never requested a QP.
        if has_queue_pair {
            let phase = prefix.message_type.phase().unwrap_or(Phase::Discovery);
            self.fail_event(serial, Failure::Refused(Refused { phase, status }));
        }
    }

    /// Ends an exchange without a request; notifies a client that may consider itself connected.
    fn give_up(&mut self, now: Instant, serial: u64, status: Status) {
        let Some(exchange) = self.table.get(serial) else { return };
        let (peer, accepted) = (exchange.peer, exchange.accept.is_some());
        let message = exchange.refused_accept_message(status).filter(|_| accepted);
        self.end(now, serial, status);
        self.reply(peer, message);
    }

    fn end(&mut self, now: Instant, serial: u64, status: Status) {
        let Some(exchange) = self.table.get_mut(serial) else { return };
        exchange.state = State::Failed(status);
        exchange.accept = None;
        // It is kept, so that a retransmission is refused like the original.
        self.table.retain(serial);
        self.table.set_timer(serial, Some(now + self.config.linger));
    }

    fn waiting(&mut self, request: RequestHandle) -> Result<(&mut Exchange, Peer), UnknownRequest> {
        let exchange = self.table.get_mut(request.exchange.0).ok_or(UnknownRequest)?;
        if exchange.state != State::Open {
            return Err(UnknownRequest);
        }
        let peer = exchange.peer;
        Ok((exchange, peer))
    }

    fn reply(&mut self, to: Peer, message: Option<SetupMessage>) {
        // Bounds memory if the owner does not send: messages are dropped, as in a network.
        let limit = self.config.max_exchanges.max(1);
        if let Some(message) = message.filter(|_| self.transmits.len() < limit) {
            self.transmits.push_back(SetupTransmit { to, message });
        }
    }

    fn event(&mut self, event: ServerEvent) {
        self.table.event_queued(event.exchange().0);
        self.events.push_back(event);
    }

    fn fail_event(&mut self, serial: u64, failure: Failure) {
        self.event(ServerEvent::Failed { exchange: ExchangeHandle(serial), failure });
    }
}

fn is_pending<Q, A>(pending: &PendingRequest<Q, A>, request: RequestHandle) -> bool {
    pending.transaction == request.transaction && pending.answer.is_none()
}

/// The prefix of a pending request, as far as the response repeats it.
fn prefix_of<Q, A>(
    message_type: MessageType,
    exchange: ExchangeId,
    pending: &PendingRequest<Q, A>,
) -> Prefix {
    let (transaction, attempt) = (pending.transaction, pending.attempt);
    Prefix { message_type, exchange, transaction, attempt, ..Prefix::default() }
}

/// A refusal must not carry the status of success.
fn not_success(status: Status) -> Status {
    if status == Status::SUCCESS { Status::INTERNAL_ERROR } else { status }
}
