//! cm_ids: an end of a connection, or a listener.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ferroce_proto::cm::{ConnectionId, QueryId, ResolutionId};
use ferroce_proto::qp::{PathMtu, QueuePairAttributes, ServiceType};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{ServiceId, SidrStatus};
use ferroce_wire::rdmacm::PortSpace;

use super::attributes::{self, Negotiated};
use super::channel::{Channel, EventChannel};
use super::event::{Event, EventKind, IdName, UserEvent};
use super::link::LocalLink;
use super::parameters::Route;
use crate::context::Context;
use crate::engine::CmEventHandler;
use crate::error::CmError as Error;
use crate::pd::ProtectionDomain;
use crate::queue_pair::{QueuePair, QueuePairOptions};
use crate::sync::lock;

/// The state of a cm_id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    Bound,
    Listening,
    /// Waits for the neighbour entry of the next hop.
    Resolving,
    AddressResolved,
    RouteResolved,
    /// REQ or SIDR_REQ was sent.
    Connecting,
    /// REP was received, and the program modifies its own QP.
    Responded,
    /// A request of the peer is pending.
    Requested,
    /// REP was sent.
    Accepting,
    Connected,
    Disconnecting,
    /// The connection failed or has ended.
    Over,
}

/// The CM exchange of a cm_id with its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Exchange {
    #[default]
    Nothing,
    Connection(ConnectionId),
    Resolution(ResolutionId),
    Query(QueryId),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) stage: Stage,
    /// The program has dropped the cm_id.
    pub(super) closed: bool,
    /// The links on which the port is claimed, or will be when the cm_id listens.
    pub(super) bound: Vec<LocalLink>,
    /// The port is claimed.
    pub(super) claimed: bool,
    /// The port is shared with other cm_ids until one of them listens (`RDMA_OPTION_ID_REUSEADDR`).
    pub(super) shares_port: bool,
    /// The unspecified IPv6 address does not cover IPv4 (`RDMA_OPTION_ID_AFONLY`).
    pub(super) one_family: bool,
    /// The service ID of the port.
    pub(super) service_id: ServiceId,
    /// The device and local address.
    pub(super) local_link: Option<LocalLink>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) traffic_class: u8,
    pub(super) path_mtu: PathMtu,
    /// The state before the neighbour lookup.
    pub(super) before: Stage,
    /// The route that the program has set.
    pub(super) route: Option<Route>,
    pub(super) queue_pair: Option<QueuePair>,
    /// The service of the QP, once it is known.
    pub(super) service: Option<ServiceType>,
    pub(super) exchange: Exchange,
    pub(super) negotiated: Negotiated,
    pub(super) groups: Vec<Gid>,
}

impl State {
    pub(super) fn expect(&self, stages: &[Stage], otherwise: &'static str) -> Result<(), Error> {
        match stages.contains(&self.stage) {
            true => Ok(()),
            false => Err(Error::WrongState { reason: otherwise }),
        }
    }

    /// Returns the service of the connection.
    pub(super) fn service(&self) -> ServiceType {
        let made = self.queue_pair.as_ref().map(QueuePair::service);
        made.or(self.service).unwrap_or(ServiceType::ReliableConnection)
    }

    pub(super) fn local_link(&self) -> Result<LocalLink, Error> {
        self.local_link.clone().ok_or(Error::NoDevice)
    }
}

/// The part of a cm_id that the connection manager refers to.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) name: IdName,
    pub(super) space: PortSpace,
    /// The event channel. Locked while an event is raised, so that [`CmId::migrate`] leaves none behind.
    channel: Mutex<Arc<Channel>>,
    pub(super) state: Mutex<State>,
}

impl Shared {
    /// The reference that the connection manager delivers events through.
    pub(super) fn handler(self: &Arc<Self>) -> Weak<dyn CmEventHandler> {
        let id: Arc<dyn CmEventHandler> = Arc::clone(self) as _;
        Arc::downgrade(&id)
    }

    pub(super) fn raise(&self, kind: EventKind) {
        lock(&self.channel).events.raise(Event { id: self.name, kind });
    }

    pub(super) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&lock(&self.channel))
    }

    /// Moves to another channel, with pending events and the cm_ids of pending requests.
    fn migrate(&self, to: &Arc<Channel>) {
        let mut channel = lock(&self.channel);
        let waiting = channel.events.take_all(|event| event.id == self.name);
        for event in waiting {
            if let EventKind::ConnectRequest(request) = &event.kind {
                request.id.shared().migrate(to);
            }
            to.events.raise(event);
        }
        *channel = Arc::clone(to);
    }

    /// Whether it resolves a UD queue pair instead of connecting.
    pub(super) fn is_datagram(&self, state: &State) -> bool {
        match self.space {
            PortSpace::Udp | PortSpace::Ipoib => true,
            PortSpace::Tcp => false,
            PortSpace::Ib => state.service() == ServiceType::UnreliableDatagram,
        }
    }
}

/// A cm_id: an end of a connection, or a listener. Clones share it.
///
/// When the last clone is dropped, the connection is disconnected and the port is released. See the [module](super) for an
/// example.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_cm_id")]
pub struct CmId {
    owner: Arc<Owner>,
}

#[derive(Debug)]
struct Owner {
    shared: Arc<Shared>,
    process: u32,
}

impl CmId {
    /// Creates a cm_id whose events this channel delivers.
    ///
    /// RoCE has no IP over InfiniBand: as in Linux, a cm_id of that port space can be created, but not bound to a device or
    /// resolved.
    ///
    /// # Errors
    ///
    /// None at present.
    #[doc(alias = "rdma_create_id")]
    pub fn new(channel: &EventChannel, space: PortSpace) -> Result<Self, Error> {
        Ok(Self::with_state(Arc::clone(&channel.channel), space, State::default()))
    }

    pub(super) fn with_state(channel: Arc<Channel>, space: PortSpace, state: State) -> Self {
        let channel = Mutex::new(channel);
        let shared = Shared { name: IdName::next(), space, channel, state: Mutex::new(state) };
        Self { owner: Arc::new(Owner { shared: Arc::new(shared), process: std::process::id() }) }
    }

    pub(super) fn shared(&self) -> &Arc<Shared> {
        &self.owner.shared
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.owner.shared.state)
    }

    /// Returns its name in events.
    pub fn name(&self) -> IdName {
        self.owner.shared.name
    }

    /// Returns its port space.
    pub fn port_space(&self) -> PortSpace {
        self.owner.shared.space
    }

    /// Disconnects and releases the port now, as if the last clone were dropped, and waits until the messages are sent.
    pub fn close(&self) {
        let local_link = self.state().local_link.clone();
        self.owner.end();
        if let Some(local_link) = local_link {
            local_link.flush();
        }
    }

    /// Moves it to another channel, with its pending events.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) {
        self.shared().migrate(&channel.channel);
    }

    /// Raises an event on its channel.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn raise_event(&self, event: UserEvent) {
        self.shared().raise(EventKind::User(event));
    }

    /// Sets the service of its QP, for port spaces that allow several. Call it before connecting.
    pub fn set_service(&self, service: ServiceType) {
        self.state().service = Some(service);
    }

    /// Returns the device, once the address is bound or resolved.
    #[doc(alias = "verbs")]
    pub fn context(&self) -> Option<Context> {
        self.state().local_link.as_ref().map(|local_link| local_link.context.clone())
    }

    /// Returns the index of the local GID, once the address is bound or resolved. For a loopback address outside the GID
    /// table, that of a GID which reaches it.
    pub fn source_index(&self) -> Option<u8> {
        self.state().local_link.as_ref().map(LocalLink::source_index)
    }

    /// Returns the local address and port.
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.state().local
    }

    /// Returns the peer's address and port.
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.state().peer
    }

    /// Returns the path MTU, once the route is resolved.
    pub fn path_mtu(&self) -> PathMtu {
        self.state().path_mtu
    }

    /// Returns the QP of [`CmId::create_queue_pair`].
    pub fn queue_pair(&self) -> Option<QueuePair> {
        self.state().queue_pair.clone()
    }

    /// Sets the type of service or traffic class. Call it before the route is resolved.
    #[doc(alias = "RDMA_OPTION_ID_TOS")]
    pub fn set_type_of_service(&self, traffic_class: u8) {
        self.state().traffic_class = traffic_class;
    }

    /// Lets several cm_ids bind the same port, of which one may listen. Call it before binding.
    #[doc(alias = "RDMA_OPTION_ID_REUSEADDR")]
    pub fn set_port_sharing(&self, shares: bool) {
        self.state().shares_port = shares;
    }

    /// Restricts the unspecified IPv6 address to IPv6. Call it before binding.
    #[doc(alias = "RDMA_OPTION_ID_AFONLY")]
    pub fn set_one_family(&self, one: bool) {
        self.state().one_family = one;
    }

    /// Creates a QP for the connection, in INIT: receives can be posted. The cm_id brings it to RTS when the connection is
    /// established; a UD QP is in RTS at once.
    ///
    /// # Errors
    ///
    /// When the cm_id has a QP, or no device, or the PD belongs to another device; and as [`ProtectionDomain::queue_pair`].
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair(
        &self,
        pd: &ProtectionDomain,
        options: &QueuePairOptions<'_>,
    ) -> Result<QueuePair, Error> {
        let mut state = self.state();
        let local_link = state.local_link()?;
        if state.queue_pair.is_some() {
            return Err(Error::HasQueuePair);
        }
        if !Arc::ptr_eq(local_link.context.adapter(), pd.context().adapter()) {
            return Err(Error::ForeignPd);
        }
        let datagram = options.service == ServiceType::UnreliableDatagram;
        let space = self.port_space();
        let fits = match space {
            PortSpace::Udp => datagram,
            PortSpace::Tcp => !datagram,
            _ => true,
        };
        if !fits {
            return Err(Error::Service { space });
        }
        let queue_pair = pd.queue_pair(options)?;
        attributes::prepare(&queue_pair)?;
        state.queue_pair = Some(queue_pair.clone());
        Ok(queue_pair)
    }

    /// Drops the QP of [`CmId::create_queue_pair`].
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy_queue_pair(&self) {
        let queue_pair = self.state().queue_pair.take();
        drop(queue_pair);
    }

    /// Returns the attributes that bring a QP which the program created into a state.
    ///
    /// # Errors
    ///
    /// For a state that the connection has no attributes for.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn attributes(&self, to: ferroce_proto::qp::State) -> Result<QueuePairAttributes, Error> {
        let state = self.state();
        state.negotiated.attributes(state.service(), to)
    }
}

impl Context {
    /// Returns the number of connections of this process on the device, including those in time-wait.
    pub fn connections(&self) -> usize {
        self.adapter().management.connections.len()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        self.end();
    }
}

impl Owner {
    fn end(&self) {
        if self.process != std::process::id() {
            return; // The connection belongs to the parent process.
        }
        // From here on no event is raised, and no other thread uses the old state.
        let closed = State { closed: true, ..State::default() };
        let old = std::mem::replace(&mut *lock(&self.shared.state), closed);
        old.end();
        // Dropped without a lock: the events may own cm_ids.
        let channel = self.shared.channel();
        drop(channel.events.take_all(|event| event.id == self.shared.name));
    }
}

impl State {
    /// Ends the exchange with the peer, and releases the port.
    fn end(self) {
        if let Some(queue_pair) = &self.queue_pair {
            for group in &self.groups {
                queue_pair.detach(*group);
            }
        }
        let active = matches!(
            self.stage,
            Stage::Connecting | Stage::Responded | Stage::Accepting | Stage::Connected
        );
        if let (Exchange::Connection(_), true) = (self.exchange, active) {
            attributes::fail(self.queue_pair.as_ref());
        }
        if let Some(local_link) = &self.local_link {
            let unanswered = self.stage == Stage::Requested;
            // A closed device has no connections.
            let _ = local_link.act(|manager, now| match self.exchange {
                Exchange::Nothing => {}
                Exchange::Connection(connection) => manager.drop_connection(now, connection),
                Exchange::Resolution(resolution) => {
                    manager.resolutions.remove(&resolution);
                    manager.cm.cancel_resolution(resolution);
                }
                Exchange::Query(query) if unanswered => {
                    manager.drop_query(query, SidrStatus::REJECTED);
                }
                Exchange::Query(_) => {}
            });
        }
        self.release();
    }

    /// Releases the port.
    pub(super) fn release(&self) {
        for local_link in &self.bound {
            // Both under the manager's lock, so that a request finds either the listener or none.
            let _ = local_link.act(|manager, _| {
                if self.stage == Stage::Listening {
                    manager.cm.unlisten(self.service_id);
                    manager.cm.unlisten_datagrams(self.service_id);
                    manager.listeners.remove(&self.service_id.0);
                }
                if let (Some(address), true) = (local_link.address(), self.claimed) {
                    local_link.connections().services.release(address, self.service_id.0);
                }
            });
        }
    }
}
