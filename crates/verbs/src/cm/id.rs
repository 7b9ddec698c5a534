//! One end of a connection, or a listener.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, Weak};

use ferroce_proto::cm::{self, ConnectionId, QueryId, ResolutionId};
use ferroce_proto::qp::{PathMtu, QueuePairAttributes, ServiceType};
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{ServiceId, SidrStatus};
use ferroce_wire::rdmacm::PortSpace;

use super::attributes::{self, Facts};
use super::channel::{Channel, EventChannel};
use super::event::{Event, EventKind, IdName, UserEvent};
use super::parameters::Route;
use crate::context::Context;
use crate::engine::{Adapter, CmEventHandler, Connections, Manager};
use crate::error::CmError as Error;
use crate::pd::ProtectionDomain;
use crate::queue_pair::{QueuePair, QueuePairOptions};
use crate::sync::lock;

/// How far an id has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    Bound,
    Listening,
    /// The next host on the way to the peer is looked for.
    Resolving,
    AddressResolved,
    RouteResolved,
    /// REQ or SIDR_REQ is out.
    Connecting,
    /// REP is here, and the program brings its own queue pair up.
    Responded,
    /// A peer's request waits for our answer.
    Requested,
    /// REP is out.
    Accepting,
    Connected,
    Disconnecting,
    /// It did not come to be, or is over.
    Over,
}

/// What an id has under way with its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Exchange {
    #[default]
    Nothing,
    Connection(ConnectionId),
    Question(ResolutionId),
    Query(QueryId),
}

/// An address of an open device.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) context: Context,
    pub(super) link: u8,
}

impl Place {
    pub(super) fn adapter(&self) -> &Adapter {
        self.context.adapter()
    }

    pub(super) fn connections(&self) -> &Connections {
        &self.adapter().management.connections
    }

    /// Its address, with the port of RoCEv2.
    pub(super) fn address(&self) -> Option<SocketAddr> {
        Some(self.adapter().links.get(usize::from(self.link))?.address)
    }

    /// Its index in the GID table, or the one that stands for it.
    pub(super) fn source_index(&self) -> u8 {
        self.adapter().source_index(self.link)
    }

    /// Does something with the address's connection manager.
    pub(super) fn act<T>(&self, act: impl FnOnce(&mut Manager, Instant) -> T) -> Result<T, Error> {
        self.connections().act(self.adapter(), self.link, act).ok_or(Error::Closed)
    }
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) stage: Stage,
    /// The program has dropped it.
    pub(super) closed: bool,
    /// Where the port is claimed, or is to be when it listens.
    pub(super) bound: Vec<Place>,
    /// It is claimed.
    pub(super) claimed: bool,
    /// It shares its port with others of this kind until one of them listens.
    pub(super) shares_port: bool,
    /// "Any" address of IPv6 is not that of IPv4 as well.
    pub(super) one_family: bool,
    /// What the port is to the connection manager.
    pub(super) service_id: ServiceId,
    /// The device, and which of its addresses.
    pub(super) place: Option<Place>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) traffic_class: u8,
    pub(super) path_mtu: PathMtu,
    /// What it was before its address was looked for.
    pub(super) before: Stage,
    /// What the program has said of the way.
    pub(super) route: Option<Route>,
    pub(super) queue_pair: Option<QueuePair>,
    /// The queue pair's service, once it is known or asked for.
    pub(super) service: Option<ServiceType>,
    pub(super) exchange: Exchange,
    pub(super) facts: Facts,
    pub(super) groups: Vec<Gid>,
}

impl State {
    pub(super) fn expect(&self, stages: &[Stage], otherwise: &'static str) -> Result<(), Error> {
        match stages.contains(&self.stage) {
            true => Ok(()),
            false => Err(Error::WrongState { reason: otherwise }),
        }
    }

    /// The service of the connection.
    pub(super) fn service(&self) -> ServiceType {
        let made = self.queue_pair.as_ref().map(QueuePair::service);
        made.or(self.service).unwrap_or(ServiceType::ReliableConnection)
    }

    pub(super) fn place(&self) -> Result<Place, Error> {
        self.place.clone().ok_or(Error::NoDevice)
    }
}

/// What an id is to the connection manager.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(super) name: IdName,
    pub(super) space: PortSpace,
    /// Where its events go. Held while one is raised: none is left behind by [`CmId::migrate`].
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
        lock(&self.channel).raise(Event { id: self.name, kind });
    }

    pub(super) fn channel(&self) -> Arc<Channel> {
        Arc::clone(&lock(&self.channel))
    }

    /// Its events go to this channel from now on, and so do those that wait. Requests that wait come along.
    fn migrate(&self, to: &Arc<Channel>) {
        let mut channel = lock(&self.channel);
        let waiting = channel.take_all(self.name);
        for event in waiting {
            if let EventKind::ConnectRequest(request) = &event.kind {
                request.id.shared().migrate(to);
            }
            to.raise(event);
        }
        *channel = Arc::clone(to);
    }

    /// Whether it asks for a datagram queue pair, and not for a connection.
    pub(super) fn is_datagram(&self, state: &State) -> bool {
        match self.space {
            PortSpace::Udp | PortSpace::Ipoib => true,
            PortSpace::Tcp => false,
            PortSpace::Ib => state.service() == ServiceType::UnreliableDatagram,
        }
    }
}

/// One end of a connection, or a listener. Clones are the same one, and any thread may use them; with the last of them
/// it ends: the peer is told, and the port is free.
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
    /// An id that is nowhere yet, whose events come out of this channel.
    ///
    /// One in the port space of IP over InfiniBand, which RoCE does not have, gets no further than that, as with Linux: it
    /// is refused with the address of a device, or when an address is resolved.
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

    /// What its events call it.
    pub fn name(&self) -> IdName {
        self.owner.shared.name
    }

    /// Its port space.
    pub fn port_space(&self) -> PortSpace {
        self.owner.shared.space
    }

    /// Ends it now, as if the last of its clones were dropped: the peer is told, and the port is free.
    ///
    /// An id that is dropped says the same, but who drops it does not wait until it has been said.
    pub fn close(&self) {
        let place = self.state().place.clone();
        self.owner.end();
        if let Some(place) = place {
            place.adapter().flush_outbox();
        }
    }

    /// Lets its events come out of another channel from now on, those that wait included.
    #[doc(alias = "rdma_migrate_id")]
    pub fn migrate(&self, channel: &EventChannel) {
        self.shared().migrate(&channel.channel);
    }

    /// Raises an event in its channel.
    #[doc(alias = "rdma_write_cm_event")]
    pub fn raise_event(&self, event: UserEvent) {
        self.shared().raise(EventKind::User(event));
    }

    /// Says which service its queue pair will be of, where the port space leaves that open. Before it connects.
    pub fn set_service(&self, service: ServiceType) {
        self.state().service = Some(service);
    }

    /// The device, once the address is known.
    #[doc(alias = "verbs")]
    pub fn context(&self) -> Option<Context> {
        self.state().place.as_ref().map(|place| place.context.clone())
    }

    /// The index of our GID, once the address is known. For a loopback address that is not in the device's table, one that
    /// packets to it may name.
    pub fn source_index(&self) -> Option<u8> {
        self.state().place.as_ref().map(Place::source_index)
    }

    /// Our address and port.
    #[doc(alias = "rdma_get_local_addr")]
    pub fn local_address(&self) -> Option<SocketAddr> {
        self.state().local
    }

    /// The peer's address and port.
    #[doc(alias = "rdma_get_peer_addr")]
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.state().peer
    }

    /// The largest payload of a packet on the way, once it is known.
    pub fn path_mtu(&self) -> PathMtu {
        self.state().path_mtu
    }

    /// The queue pair that was made by [`CmId::create_queue_pair`].
    pub fn queue_pair(&self) -> Option<QueuePair> {
        self.state().queue_pair.clone()
    }

    /// Sets the type of service or traffic class of the connection's packets. Before the route is resolved.
    pub fn set_type_of_service(&self, traffic_class: u8) {
        self.state().traffic_class = traffic_class;
    }

    /// Lets the port be used by several ids that say so, of which one may listen. Before it is bound.
    pub fn set_port_sharing(&self, shares: bool) {
        self.state().shares_port = shares;
    }

    /// Bound to "any" address of IPv6, it is not bound to those of IPv4. Before it is bound.
    pub fn set_one_family(&self, one: bool) {
        self.state().one_family = one;
    }

    /// Makes a queue pair for the connection. The id changes its state from now on: it takes receives at once, and
    /// sends when the connection is up. One of datagrams takes both at once.
    ///
    /// # Errors
    ///
    /// When it has one, the device is not known yet or is not that of the domain; and as
    /// [`ProtectionDomain::queue_pair`].
    #[doc(alias = "rdma_create_qp")]
    pub fn create_queue_pair(
        &self,
        pd: &ProtectionDomain,
        options: &QueuePairOptions<'_>,
    ) -> Result<QueuePair, Error> {
        let mut state = self.state();
        let place = state.place()?;
        if state.queue_pair.is_some() {
            return Err(Error::HasQueuePair);
        }
        if !Arc::ptr_eq(place.context.adapter(), pd.context().adapter()) {
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

    /// Gives up the queue pair that was made by [`CmId::create_queue_pair`].
    #[doc(alias = "rdma_destroy_qp")]
    pub fn destroy_queue_pair(&self) {
        let queue_pair = self.state().queue_pair.take();
        drop(queue_pair);
    }

    /// What brings a queue pair of the program's own into a state, as far as the connection is known.
    ///
    /// # Errors
    ///
    /// For a state that a connection says nothing about.
    #[doc(alias = "rdma_init_qp_attr")]
    pub fn attributes(&self, to: ferroce_proto::qp::State) -> Result<QueuePairAttributes, Error> {
        let state = self.state();
        state.facts.attributes(state.service(), to)
    }
}

impl Context {
    /// How many connections this process has on the device, those in time-wait included.
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
            return; // The connection stayed with the parent.
        }
        // From here on no event is raised, and nobody else touches what is ended below.
        let closed = State { closed: true, ..State::default() };
        let gone = std::mem::replace(&mut *lock(&self.shared.state), closed);
        gone.end();
        // Ids in them are dropped without a lock.
        drop(self.shared.channel().take_all(self.shared.name));
    }
}

impl State {
    /// Ends whatever is under way.
    fn end(self) {
        if let Some(queue_pair) = &self.queue_pair {
            for group in &self.groups {
                queue_pair.detach(*group);
            }
        }
        let under_way = matches!(
            self.stage,
            Stage::Connecting | Stage::Responded | Stage::Accepting | Stage::Connected
        );
        if let (Exchange::Connection(_), true) = (self.exchange, under_way) {
            attributes::fail(self.queue_pair.as_ref());
        }
        if let Some(place) = &self.place {
            let unanswered = self.stage == Stage::Requested;
            // A device that is closed has no connections to end.
            let _ = place.act(|manager, now| match self.exchange {
                Exchange::Nothing => {}
                Exchange::Connection(connection) => manager.drop_connection(now, connection),
                Exchange::Question(question) => {
                    manager.resolutions.remove(&question);
                    manager.cm.cancel_resolution(question);
                }
                Exchange::Query(query) if unanswered => {
                    manager.drop_query(query, SidrStatus::REJECTED);
                }
                Exchange::Query(_) => {}
            });
        }
        self.release();
    }

    /// Gives the port back.
    pub(super) fn release(&self) {
        for place in &self.bound {
            // Both under the manager's lock: a request finds the listener, or that there is none.
            let _ = place.act(|manager, _| {
                if self.stage == Stage::Listening {
                    manager.cm.unlisten(self.service_id);
                    manager.cm.unlisten_datagrams(self.service_id);
                    manager.listeners.remove(&self.service_id.0);
                }
                if let (Some(address), true) = (place.address(), self.claimed) {
                    place.connections().services.release(address, self.service_id.0);
                }
            });
        }
    }
}

impl CmEventHandler for Shared {
    fn handle_cm_event(self: Arc<Self>, adapter: &Adapter, link: u8, event: cm::Event) {
        super::handler::handle(adapter, link, &self, event);
    }

    fn handle_neighbour(self: Arc<Self>, failure: Option<Error>) {
        let mut state = lock(&self.state);
        if state.closed || state.stage != Stage::Resolving {
            return;
        }
        match failure {
            None => {
                state.stage = Stage::AddressResolved;
                self.raise(EventKind::AddressResolved);
            }
            Some(error) => {
                state.stage = state.before;
                self.raise(EventKind::AddressError(error));
            }
        }
    }
}
