//! The connection manager (IBA chapter 12): connections are asked for, accepted, rejected and ended by messages
//! between the queue pairs 1 of two hosts, and services are resolved to datagram queue pairs.
//!
//! A [`ConnectionManager`] is one host's end of all of them. It follows the crate's rule: messages and time go in,
//! messages, [`Event`]s and the next timeout come out. Names follow from a seed, starting PSNs and queue pairs are the
//! consumer's. Who may do what when is the table in [`TRANSITIONS`]; `docs/connection-manager.md` has it printed.
//!
//! | active side | passive side |
//! |---|---|
//! | [`connect`](ConnectionManager::connect) | [`listen`](ConnectionManager::listen) |
//! | | [`Event::Request`] → [`accept`](ConnectionManager::accept) or [`reject`](ConnectionManager::reject) |
//! | [`Event::Reply`] → [`ready`](ConnectionManager::ready) | |
//! | | [`Event::Established`] |
//!
//! Then, on either side, [`disconnect`](ConnectionManager::disconnect), on the other [`Event::DisconnectRequest`] →
//! [`confirm_disconnect`](ConnectionManager::confirm_disconnect), and on both [`Event::Disconnected`] and, when the
//! queue pair may be used again, [`Event::Rested`].
//!
//! There is one manager for each local address: what it sends, it sends from there.
//!
//! A peer cannot make a manager remember more than its [`Config`] allows, nor for longer.

mod active;
mod config;
mod connection;
mod delay;
mod disconnect;
mod event;
mod name;
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
    ApStatus, Apr, CLASS_VERSION, CommId, Lap, Message, MessageError, Rej, RejectReason,
    RejectedMessage, ServiceId, SidrStatus,
};
use ferroce_wire::mad::{AttributeId, Mad, ManagementClass, Method, TransactionId};

pub use config::{Config, Keepalive};
pub use event::{
    CallError, Disconnection, Event, Failure, Ignored, ServiceInUse, TooMany, Transmit,
};
pub use parameters::{
    AcceptParameters, ConnectParameters, ConnectionId, Enhancements, Query, QueryId, Rejection,
    Resolution, ResolutionId, ResolveParameters, roce_path,
};
pub use peer::{Reply, Request};
pub use private_data::{
    DrepData, DreqData, Information, MraData, PrivateDataTooLong, RejData, RepData, ReqData,
    RtuData, SidrRepData, SidrReqData, private_data, rdmacm_private_data,
};
pub use probe::{Farewell, ProbeSchedule};
pub use state::{Phase, State, TRANSITIONS, TransitionTable, Trigger};

use crate::time::Instant;
use name::Names;
use resolution::Resolutions;
use table::Table;
use timer::Timers;

/// One address's end of its connections and service resolutions.
#[derive(Debug)]
pub struct ConnectionManager {
    config: Config,
    names: Names,
    table: Table,
    resolutions: Resolutions,
    /// Services that take connections, with how many unanswered requests they allow.
    listeners: BTreeMap<u64, usize>,
    timers: Timers,
    /// When the keepalive timer fires, if it runs.
    sweep: Option<Instant>,
    transmits: VecDeque<Transmit>,
    events: VecDeque<Event>,
}

/// Where a message came from, and in which MAD.
#[derive(Clone, Copy, Debug)]
struct Envelope {
    from: Gid,
    traffic_class: u8,
    transaction: TransactionId,
    /// Options of enhancements.
    modifier: u32,
}

impl ConnectionManager {
    /// A manager that knows nobody.
    pub fn new(config: Config) -> Self {
        Self {
            config,
            names: Names::within(config.seed, config.slot),
            table: Table::default(),
            resolutions: Resolutions::default(),
            listeners: BTreeMap::new(),
            timers: Timers::default(),
            sweep: None,
            transmits: VecDeque::new(),
            events: VecDeque::new(),
        }
    }

    /// Takes requests for a service. When `backlog` of them are unanswered, further ones are dropped; the peers ask
    /// again.
    pub fn listen(&mut self, service: ServiceId, backlog: usize) -> Result<(), ServiceInUse> {
        if self.listeners.contains_key(&service.0) {
            return Err(ServiceInUse(service));
        }
        self.listeners.insert(service.0, backlog);
        Ok(())
    }

    /// Takes no more requests for a service. Those that were taken still want an answer.
    pub fn unlisten(&mut self, service: ServiceId) {
        self.listeners.remove(&service.0);
    }

    /// Whether a message from `from` is for something that this manager has: a connection, a question, or a service
    /// that somebody listens for. Where several managers share an address, others are for one of the others.
    pub fn knows(&self, from: Gid, transaction: TransactionId, message: &Message) -> bool {
        let (listeners, table) = (&self.listeners, &self.table);
        match message {
            Message::Req(req) => {
                listeners.contains_key(&req.service_id.0)
                    || table.by_remote_id(from, req.local_ca_guid, req.local_comm_id).is_some()
            }
            Message::SidrReq(request) => self.resolutions.knows(from, transaction, request),
            Message::Rej(rej) => {
                let envelope = Envelope { from, traffic_class: 0, transaction, modifier: 0 };
                self.rejected(&envelope, rej).is_ok_and(|id| table.contains(id))
            }
            other => other
                .remote_comm_id()
                .is_some_and(|id| table.contains(id) || self.resolutions.contains(id)),
        }
    }

    /// Takes in the payload of a datagram to queue pair 1 that came from `from`, with no traffic class.
    pub fn handle_mad(&mut self, now: Instant, from: Gid, mad: &[u8]) -> Result<(), Ignored> {
        self.handle_datagram(now, from, 0, mad)
    }

    /// Takes in the payload of a datagram to queue pair 1 that came from `from` with this traffic class.
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
        match Message::from_mad(&mad) {
            Ok(message) => self.handle(now, &envelope, &message),
            Err(error) => {
                self.refuse_version(&envelope, &mad, error)?;
                Err(Ignored::NotMessage(error))
            }
        }
    }

    /// Takes in a message that came from `from`, when the MAD around it is read already. Options of enhancements, which
    /// stand in the MAD, are taken as none.
    pub fn handle_message(
        &mut self,
        now: Instant,
        from: Gid,
        transaction: TransactionId,
        message: &Message,
    ) -> Result<(), Ignored> {
        self.handle(now, &Envelope { from, traffic_class: 0, transaction, modifier: 0 }, message)
    }

    /// The next message to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// The next news.
    pub fn poll_event(&mut self) -> Option<Event> {
        /// So many wait in ordinary times.
        const USUAL: usize = 16;
        let event = self.events.pop_front();
        if self.events.is_empty() {
            // Many connections may have rested at once, on a busy machine: what that took is not kept for ever.
            self.events.shrink_to(USUAL);
        }
        event
    }

    /// When [`ConnectionManager::handle_timeout`] must be called, if nothing happens before.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next()
    }

    /// Where a connection stands; [`State::Idle`] when it is gone.
    pub fn state(&self, connection: ConnectionId) -> State {
        self.table.get(connection.0).map_or(State::Idle, |connection| connection.state)
    }

    /// How many connections there are, those in time-wait included.
    pub fn connections(&self) -> usize {
        self.table.len()
    }

    /// How many of them are peers' requests that are not yet connections.
    pub fn half_open(&self) -> usize {
        self.table.half_open()
    }

    /// How many questions for services are open, or answered and remembered.
    pub fn resolutions(&self) -> usize {
        self.resolutions.len()
    }

    fn handle(
        &mut self,
        now: Instant,
        envelope: &Envelope,
        message: &Message,
    ) -> Result<(), Ignored> {
        // Every message and event is made room for here; timers make no more than one of each per connection.
        self.check_drained()?;
        match message {
            Message::Req(req) => self.handle_req(now, envelope, req),
            Message::Mra(mra) => self.handle_mra(now, envelope, mra),
            Message::Rej(rej) => self.handle_rej(now, envelope, rej),
            Message::Rep(rep) => self.handle_rep(now, envelope, rep),
            Message::Rtu(rtu) => self.handle_rtu(envelope, rtu),
            Message::Dreq(dreq) => self.handle_dreq(now, envelope, dreq),
            Message::Drep(drep) => self.handle_drep(now, envelope, drep),
            Message::SidrReq(request) => self.handle_sidr_req(now, envelope, request),
            Message::SidrRep(reply) => self.handle_sidr_rep(envelope, reply),
            Message::Lap(lap) => self.handle_lap(envelope, lap),
            Message::Apr(apr) => self.handle_apr(now, envelope, apr),
        }
    }

    fn check_drained(&self) -> Result<(), Ignored> {
        match self.transmits.len().max(self.events.len()) < self.config.max_undrained {
            true => Ok(()),
            false => Err(Ignored::Undrained),
        }
    }

    /// The connection that a message belongs to: it carries our name for it, the peer's, and comes from the peer.
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

    /// Answers a message that belongs to no connection.
    fn reply(&mut self, envelope: &Envelope, message: impl Into<Message>) {
        self.transmits.push_back(Transmit {
            destination: envelope.from,
            traffic_class: envelope.traffic_class,
            connection: None,
            transaction: envelope.transaction,
            modifier: 0,
            message: message.into(),
        });
    }

    /// Rejects a message that belongs to no connection. Its names are given back, each as the other side's.
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

    /// A request in a version that we cannot read is answered in ours, so that the peer knows (IBA 12.6.7.2, reason
    /// 31). The sender's name comes first in every version.
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

    /// Alternate paths are not for a network whose routes are IP's: the answer is always no (IBA 12.8.2).
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

/// What a call's error means for a message.
impl From<CallError> for Ignored {
    fn from(error: CallError) -> Self {
        match error {
            CallError::Gone => Self::Unknown(CommId::default()),
            CallError::State(state) => Self::OutOfPlace(state),
        }
    }
}
