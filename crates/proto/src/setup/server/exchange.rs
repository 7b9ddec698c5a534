//! The server side of one exchange: requests, responses and the checks on requests.

use alloc::vec::Vec;

use ferroce_wire::cm::{AckTimeout, PathMtu, RnrRetry};
use ferroce_wire::number::Qpn;
use ferroce_wire::setup::{
    ConnectionAccept, ConnectionConfirm, ConnectionReq, DeviceDiscoveryResp, ExchangeId,
    MessageType, MrRegisterReq, MrRegisterResp, Phase, Prefix, QUEUE_PAIR, QpCreateReq,
    QpCreateResp, QpType, SetupMessage, Status, TransactionId,
};

use super::ServerConfig;
use crate::setup::parameters::MAX_MESSAGE_SIZE;
use crate::setup::retry::Attempts;
use crate::setup::{
    Agreement, Device, Peer, PhaseTimes, QpParameters, RegionParameters, RegisteredRegion,
};
use crate::time::Instant;

/// A request to the owner, and the owner's response.
#[derive(Clone, Copy, Debug)]
pub(super) struct PendingRequest<Q, A> {
    pub(super) transaction: TransactionId,
    /// Attempt number of the latest copy, repeated in the response.
    pub(super) attempt: u8,
    pub(super) request: Q,
    pub(super) answer: Option<A>,
}

impl<Q, A> PendingRequest<Q, A> {
    fn new(prefix: &Prefix, request: Q) -> Self {
        Self { transaction: prefix.transaction, attempt: prefix.attempt, request, answer: None }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    /// In progress.
    Open,
    /// Established: retransmissions are answered, new requests are refused.
    Established,
    /// Failed: every new request gets this status.
    Failed(Status),
}

#[derive(Debug)]
pub(super) struct Exchange {
    pub(super) peer: Peer,
    pub(super) id: ExchangeId,
    pub(super) state: State,
    pub(super) queue_pair: Option<PendingRequest<QpParameters, QpParameters>>,
    pub(super) regions: Vec<PendingRequest<RegionParameters, RegisteredRegion>>,
    pub(super) connection: Option<PendingRequest<Agreement, Agreement>>,
    /// CONNECTION_ACCEPT in flight, until it is confirmed.
    pub(super) accept: Option<Attempts>,
    pub(super) times: PhaseTimes,
}

/// Result of checking a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// No response: a retransmission of a request that the owner has not answered yet, or an invalid message.
    Ignore,
    /// Respond without a state change, or repeat an earlier response.
    Reply(SetupMessage),
    /// The owner has to answer.
    AskQueuePair(QpParameters),
    AskRegion(RegionParameters),
    AskConnection(Agreement),
    /// Refuse the request and end the exchange.
    Refuse(Status),
    /// The client is ready.
    Confirmed,
    /// The client aborted.
    Abandoned(Status),
}

impl Exchange {
    pub(super) fn new(peer: Peer, id: ExchangeId, now: Instant) -> Self {
        let mut times = PhaseTimes::begin(now);
        // Discovery needs no answer of the owner, so it ends immediately.
        times.finish(Phase::Discovery, now, None, 0);
        Self {
            peer,
            id,
            state: State::Open,
            queue_pair: None,
            regions: Vec::new(),
            connection: None,
            accept: None,
            times,
        }
    }

    /// The current phase.
    pub(super) fn phase(&self) -> Phase {
        if self.connection.is_some() {
            Phase::Connection
        } else if !self.regions.is_empty() {
            Phase::Memory
        } else if self.queue_pair.is_some() {
            Phase::QueuePairs
        } else {
            Phase::Discovery
        }
    }

    /// The client's and the server's QP, once both are known.
    fn queue_pairs(&self) -> Option<(QpParameters, QpParameters)> {
        let pending = self.queue_pair.as_ref()?;
        pending.answer.map(|answer| (pending.request, answer))
    }

    /// Checks a new request: it needs an open exchange in the right phase.
    fn check_new(&self, prefix: &Prefix, belongs: bool) -> Option<Verdict> {
        match self.state {
            State::Open if belongs => None,
            State::Open => Some(Verdict::Refuse(Status::OUT_OF_ORDER)),
            State::Established => Some(reply(prefix, Status::OUT_OF_ORDER)),
            State::Failed(status) => Some(reply(prefix, status)),
        }
    }

    pub(super) fn handle_queue_pair(
        &mut self,
        config: &ServerConfig,
        prefix: &Prefix,
        request: &QpCreateReq,
    ) -> Verdict {
        let (id, open) = (self.id, self.state == State::Open);
        let known =
            self.queue_pair.as_mut().filter(|pending| pending.transaction == prefix.transaction);
        if let Some(pending) = known.filter(|pending| open || pending.answer.is_some()) {
            pending.attempt = prefix.attempt;
            return match pending.answer {
                Some(answer) => Verdict::Reply(queue_pair_response(id, pending, &answer)),
                None => Verdict::Ignore,
            };
        }
        if let Some(verdict) = self.check_new(prefix, self.queue_pair.is_none()) {
            return verdict;
        }
        let parameters = QpParameters::read_request(request);
        if let Err(status) = check_queue_pair(&config.device, &parameters) {
            return Verdict::Refuse(status);
        }
        self.queue_pair = Some(PendingRequest::new(prefix, parameters));
        Verdict::AskQueuePair(parameters)
    }

    pub(super) fn handle_region(
        &mut self,
        config: &ServerConfig,
        prefix: &Prefix,
        request: &MrRegisterReq,
    ) -> Verdict {
        let (id, open) = (self.id, self.state == State::Open);
        let known =
            self.regions.iter_mut().find(|pending| pending.transaction == prefix.transaction);
        if let Some(pending) = known.filter(|pending| open || pending.answer.is_some()) {
            pending.attempt = prefix.attempt;
            return match pending.answer {
                Some(answer) => Verdict::Reply(region_response(id, pending, &answer)),
                None => Verdict::Ignore,
            };
        }
        let connectable = self.queue_pairs().is_some_and(|(client, _)| is_connected(&client));
        if let Some(verdict) = self.check_new(prefix, connectable && self.connection.is_none()) {
            return verdict;
        }
        if self.regions.len() >= config.max_regions {
            return Verdict::Refuse(Status::NO_MEMORY_REGION);
        }
        let parameters = RegionParameters::read(request);
        // The MR would end beyond the address space.
        if parameters.address.0.checked_add(parameters.length).is_none() {
            return Verdict::Refuse(Status::INVALID_PARAMETER);
        }
        self.regions.push(PendingRequest::new(prefix, parameters));
        Verdict::AskRegion(parameters)
    }

    pub(super) fn handle_connection(
        &mut self,
        config: &ServerConfig,
        prefix: &Prefix,
        request: &ConnectionReq,
    ) -> Verdict {
        let (id, failed) = (self.id, matches!(self.state, State::Failed(_)));
        let known =
            self.connection.as_mut().filter(|pending| pending.transaction == prefix.transaction);
        if let Some(pending) = known.filter(|_| !failed) {
            pending.attempt = prefix.attempt;
            return match pending.answer {
                Some(answer) => Verdict::Reply(accept(id, pending, &answer)),
                None => Verdict::Ignore,
            };
        }
        let queue_pairs = self.queue_pairs().filter(|(client, _)| is_connected(client));
        let belongs = queue_pairs.is_some()
            && self.connection.is_none()
            && self.regions.iter().all(|region| region.answer.is_some());
        if let Some(verdict) = self.check_new(prefix, belongs) {
            return verdict;
        }
        let Some((client, server)) = queue_pairs else { return Verdict::Ignore };
        if let Err(status) = self.check_connection(&config.device, request, &client, &server) {
            return Verdict::Refuse(status);
        }
        let agreement = Agreement::read_request(request);
        self.connection = Some(PendingRequest::new(prefix, agreement));
        Verdict::AskConnection(agreement)
    }

    /// Checks a CONNECTION_REQ against the results of the earlier phases.
    fn check_connection(
        &self,
        device: &Device,
        request: &ConnectionReq,
        client: &QpParameters,
        server: &QpParameters,
    ) -> Result<(), Status> {
        if (request.client_qp, request.server_qp) != (client.qp_number, server.qp_number) {
            return Err(Status::NO_QUEUE_PAIR);
        }
        let mut keys = self.regions.iter().filter_map(|region| region.answer);
        // Zero means no MR.
        if request.server_key.0 != 0 && !keys.any(|region| region.remote_key == request.server_key)
        {
            return Err(Status::KEY_MISMATCH);
        }
        let retries = request.timeout != AckTimeout::NEVER
            || request.retry_count != 0
            || request.rnr_retry_count != RnrRetry::NEVER;
        if request.server_guid != device.guid
            || !(1..=MAX_MESSAGE_SIZE).contains(&request.max_message_size)
            || client.qp_type == QpType::UC && retries
        {
            return Err(Status::INVALID_PARAMETER);
        }
        Ok(())
    }

    pub(super) fn handle_confirm(&mut self, confirm: &ConnectionConfirm) -> Verdict {
        let Some(pending) = &mut self.connection else { return Verdict::Ignore };
        if pending.transaction != confirm.transaction {
            return Verdict::Ignore;
        }
        match (self.state, confirm.status) {
            (State::Open, Status::SUCCESS) if self.accept.is_some() => Verdict::Confirmed,
            (State::Open, Status::SUCCESS) => Verdict::Ignore,
            // A client may also fail after its confirmation.
            (State::Open | State::Established, status) if status != Status::SUCCESS => {
                Verdict::Abandoned(status)
            }
            // The client considers the connection established, but the server has given up.
            (State::Failed(status), Status::SUCCESS) => {
                pending.attempt = confirm.attempt;
                Verdict::Reply(refused_accept(
                    self.id,
                    pending.transaction,
                    pending.attempt,
                    status,
                ))
            }
            _ => Verdict::Ignore,
        }
    }

    /// The CONNECTION_ACCEPT to be confirmed.
    pub(super) fn accept_message(&self) -> Option<SetupMessage> {
        let pending = self.connection.as_ref()?;
        pending.answer.as_ref().map(|answer| accept(self.id, pending, answer))
    }

    /// The same with the status of the server's failure.
    pub(super) fn refused_accept_message(&self, status: Status) -> Option<SetupMessage> {
        let pending = self.connection.as_ref()?;
        Some(refused_accept(self.id, pending.transaction, pending.attempt, status))
    }
}

/// Whether a QP goes through phases 3 and 4: UD needs no connection.
pub(super) fn is_connected(queue_pair: &QpParameters) -> bool {
    queue_pair.qp_type != QpType::UD
}

fn check_queue_pair(device: &Device, pending: &QpParameters) -> Result<(), Status> {
    if pending.qp_type.to_set().0 == 0 || !device.transports.contains(pending.qp_type.to_set()) {
        return Err(Status::UNSUPPORTED_TRANSPORT);
    }
    // QPNs reserved for management, this exchange and multicast.
    let reserved = pending.qp_number.0 <= QUEUE_PAIR.0 || pending.qp_number == Qpn::MULTICAST;
    if reserved || pending.path_mtu.bytes().is_none() {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(())
}

/// The smaller of two MTUs.
pub(super) fn min_mtu(a: PathMtu, b: PathMtu) -> PathMtu {
    if a.0 <= b.0 { a } else { b }
}

pub(super) fn queue_pair_response<Q>(
    id: ExchangeId,
    pending: &PendingRequest<Q, QpParameters>,
    answer: &QpParameters,
) -> SetupMessage {
    let response = answer.response(id, pending.transaction);
    QpCreateResp { attempt: pending.attempt, ..response }.into()
}

pub(super) fn region_response<Q>(
    id: ExchangeId,
    pending: &PendingRequest<Q, RegisteredRegion>,
    answer: &RegisteredRegion,
) -> SetupMessage {
    let response = answer.response(id, pending.transaction);
    MrRegisterResp { attempt: pending.attempt, ..response }.into()
}

fn accept<Q>(
    id: ExchangeId,
    pending: &PendingRequest<Q, Agreement>,
    answer: &Agreement,
) -> SetupMessage {
    let response = answer.accept(id, pending.transaction);
    ConnectionAccept { attempt: pending.attempt, ..response }.into()
}

fn refused_accept(
    id: ExchangeId,
    transaction: TransactionId,
    attempt: u8,
    status: Status,
) -> SetupMessage {
    ConnectionAccept { status, attempt, ..ConnectionAccept::new(id, transaction) }.into()
}

fn reply(prefix: &Prefix, status: Status) -> Verdict {
    refusal(prefix, status).map_or(Verdict::Ignore, Verdict::Reply)
}

/// A response with only a status; `None` when the message is not a request.
pub(super) fn refusal(prefix: &Prefix, status: Status) -> Option<SetupMessage> {
    let (id, transaction, attempt) = (prefix.exchange, prefix.transaction, prefix.attempt);
    Some(match prefix.message_type {
        MessageType::DEVICE_DISCOVERY_REQ => {
            let response = DeviceDiscoveryResp::new(id, transaction);
            DeviceDiscoveryResp { status, attempt, ..response }.into()
        }
        MessageType::QP_CREATE_REQ => {
            QpCreateResp { status, attempt, ..QpCreateResp::new(id, transaction) }.into()
        }
        MessageType::MR_REGISTER_REQ => {
            MrRegisterResp { status, attempt, ..MrRegisterResp::new(id, transaction) }.into()
        }
        MessageType::CONNECTION_REQ => refused_accept(id, transaction, attempt, status),
        _ => return None,
    })
}
