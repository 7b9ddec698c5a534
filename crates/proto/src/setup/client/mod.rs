//! The client side of an exchange.

mod event;

use ferroce_wire::cm::{AckTimeout, RnrRetry};
use ferroce_wire::setup::{
    ConnectionAccept, ConnectionConfirm, ConnectionReq, DeviceDiscoveryReq, DeviceDiscoveryResp,
    ExchangeId, Magic, ParseError, Phase, Prefix, QpCreateResp, QpType, SetupMessage, Status,
    TransactionId,
};

use super::retry::{Attempts, Due};
use super::{
    Agreement, ConnectionParameters, Device, Peer, PhaseTimes, QpParameters, Refused,
    RegionParameters, RegisteredRegion, SetupError, SetupTransmit, Violation, WrongStep,
};
use crate::time::Instant;

pub use event::{ClientConfig, ClientEvent};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// A request of this phase is in flight.
    Requested(Phase),
    /// The request of this phase was answered: the owner takes the next step.
    Answered(Phase),
    /// CONNECTION_ACCEPT arrived, the owner has not confirmed.
    Accepted,
    Connected,
    Failed,
}

/// The client side of one exchange.
#[derive(Clone, Debug)]
pub struct Client {
    config: ClientConfig,
    server: Peer,
    stage: Stage,
    next_transaction: u32,
    /// The request in flight.
    request: Option<(SetupMessage, Attempts)>,
    queue_pair: Option<QpParameters>,
    device: Option<Device>,
    server_qp: Option<QpParameters>,
    /// The sent CONNECTION_REQ, to compare CONNECTION_ACCEPT with.
    connection: Option<ConnectionReq>,
    /// The status for responses to further CONNECTION_ACCEPTs.
    outcome: Option<Status>,
    lingers_until: Option<Instant>,
    transmit: Option<SetupMessage>,
    confirm: Option<ConnectionConfirm>,
    event: Option<ClientEvent>,
    times: PhaseTimes,
}

impl Client {
    /// Starts an exchange with a server: the first request is ready to send.
    pub fn new(config: ClientConfig, server: Peer, now: Instant) -> Self {
        let mut client = Self {
            config,
            server,
            stage: Stage::Answered(Phase::Discovery),
            next_transaction: config.first_transaction.0,
            request: None,
            queue_pair: None,
            device: None,
            server_qp: None,
            connection: None,
            outcome: None,
            lingers_until: None,
            transmit: None,
            confirm: None,
            event: None,
            times: PhaseTimes::begin(now),
        };
        let transaction = client.transaction();
        let request = DeviceDiscoveryReq {
            client_id: config.id,
            capabilities: config.capabilities,
            ..DeviceDiscoveryReq::new(config.exchange, transaction)
        };
        client.send_request(now, Phase::Discovery, request.into());
        client
    }

    /// The exchange ID, which identifies its datagrams.
    pub const fn exchange(&self) -> ExchangeId {
        self.config.exchange
    }

    /// The times of finished phases.
    pub const fn times(&self) -> &PhaseTimes {
        &self.times
    }

    /// Whether the connection is established: [`Client::confirm`] was called, and nothing failed since.
    pub fn is_connected(&self) -> bool {
        self.stage == Stage::Connected
    }

    /// Whether the exchange ended and no more retransmissions of CONNECTION_ACCEPT are expected. Dropping the client
    /// earlier makes the server wait for its timeout.
    pub fn is_drained(&self) -> bool {
        matches!(self.stage, Stage::Connected | Stage::Failed)
            && self.lingers_until.is_none()
            && self.confirm.is_none()
            && self.event.is_none()
    }

    /// Phase 2: offers the client's QP and requests one from the server.
    pub fn create_queue_pair(
        &mut self,
        now: Instant,
        parameters: QpParameters,
    ) -> Result<(), WrongStep> {
        if self.stage != Stage::Answered(Phase::Discovery) {
            return Err(WrongStep);
        }
        self.queue_pair = Some(parameters);
        let request = parameters.request(self.config.exchange, self.transaction());
        self.send_request(now, Phase::QueuePairs, request.into());
        Ok(())
    }

    /// Phase 3: offers an MR of the client and requests one from the server. May be repeated.
    pub fn register_region(
        &mut self,
        now: Instant,
        parameters: RegionParameters,
    ) -> Result<(), WrongStep> {
        self.connectable()?;
        let request = parameters.request(self.config.exchange, self.transaction());
        self.send_request(now, Phase::Memory, request.into());
        Ok(())
    }

    /// Phase 4: requests the connection. The client's QP must be in RTR, since the server may send immediately.
    pub fn connect(
        &mut self,
        now: Instant,
        parameters: ConnectionParameters,
    ) -> Result<(), WrongStep> {
        let (client_qp, server_qp, device) = self.connectable()?;
        let mut request = ConnectionReq {
            client_qp: client_qp.qp_number,
            server_qp: server_qp.qp_number,
            client_guid: parameters.client_guid,
            server_guid: device.guid,
            client_key: parameters.client_key,
            server_key: parameters.server_key,
            max_message_size: parameters.max_message_size,
            // Masked to the field widths, so that the response can be compared.
            timeout: AckTimeout(parameters.timeout.0 & 0x1f),
            retry_count: parameters.retry_count & 7,
            rnr_retry_count: RnrRetry(parameters.rnr_retry_count.0 & 7),
            ..ConnectionReq::new(self.config.exchange, self.transaction())
        };
        if client_qp.qp_type == QpType::UC {
            // UC has no retransmission.
            (request.timeout, request.retry_count) = (AckTimeout::NEVER, 0);
            request.rnr_retry_count = RnrRetry::NEVER;
        }
        self.connection = Some(request);
        self.send_request(now, Phase::Connection, request.into());
        Ok(())
    }

    /// Phase 4: the client's QP is in RTS. Data may follow.
    pub fn confirm(&mut self, now: Instant) -> Result<(), WrongStep> {
        if self.stage != Stage::Accepted {
            return Err(WrongStep);
        }
        self.stage = Stage::Connected;
        // The round trip was measured when CONNECTION_ACCEPT arrived; the phase lasts until now.
        let round_trip = self.times.phase(Phase::Connection).and_then(|time| time.round_trip);
        self.times.finish(Phase::Connection, now, round_trip, 0);
        self.conclude(now, Status::SUCCESS);
        Ok(())
    }

    /// Aborts at any time. The server is notified if it may have accepted; before that its timeout ends the exchange.
    pub fn abort(&mut self, now: Instant, status: Status) {
        let phase = self.phase();
        self.fail(now, SetupError::Aborted(Refused { phase, status }), status);
        // The owner knows already.
        self.event = None;
    }

    /// Handles a datagram with the Q_Key of the set-up exchange. Unrelated datagrams are ignored.
    pub fn handle_datagram(&mut self, now: Instant, from: Peer, bytes: &[u8]) {
        let Some((prefix, _)) = Prefix::split(bytes) else { return };
        if from != self.server
            || prefix.magic != Magic::SETUP
            || prefix.exchange != self.config.exchange
        {
            return;
        }
        match SetupMessage::parse(bytes) {
            Ok(SetupMessage::ConnectionAccept(accept)) if self.request.is_none() => {
                self.handle_repeated_accept(now, &accept);
            }
            Ok(message) => self.handle_response(now, &prefix, Some(message)),
            // A server of another version refuses in its own version.
            Err(ParseError::Version(_)) if prefix.status == Status::UNSUPPORTED_VERSION => {
                self.handle_response(now, &prefix, None);
            }
            Err(_) => {}
        }
    }

    /// Handles the expiry of [`Client::poll_timeout`].
    pub fn handle_timeout(&mut self, now: Instant) {
        if self.lingers_until.is_some_and(|until| now >= until) {
            self.lingers_until = None;
        }
        let Some((message, attempts)) = &mut self.request else { return };
        match attempts.due(now) {
            Due::Nothing => {}
            Due::Repeat(attempt) => {
                set_attempt(message, attempt);
                self.transmit = Some(*message);
            }
            Due::GiveUp => {
                let attempts = attempts.made();
                let error = SetupError::NoAnswer { phase: self.phase(), attempts };
                self.fail(now, error, Status::TIMEOUT);
            }
        }
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<SetupTransmit> {
        let message =
            self.transmit.take().or_else(|| self.confirm.take().map(SetupMessage::from))?;
        Some(SetupTransmit { to: self.server, message })
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<ClientEvent> {
        self.event.take()
    }

    /// When to call [`Client::handle_timeout`].
    pub fn poll_timeout(&self) -> Option<Instant> {
        let retry = self.request.as_ref().map(|(_, attempts)| attempts.deadline());
        retry.or(self.lingers_until)
    }

    fn transaction(&mut self) -> TransactionId {
        let transaction = TransactionId(self.next_transaction);
        self.next_transaction = self.next_transaction.wrapping_add(1);
        transaction
    }

    fn phase(&self) -> Phase {
        match self.stage {
            Stage::Requested(phase) | Stage::Answered(phase) => phase,
            Stage::Accepted | Stage::Connected | Stage::Failed => Phase::Connection,
        }
    }

    /// The two QPs and the server's device, when phase 3 or 4 may start.
    fn connectable(&self) -> Result<(QpParameters, QpParameters, Device), WrongStep> {
        match (self.stage, self.queue_pair, self.server_qp, self.device) {
            (
                Stage::Answered(Phase::QueuePairs | Phase::Memory),
                Some(client),
                Some(server),
                Some(device),
            ) if client.qp_type != QpType::UD => Ok((client, server, device)),
            _ => Err(WrongStep),
        }
    }

    fn send_request(&mut self, now: Instant, phase: Phase, request: SetupMessage) {
        self.stage = Stage::Requested(phase);
        self.request = Some((request, Attempts::begin(self.config.retry, now)));
        self.transmit = Some(request);
    }

    /// `message` is `None` for another protocol version, which cannot be parsed.
    fn handle_response(&mut self, now: Instant, prefix: &Prefix, message: Option<SetupMessage>) {
        let Stage::Requested(phase) = self.stage else { return };
        let Some((request, attempts)) = &self.request else { return };
        let requested = request.prefix();
        if prefix.transaction != requested.transaction
            || requested.message_type.response() != Some(prefix.message_type)
        {
            return;
        }
        if prefix.status != Status::SUCCESS {
            let refused = Refused { phase, status: prefix.status };
            self.fail(now, SetupError::Refused(refused), prefix.status);
            // The server knows this already.
            (self.outcome, self.confirm, self.lingers_until) = (None, None, None);
            return;
        }
        let (round_trip, made) = (attempts.since(prefix.attempt, now), u32::from(attempts.made()));
        let read = match message {
            Some(SetupMessage::DeviceDiscoveryResp(message)) => Ok(self.read_device(&message)),
            Some(SetupMessage::QpCreateResp(message)) => self.read_queue_pair(&message),
            Some(SetupMessage::MrRegisterResp(message)) => {
                Ok(ClientEvent::RegionRegistered(RegisteredRegion::read(&message)))
            }
            Some(SetupMessage::ConnectionAccept(message)) => self.read_accept(&message),
            _ => return,
        };
        self.request = None;
        self.transmit = None;
        self.times.finish(phase, now, round_trip, made);
        match read {
            Ok(event) => {
                self.stage = match phase {
                    Phase::Connection => Stage::Accepted,
                    _ => Stage::Answered(phase),
                };
                self.event = Some(event);
            }
            Err(violation) => {
                let error = SetupError::Violation { phase, violation };
                self.fail(now, error, Status::INVALID_PARAMETER);
            }
        }
    }

    fn read_device(&mut self, response: &DeviceDiscoveryResp) -> ClientEvent {
        let device = Device::read(response);
        self.device = Some(device);
        ClientEvent::Discovered(device)
    }

    fn read_queue_pair(&mut self, response: &QpCreateResp) -> Result<ClientEvent, Violation> {
        let requested = self.queue_pair.unwrap_or_default();
        let server = QpParameters::read_response(response);
        if server.qp_type != requested.qp_type {
            return Err(Violation::QpType);
        }
        if server.path_mtu.bytes().is_none() || server.path_mtu.bytes() > requested.path_mtu.bytes()
        {
            return Err(Violation::PathMtu);
        }
        self.server_qp = Some(server);
        Ok(ClientEvent::QueuePairCreated(server))
    }

    fn read_accept(&mut self, accept: &ConnectionAccept) -> Result<ClientEvent, Violation> {
        let requested = self.connection.as_ref().map(Agreement::read_request);
        let agreed = Agreement::read_accept(accept);
        let Some(requested) = requested else { return Err(Violation::QueuePairs) };
        if (agreed.client_qp, agreed.server_qp) != (requested.client_qp, requested.server_qp) {
            return Err(Violation::QueuePairs);
        }
        if (agreed.client_key, agreed.server_key) != (requested.client_key, requested.server_key) {
            return Err(Violation::Keys);
        }
        if agreed.max_message_size == 0 || agreed.max_message_size > requested.max_message_size {
            return Err(Violation::MaxMessageSize);
        }
        // Only timeout and retry counts remain.
        if (Agreement { max_message_size: requested.max_message_size, ..agreed }) != requested {
            return Err(Violation::Retries);
        }
        Ok(ClientEvent::Accepted(agreed))
    }

    /// Handles a retransmitted CONNECTION_ACCEPT, or one that reports that the server gave up.
    fn handle_repeated_accept(&mut self, now: Instant, accept: &ConnectionAccept) {
        let Some(request) = &self.connection else { return };
        if accept.transaction != request.transaction {
            return;
        }
        if accept.status == Status::SUCCESS {
            if let Some(outcome) = self.outcome {
                self.confirm = Some(self.confirmation(outcome, accept.attempt));
            }
        } else if matches!(self.stage, Stage::Accepted | Stage::Connected) {
            let refused = Refused { phase: Phase::Connection, status: accept.status };
            self.fail(now, SetupError::Refused(refused), accept.status);
            (self.outcome, self.confirm, self.lingers_until) = (None, None, None);
        }
    }

    fn confirmation(&self, status: Status, attempt: u8) -> ConnectionConfirm {
        let request = self.connection.unwrap_or_default();
        ConnectionConfirm {
            status,
            attempt,
            client_qp: request.client_qp,
            server_qp: request.server_qp,
            ..ConnectionConfirm::new(request.exchange, request.transaction)
        }
    }

    /// Sends the outcome to the server, now and in response to every further CONNECTION_ACCEPT.
    fn conclude(&mut self, now: Instant, status: Status) {
        self.outcome = Some(status);
        self.confirm = Some(self.confirmation(status, 0));
        self.lingers_until = Some(now + self.config.linger);
    }

    fn fail(&mut self, now: Instant, error: SetupError, status: Status) {
        if self.stage == Stage::Failed {
            return;
        }
        self.stage = Stage::Failed;
        (self.request, self.transmit) = (None, None);
        (self.outcome, self.confirm, self.lingers_until) = (None, None, None);
        if self.connection.is_some() {
            self.conclude(now, status);
        }
        self.event = Some(ClientEvent::Failed(error));
    }
}

/// Sets the attempt number, the only difference between a request and its retransmission.
pub(super) fn set_attempt(message: &mut SetupMessage, attempt: u8) {
    match message {
        SetupMessage::DeviceDiscoveryReq(message) => message.attempt = attempt,
        SetupMessage::QpCreateReq(message) => message.attempt = attempt,
        SetupMessage::MrRegisterReq(message) => message.attempt = attempt,
        SetupMessage::ConnectionReq(message) => message.attempt = attempt,
        _ => {}
    }
}
