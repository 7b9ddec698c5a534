//! The connection manager (CM, IBA chapter 12): connects, accepts, rejects and disconnects by messages between the
//! QPs 1 of two hosts, and resolves services to UD QPs.
//!
//! A [`ConnectionManager`] is one host's side of all connections. It follows the interface of the crate: messages and
//! time go in, messages, [`Event`]s and the next timeout come out. Communication IDs derive from a seed; the consumer
//! chooses starting PSNs and QPs. [`TRANSITIONS`] is the state table, also in `docs/connection-manager.md`.
//!
//! | active side | passive side |
//! |---|---|
//! | [`connect`](ConnectionManager::connect) | [`listen`](ConnectionManager::listen) |
//! | | [`Event::Request`] → [`accept`](ConnectionManager::accept) or [`reject`](ConnectionManager::reject) |
//! | [`Event::Reply`] → [`ready`](ConnectionManager::ready) | |
//! | | [`Event::Established`] |
//!
//! Then either side calls [`disconnect`](ConnectionManager::disconnect), the other one gets
//! [`Event::DisconnectRequest`] and calls [`confirm_disconnect`](ConnectionManager::confirm_disconnect), and both get
//! [`Event::Disconnected`] and, when the QP may be reused, [`Event::TimeWaitEnded`].
//!
//! There is one manager per local address, which is the source of its messages.
//!
//! A peer cannot make a manager keep more state than its [`Config`] allows, nor for longer.

mod active;
mod comm_id;
mod config;
mod connection;
mod delay;
mod disconnect;
mod event;
mod overtaken;
mod owner;
mod parameters;
mod passive;
mod peer;
mod private_data;
mod probe;
mod rejection;
mod resolution;
mod state;
mod table;
mod timeout;
mod timer;
mod unreachable;

#[cfg(test)]
mod tests;

use alloc::collections::{BTreeMap, VecDeque};

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{
    ApStatus, Apr, CLASS_VERSION, CmMessage, CommId, Lap, MessageError, Rej, RejectReason,
    RejectedMessage, ServiceId, SidrStatus,
};
use ferroce_wire::mad::{AttributeId, Mad, ManagementClass, Method, TransactionId};

pub use config::{Config, Keepalive};
pub use event::{
    CallError, Disconnection, Event, Failure, Ignored, Loss, ServiceInUse, TooMany, Transmit,
};
pub use owner::Owner;
pub use parameters::{
    AcceptParameters, ConnectParameters, ConnectionId, Enhancements, Query, QueryId, Rejection,
    Resolution, ResolutionId, ResolveParameters, roce_path,
};
pub use peer::{Reply, Request};
pub use private_data::{
    DrepData, DreqData, Information, MraData, PrivateDataTooLong, RejData, RepData, ReqData,
    RtuData, SidrRepData, SidrReqData, private_data, rdmacm_private_data,
};
pub use probe::{DisconnectNotice, ProbeSchedule};
pub use state::{Phase, State, TRANSITIONS, TransitionTable, Trigger};

use crate::time::Instant;
use comm_id::CommIds;
use overtaken::Overtaking;
use resolution::Resolutions;
use table::Table;
use timer::Timers;

/// The connections and service resolutions of one local address.
#[derive(Debug)]
pub struct ConnectionManager {
    config: Config,
    comm_ids: CommIds,
    table: Table,
    resolutions: Resolutions,
    /// Listening services and their backlogs.
    listeners: BTreeMap<u64, usize>,
    timers: Timers,
    overtaking: Overtaking,
    /// Expiry of the keepalive timer, if it runs.
    keepalive_at: Option<Instant>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

/// Source and MAD header of a message.
#[derive(Clone, Copy, Debug)]
struct Envelope {
    from: Gid,
    traffic_class: u8,
    transaction: TransactionId,
    /// Vendor options.
    modifier: u32,
}

impl ConnectionManager {
    /// Creates a manager without connections.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            comm_ids: CommIds::within(config.seed, config.slot),
            table: Table::default(),
            resolutions: Resolutions::default(),
            listeners: BTreeMap::new(),
            timers: Timers::default(),
            overtaking: Overtaking::default(),
            keepalive_at: None,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Listens for connections to a service. When `backlog` requests are unanswered, further ones are dropped; peers
    /// retransmit them.
    pub fn listen(&mut self, service: ServiceId, backlog: usize) -> Result<(), ServiceInUse> {
        if self.listeners.contains_key(&service.0) {
            return Err(ServiceInUse(service));
        }
        self.listeners.insert(service.0, backlog);
        Ok(())
    }

    /// Stops listening. Requests already received still need an answer.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.listeners.remove(&service.0);
    }

    /// Whether a message from `from` concerns this manager: a connection, a resolution or a listening service. Where
    /// several managers share an address, other messages are for one of the others.
    pub(super) fn concerns(
        &self,
        from: Gid,
        transaction: TransactionId,
        message: &CmMessage,
    ) -> bool {
        let (listeners, table) = (&self.listeners, &self.table);
        match message {
            CmMessage::Req(req) => {
                listeners.contains_key(&req.service_id.0)
                    || table.by_remote_id(from, req.local_ca_guid, req.local_comm_id).is_some()
            }
            CmMessage::SidrReq(request) => self.resolutions.concerns(from, transaction, request),
            CmMessage::Rej(rej) => {
                let envelope = Envelope { from, traffic_class: 0, transaction, modifier: 0 };
                self.rejected(&envelope, rej).is_ok_and(|id| table.contains(id))
            }
            other => other
                .remote_comm_id()
                .is_some_and(|id| table.contains(id) || self.resolutions.contains(id)),
        }
    }

    /// Handles the payload of a datagram to QP 1 from `from`, without a traffic class.
    pub fn handle_mad(&mut self, now: Instant, from: Gid, mad: &[u8]) -> Result<(), Ignored> {
        self.handle_datagram(now, from, 0, mad)
    }

    /// Handles the payload of a datagram to QP 1 from `from` with this traffic class.
    pub fn handle_datagram(
        &mut self,
        now: Instant,
        from: Gid,
        traffic_class: u8,
        mad: &[u8],
    ) -> Result<(), Ignored> {
        let mad = Mad::parse(mad).map_err(Ignored::NotMad)?;
        let (transaction, modifier) = (mad.header.transaction, mad.header.modifier.0);
        let envelope = Envelope { from, traffic_class, transaction, modifier };
        match CmMessage::from_mad(&mad) {
            Ok(message) => self.handle(now, &envelope, &message),
            Err(error) => {
                self.refuse_version(&envelope, &mad, error)?;
                Err(Ignored::NotMessage(error))
            }
        }
    }

    /// Handles a message from `from` whose MAD was parsed by the caller. Vendor options, which are in the MAD header,
    /// are taken as zero.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: Gid,
        transaction: TransactionId,
        message: &CmMessage,
    ) -> Result<(), Ignored> {
        self.handle(now, &Envelope { from, traffic_class: 0, transaction, modifier: 0 }, message)
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next event.
    pub fn poll_event(&mut self) -> Option<Event> {
        /// Capacity that is kept.
        const KEPT_CAPACITY: usize = 16;
        let event = self.events.pop_front();
        if self.events.is_empty() {
            // Many connections may leave TimeWait together: release the capacity that this took.
            self.events.shrink_to(KEPT_CAPACITY);
        }
        event
    }

    /// When to call [`ConnectionManager::handle_timeout`], if nothing happens earlier.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// State of a connection; [`State::Idle`] when it does not exist.
    pub fn state(&self, connection: ConnectionId) -> State {
        self.table.get(connection.0).map_or(State::Idle, |connection| connection.state)
    }

    /// Number of connections, including those in TimeWait.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// Number of half-open connections (peers' requests).
    pub fn half_open(&self) -> usize {
        self.table.half_open()
    }

    /// Number of service resolutions, pending or kept for retransmissions.
    pub fn resolutions(&self) -> usize {
        self.resolutions.len()
    }

    fn handle(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        message: &CmMessage,
    ) -> Result<(), Ignored> {
        // Bounds messages and events; timers add at most one of each per connection.
        self.check_drained()?;
        let result = match message {
            CmMessage::Req(req) => self.handle_req(now, envelope, req),
            CmMessage::Mra(mra) => self.handle_mra(now, envelope, mra),
            CmMessage::Rej(rej) => self.handle_rej(now, envelope, rej),
            CmMessage::Rep(rep) => self.handle_rep(now, envelope, rep),
            CmMessage::Rtu(rtu) => self.handle_rtu(envelope, rtu),
            CmMessage::Dreq(dreq) => self.handle_dreq(now, envelope, dreq),
            CmMessage::Drep(drep) => self.handle_drep(now, envelope, drep),
            CmMessage::SidrReq(request) => self.handle_sidr_req(now, envelope, request),
            CmMessage::SidrRep(reply) => self.handle_sidr_rep(envelope, reply),
            CmMessage::Lap(lap) => self.handle_lap(envelope, lap),
            CmMessage::Apr(apr) => self.handle_apr(now, envelope, apr),
        };
        self.handle_overtaking(now);
        result
    }

    fn check_drained(&self) -> Result<(), Ignored> {
        match self.transmits.len().max(self.events.len()) < self.config.max_undrained {
            true => Ok(()),
            false => Err(Ignored::Undrained),
        }
    }

    /// Finds the connection of a message by our ID, the peer's ID and the source address.
    fn find(
        &self,
        envelope: &Envelope,
        ours: CommId,
        theirs: CommId,
    ) -> Result<&connection::Connection, Ignored> {
        let connection = self.table.get(ours).ok_or(Ignored::Unknown(ours))?;
        match connection.is_with(envelope.from, theirs) {
            true => Ok(connection),
            false => Err(Ignored::Unknown(ours)),
        }
    }

    /// Responds to a message without a connection.
    fn reply(&mut self, envelope: &Envelope, message: impl Into<CmMessage>) {
        self.transmits.push_back(Transmit {
            destination: envelope.from,
            traffic_class: envelope.traffic_class,
            connection: None,
            transaction: envelope.transaction,
            modifier: 0,
            message: message.into(),
        });
    }

    /// Rejects a message without a connection, with its IDs swapped.
    fn refuse(
        &mut self,
        envelope: &Envelope,
        message: RejectedMessage,
        ours: CommId,
        theirs: CommId,
        reason: RejectReason,
    ) {
        let rej =
            Rej { local_comm_id: ours, remote_comm_id: theirs, message, reason, ..Rej::default() };
        self.reply(envelope, rej);
    }

    /// Rejects a request of an unknown class version (IBA 12.6.7.2, reason 31). The sender's ID comes first in every
    /// version.
    fn refuse_version(
        &mut self,
        envelope: &Envelope,
        mad: &Mad<'_>,
        error: MessageError,
    ) -> Result<(), Ignored> {
        let header = &mad.header;
        let is_request =
            header.class == ManagementClass::COMMUNICATION && header.method == Method::SEND;
        if !is_request || !matches!(error, MessageError::ClassVersion(_)) {
            return Ok(());
        }
        self.check_drained()?;
        let [a, b, c, d, ..] = *mad.data;
        let sender = CommId(u32::from_be_bytes([a, b, c, d]));
        match header.attribute {
            AttributeId::REQ => {
                let mut rej = Rej {
                    remote_comm_id: sender,
                    message: RejectedMessage::REQ,
                    reason: RejectReason::UNSUPPORTED_CLASS_VERSION,
                    information_length: 1,
                    ..Rej::default()
                };
                rej.information.0[0] = CLASS_VERSION;
                self.reply(envelope, rej);
            }
            AttributeId::SIDR_REQ => {
                let status = SidrStatus::UNSUPPORTED_VERSION;
                self.refuse_resolution(envelope, sender, ServiceId(0), status);
            }
            _ => {}
        }
        Ok(())
    }

    /// Alternate paths are not supported, since IP does the routing: always responds with a failure (IBA 12.8.2).
    fn handle_lap(&mut self, envelope: &Envelope, lap: &Lap) -> Result<(), Ignored> {
        let (ours, theirs) = (lap.remote_comm_id, lap.local_comm_id);
        let (status, result) = match self.find(envelope, ours, theirs) {
            Err(unknown) => (ApStatus::INVALID_COMM_ID, Err(unknown)),
            Ok(connection) if connection.state != State::Established => {
                return Err(Ignored::OutOfPlace(connection.state));
            }
            Ok(connection) if connection.local_qpn != lap.remote_qpn => {
                (ApStatus::QPN_MISMATCH, Err(Ignored::WrongQueuePair))
            }
            Ok(_) => (ApStatus::NOT_SUPPORTED, Ok(())),
        };
        let apr = Apr { local_comm_id: ours, remote_comm_id: theirs, status, ..Apr::default() };
        self.reply(envelope, apr);
        result
    }
}

/// Converts the error of a call to that of a message.
impl From<CallError> for Ignored {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Gone => Self::Unknown(CommId::default()),
            CallError::State(state) => Self::OutOfPlace(state),
        }
    }
}
