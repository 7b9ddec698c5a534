//! cm_ids, their channels and their events. A cm_id has a channel, a channel has events, and the event of a connection
//! request has a cm_id.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ferroce_proto::qp::{PathMtu, ServiceType};
use ferroce_wire::cm::{RejectReason, SidrStatus};
use ferroce_wire::rdmacm::PortSpace;

use super::link::LocalLink;
use super::parameters::{DisconnectCause, Established, Group, PeerParameters};
use super::state::State;
use crate::context::Context;
use crate::engine::CmEventHandler;
use crate::error::CmError as Error;
use crate::event_queue::EventQueue;
use crate::options::Options;
use crate::queue_pair::QueuePair;
use crate::sync::lock;

/// Identifies a [`CmId`] in its events. Unique in a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct IdName(pub u64);

/// An event of a [`CmId`].
#[derive(Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event")]
pub struct Event {
    /// The cm_id; for a connection request, that of the listener.
    pub id: IdName,
    /// What happened.
    pub kind: EventKind,
}

/// The kind of an event.
#[derive(Debug)]
#[non_exhaustive]
#[doc(alias = "rdma_cm_event_type")]
pub enum EventKind {
    /// A device reaches the destination.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_RESOLVED")]
    AddressResolved,
    /// No device reaches the destination.
    #[doc(alias = "RDMA_CM_EVENT_ADDR_ERROR")]
    AddressError(Error),
    /// The route is known: the cm_id can connect.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_RESOLVED")]
    RouteResolved,
    /// The route does not carry RoCE packets.
    #[doc(alias = "RDMA_CM_EVENT_ROUTE_ERROR")]
    RouteError(Error),
    /// A peer requests a connection: accept or reject it with the new cm_id.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_REQUEST")]
    ConnectRequest(Box<Request>),
    /// The peer accepted, and the cm_id did not create the QP: modify it with [`CmId::attributes`], then call
    /// [`CmId::establish`].
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_RESPONSE")]
    ConnectResponse(Box<Established>),
    /// The connection failed for a local reason.
    #[doc(alias = "RDMA_CM_EVENT_CONNECT_ERROR")]
    ConnectError(Error),
    /// The peer does not respond, or refuses its UD queue pair with a status.
    #[doc(alias = "RDMA_CM_EVENT_UNREACHABLE")]
    Unreachable(Option<SidrStatus>),
    /// The peer rejected the connection.
    #[doc(alias = "RDMA_CM_EVENT_REJECTED")]
    Rejected {
        /// The reason.
        reason: RejectReason,
        /// The peer's private data, padded with zeroes to 148 bytes.
        private_data: Vec<u8>,
    },
    /// The connection is established.
    #[doc(alias = "RDMA_CM_EVENT_ESTABLISHED")]
    Established(Box<Established>),
    /// The connection has ended, for this reason. The QP is in the error state.
    #[doc(alias = "RDMA_CM_EVENT_DISCONNECTED")]
    Disconnected(DisconnectCause),
    /// No packet of the connection is in flight any more: the QP may be reused.
    #[doc(alias = "RDMA_CM_EVENT_TIMEWAIT_EXIT")]
    TimewaitExit,
    /// The cm_id joined a multicast group.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_JOIN")]
    MulticastJoined(Group),
    /// The cm_id could not join a multicast group.
    #[doc(alias = "RDMA_CM_EVENT_MULTICAST_ERROR")]
    MulticastError(Error),
    /// The program raised it with [`CmId::raise_event`].
    #[doc(alias = "RDMA_CM_EVENT_USER")]
    User(UserEvent),
}

impl EventKind {
    pub(super) fn is_request(&self) -> bool {
        matches!(self, Self::ConnectRequest(_))
    }
}

/// An event that a program raises itself, for example to wake a thread that waits on the channel. Its fields are not
/// interpreted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserEvent {
    /// A kind.
    pub kind: u32,
    /// A status.
    pub status: i32,
    /// A value.
    pub value: u64,
}

/// A connection request.
#[derive(Debug)]
#[non_exhaustive]
pub struct Request {
    /// The cm_id of this side. Dropping it rejects the request.
    pub id: CmId,
    /// The parameters that the peer requests; empty for UD.
    pub parameters: PeerParameters,
    /// The peer's private data, padded with zeroes to 56 bytes, 180 for UD.
    pub private_data: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct Channel {
    pub(super) events: EventQueue<Event>,
    pub(super) options: Options,
}

/// An event channel: delivers the events of [cm_ids](super::CmId). Clones share it.
///
/// Its file descriptor is readable while an event is pending. [`EventChannel::wait`] and [`EventChannel::try_event`] take any
/// event, also one that another thread waits for with [`CmId::wait_disconnected`](super::CmId::wait_disconnected) and its like.
#[derive(Clone, Debug)]
#[doc(alias = "rdma_event_channel")]
pub struct EventChannel {
    pub(super) channel: Arc<Channel>,
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
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let name = IdName(NEXT.fetch_add(1, Ordering::Relaxed));
        let (channel, state) = (Mutex::new(channel), Mutex::new(state));
        let shared = Shared { name, space, channel, state };
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
            local_link.adapter().flush();
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
