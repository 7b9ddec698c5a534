//! Queue pairs.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_proto::congestion::{Congestion, Window};
use ferroce_proto::endpoint::{Endpoint, Settings};
use ferroce_proto::qp::{
    Capabilities, PathMtu, Permission, QueuePairAttributes, ServiceType, State,
};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::ud;
use ferroce_proto::work::{Data, Operation, ReceiveRequest, SendRequest, WorkId};
use ferroce_wire::address::Gid;
use ferroce_wire::number::{Immediate, PKey, QKey, Qpn};

use crate::address::AddressHandle;
use crate::completion::CompletionQueue;
use crate::context::Context;
use crate::engine::{Adapter, Core, Inner, RecvQueue, Route, now, receive_share};
use crate::error::{CreateError, ModifyError, MulticastError, PostError};
use crate::event::Source;
use crate::pd::{Membership, ProtectionDomain};
use crate::shared_receive::SharedReceiveQueue;
use crate::sync::lock;
use crate::xrc::XrcDomain;

/// What a queue pair is created with.
#[derive(Clone, Debug)]
pub struct QueuePairOptions<'a> {
    /// The service.
    pub service: ServiceType,
    /// Where sends complete.
    pub send_completions: &'a CompletionQueue,
    /// Where receives complete.
    pub receive_completions: &'a CompletionQueue,
    /// Sizes of the queues; what is 0 is as small as it can be.
    pub capabilities: Capabilities,
    /// Receives come from here, and not from a queue of its own.
    pub shared_receives: Option<&'a SharedReceiveQueue>,
    /// Every send completes with a completion, signaled or not.
    pub signal_all: bool,
    /// The domain of an XRC target.
    pub xrc: Option<&'a XrcDomain>,
}

impl<'a> QueuePairOptions<'a> {
    /// A queue pair of a service, whose sends and receives complete in one queue, for 128 requests each way.
    pub fn new(service: ServiceType, completions: &'a CompletionQueue) -> Self {
        Self {
            service,
            send_completions: completions,
            receive_completions: completions,
            capabilities: Capabilities {
                max_send_wr: 128,
                max_recv_wr: 128,
                max_send_sge: 16,
                max_recv_sge: 16,
                max_inline_data: 256,
            },
            shared_receives: None,
            signal_all: false,
            xrc: None,
        }
    }
}

/// A datagram to send.
#[derive(Clone, Debug)]
pub struct UdSendRequest<'a> {
    /// The owner's name for it.
    pub id: WorkId,
    /// The way.
    pub address: &'a AddressHandle,
    /// The queue pair there; [`Qpn::MULTICAST`] for a group.
    pub destination: Qpn,
    /// The key of that queue pair.
    pub queue_key: QKey,
    /// Handed to the receiver with its completion.
    pub immediate: Option<Immediate>,
    /// The bytes.
    pub data: Data,
    /// Completes with a completion even when all goes well.
    pub signaled: bool,
    /// The receiver should raise an event when its receive completes.
    pub solicited: bool,
}

impl From<UdSendRequest<'_>> for ud::SendRequest<Route> {
    fn from(datagram: UdSendRequest<'_>) -> Self {
        Self {
            id: datagram.id,
            address: ud::AddressHandle {
                route: datagram.address.route,
                destination: datagram.destination,
                queue_key: datagram.queue_key,
            },
            immediate: datagram.immediate,
            data: datagram.data,
            signaled: datagram.signaled,
            solicited: datagram.solicited,
        }
    }
}

/// The outcome of posting a list of work requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
#[non_exhaustive]
pub struct Posted {
    /// How many requests were posted, from the front of the list.
    pub count: usize,
    /// Why the next request was refused, or `Ok` when all were posted.
    pub result: Result<(), PostError>,
}

/// A queue pair. Clones are the same one; it is destroyed with the last of them.
#[derive(Clone, Debug)]
pub struct QueuePair {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    owner: Owner,
    capabilities: Capabilities,
    destroyed: AtomicBool,
    // Held so that they outlive it.
    _completions: [CompletionQueue; 2],
    _receives: Option<SharedReceiveQueue>,
}

/// Who a queue pair belongs to: XRC's targets have no protection domain.
#[derive(Debug)]
enum Owner {
    Pd(Membership),
    Xrc(XrcDomain),
}

impl ProtectionDomain {
    /// A queue pair in RESET.
    ///
    /// # Errors
    ///
    /// When there are no numbers left, or a queue would be longer than the device allows.
    #[doc(alias = "ibv_create_qp")]
    pub fn queue_pair(&self, options: &QueuePairOptions<'_>) -> Result<QueuePair, CreateError> {
        if options.service == ServiceType::XrcTarget {
            return Err(CreateError::WrongOwner { service: options.service });
        }
        QueuePair::new(Owner::Pd(self.join()), self.context(), options)
    }
}

impl XrcDomain {
    /// An XRC target in RESET.
    ///
    /// # Errors
    ///
    /// As [`ProtectionDomain::queue_pair`].
    pub fn target(&self, options: &QueuePairOptions<'_>) -> Result<QueuePair, CreateError> {
        if options.service != ServiceType::XrcTarget {
            return Err(CreateError::WrongOwner { service: options.service });
        }
        QueuePair::new(Owner::Xrc(self.clone()), self.context(), options)
    }
}

impl Context {
    /// What bounds how much a queue pair has under way.
    fn congestion(&self) -> Congestion {
        let adapter = self.adapter();
        adapter.options.congestion.unwrap_or_else(|| {
            Congestion::Window(receive_share(&adapter.links).max(Window::DEFAULT_SIZE))
        })
    }
}

impl QueuePair {
    fn new(
        owner: Owner,
        context: &Context,
        options: &QueuePairOptions<'_>,
    ) -> Result<Self, CreateError> {
        let limits = context.limits();
        let mut capabilities = options.capabilities;
        capabilities.max_send_wr = capabilities.max_send_wr.max(1);
        if options.shared_receives.is_some() || !has_receives(options.service) {
            (capabilities.max_recv_wr, capabilities.max_recv_sge) = (0, 0);
        }
        let given = capabilities.max_send_wr.max(capabilities.max_recv_wr);
        if given > limits.max_qp_wr {
            return Err(CreateError::TooManyWorkRequests { given, max: limits.max_qp_wr });
        }
        let given = capabilities.max_send_sge.max(capabilities.max_recv_sge);
        if given > limits.max_sge {
            return Err(CreateError::TooManySges { given, max: limits.max_sge });
        }
        let given = capabilities.max_inline_data;
        if given > limits.max_inline_data {
            return Err(CreateError::TooMuchInlineData { given, max: limits.max_inline_data });
        }
        let adapter = context.adapter();
        let number = adapter.new_number()?;
        let pd = match &owner {
            Owner::Pd(membership) => membership.0.pd,
            // None that memory is ever registered in: a target uses those of its receive queues.
            Owner::Xrc(_) => ferroce_proto::memory::PdId(0),
        };
        let receives = match options.shared_receives {
            Some(shared) => Arc::clone(shared.receives()),
            None => Arc::new(RecvQueue {
                number: None,
                queue: Mutex::new(ReceiveQueue::new(capabilities.max_recv_wr as usize)),
                completions: None,
                events: Arc::clone(&context.events),
            }),
        };
        let settings = Settings {
            service: options.service,
            number,
            pd,
            capabilities,
            signal_all: options.signal_all,
            shared_receives: options.shared_receives.is_some(),
            xrc: options.xrc.map(XrcDomain::xrcd).unwrap_or_default(),
            partition: PKey(0xffff),
            port_mtu: context.mtu().bytes().map_or(256, |bytes| bytes as u16),
            groups: limits.max_mcast_grp as usize,
            congestion: context.congestion(),
        };
        let settings = match &owner {
            Owner::Xrc(xrc) => Settings { xrc: xrc.xrcd(), ..settings },
            Owner::Pd(_) => settings,
        };
        let inner = Inner {
            endpoint: Endpoint::new(settings),
            route: None,
            timer: None,
            throttled: None,
            destroyed: false,
            heard: None,
        };
        let core = Arc::new(Core {
            number,
            inner: Mutex::new(inner),
            sends: options.send_completions.share(),
            receive_completions: options.receive_completions.share(),
            receives,
            events: Arc::clone(&context.events),
            queued: AtomicBool::new(false),
        });
        for queue in [&core.sends, &core.receive_completions] {
            queue.users.fetch_add(1, Ordering::Relaxed);
        }
        adapter.add_queue_pair(&core);
        let completions = [options.send_completions.clone(), options.receive_completions.clone()];
        let receives = options.shared_receives.cloned();
        let shared = Shared {
            core,
            owner,
            capabilities,
            destroyed: AtomicBool::new(false),
            _completions: completions,
            _receives: receives,
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Its number, by which peers know it.
    pub fn number(&self) -> Qpn {
        self.shared.core.number
    }

    /// How many handles to it there are, this one included.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// Its service.
    pub fn service(&self) -> ServiceType {
        lock(&self.shared.core.inner).endpoint.settings().service
    }

    /// The sizes of its queues.
    pub fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    /// Whether it receives from a shared queue.
    pub fn has_shared_receives(&self) -> bool {
        self.shared.core.receives.number.is_some()
    }

    /// Its state.
    pub fn state(&self) -> State {
        lock(&self.shared.core.inner).endpoint.state()
    }

    /// All that was set, and the state.
    #[doc(alias = "ibv_query_qp")]
    pub fn attributes(&self) -> QueuePairAttributes {
        lock(&self.shared.core.inner).endpoint.attributes()
    }

    /// Whether it is in SQD with requests under way.
    pub fn is_draining(&self) -> bool {
        lock(&self.shared.core.inner).endpoint.is_draining()
    }

    fn adapter(&self) -> &Arc<Adapter> {
        self.shared.owner.context().adapter()
    }

    /// The device.
    pub fn context(&self) -> &Context {
        self.shared.owner.context()
    }

    /// Changes its state, attributes, or both. A path MTU larger than the path's is lowered to it, which
    /// [`QueuePair::attributes`] shows.
    ///
    /// # Errors
    ///
    /// When the state does not allow it, or a value does not fit the device.
    #[doc(alias = "ibv_modify_qp")]
    pub fn modify(&self, change: &QueuePairAttributes) -> Result<State, ModifyError> {
        let adapter = self.adapter();
        let limits = self.context().limits();
        if let Some(port) = change.port.filter(|&port| port != 1) {
            return Err(ModifyError::NoSuchPort { port });
        }
        if let Some(index) = change.partition.filter(|&index| index != 0) {
            return Err(ModifyError::NoSuchPartition { index });
        }
        let max = limits.max_rd_atomic;
        let given = change.max_rd_atomic.max(change.max_dest_rd_atomic).unwrap_or(0);
        if given > max {
            return Err(ModifyError::TooManyRdAtomic { given, max });
        }
        let route = change.path.map(|path| adapter.route(&path)).transpose()?;
        let change = &QueuePairAttributes { path_mtu: self.path_mtu(change, route), ..*change };
        let core = &self.shared.core;
        let now = now();
        let state = {
            let mut inner = lock(&core.inner);
            let state = inner.endpoint.modify(change)?;
            if state == State::Reset {
                inner.route = None;
                // IBA 10.3.1.1: nothing of the past is left.
                core.sends.forget(core.number);
                core.receive_completions.forget(core.number);
                if core.receives.number.is_none() {
                    let mut receives = lock(&core.receives.queue);
                    *receives = ReceiveQueue::new(receives.capacity());
                }
            }
            let remote = inner.endpoint.attributes().destination;
            if let (Some(route), Some(remote)) = (route, remote) {
                let traffic_class = route.traffic_class | inner.endpoint.ecn().0;
                let route = Route { traffic_class, ..route };
                inner.route = Some(adapter.with_sender(route, core.number, remote));
            }
            core.publish_completions(&mut inner, adapter, now);
            state
        };
        adapter.kick(core);
        Ok(state)
    }

    /// The path MTU that a change leads to. One above the device's is for peers of this host, which the loopback's
    /// interface leads to; for others it is lowered to the device's.
    fn path_mtu(&self, change: &QueuePairAttributes, route: Option<Route>) -> Option<PathMtu> {
        let (wanted, device) = (change.path_mtu?, self.context().mtu());
        if wanted.bytes() <= device.bytes() {
            return Some(wanted);
        }
        let way = route.and_then(|route| self.context().path_mtu_to(route.destination).ok());
        let most = way.unwrap_or(device);
        Some(if wanted.bytes() > most.bytes() { most } else { wanted })
    }

    /// Adds a request to the send queue of a connected service.
    ///
    /// # Errors
    ///
    /// When the queue is full, the state takes none, or the request is none that the service has.
    #[doc(alias = "ibv_post_send")]
    pub fn post_send(&self, request: SendRequest) -> Result<(), PostError> {
        self.post_sends([request]).result
    }

    /// Adds several, and drives the device once. Returns how many were taken with what stopped the next one.
    pub fn post_sends(&self, requests: impl IntoIterator<Item = SendRequest>) -> Posted {
        self.post_list(requests, |endpoint, request| {
            // The 8 bytes of an atomic write may be inline whatever the queue was made for: they are no payload.
            let small = matches!(request.operation, Operation::AtomicWrite { .. });
            if !(small && request.data.len() == 8) {
                self.check_data(&request.data)?;
            }
            Ok(endpoint.post_send(request)?)
        })
    }

    /// Adds a datagram to the send queue.
    ///
    /// # Errors
    ///
    /// As [`QueuePair::post_send`].
    pub fn post_datagram(&self, datagram: UdSendRequest<'_>) -> Result<(), PostError> {
        self.post_datagrams([datagram]).result
    }

    /// Adds several, as [`QueuePair::post_sends`] does.
    pub fn post_datagrams<'a>(
        &self,
        datagrams: impl IntoIterator<Item = UdSendRequest<'a>>,
    ) -> Posted {
        self.post_list(datagrams, |endpoint, datagram| {
            self.check_data(&datagram.data)?;
            Ok(endpoint.post_datagram(datagram.into())?)
        })
    }

    fn post_list<T>(
        &self,
        list: impl IntoIterator<Item = T>,
        post: impl Fn(&mut Endpoint<Route>, T) -> Result<(), PostError>,
    ) -> Posted {
        let core = &self.shared.core;
        let mut count = 0;
        let mut result = Ok(());
        {
            let mut inner = lock(&core.inner);
            for one in list {
                result = post(&mut inner.endpoint, one);
                if result.is_err() {
                    break;
                }
                count += 1;
            }
            if inner.endpoint.state() == State::Error {
                core.publish_completions(&mut inner, self.adapter(), now());
            }
        }
        self.adapter().kick(core);
        Posted { count, result }
    }

    /// How many more requests the send queue takes now.
    pub fn send_room(&self) -> usize {
        let queued = lock(&self.shared.core.inner).endpoint.send_queue_len();
        (self.shared.capabilities.max_send_wr as usize).saturating_sub(queued)
    }

    fn check_data(&self, data: &Data) -> Result<(), PostError> {
        let capabilities = &self.shared.capabilities;
        match data {
            Data::SgList(sg_list) => {
                let (given, max) = (sg_list.as_slice().len(), capabilities.max_send_sge as usize);
                if given > max { Err(PostError::TooManySges { given, max }) } else { Ok(()) }
            }
            Data::Inline(bytes) => {
                let (given, max) = (bytes.len(), capabilities.max_inline_data as usize);
                if given > max { Err(PostError::TooMuchInlineData { given, max }) } else { Ok(()) }
            }
        }
    }

    /// Adds a request to its own receive queue.
    ///
    /// # Errors
    ///
    /// When the queue is full or shared, or the state takes none.
    #[doc(alias = "ibv_post_recv")]
    pub fn post_receive(&self, request: ReceiveRequest) -> Result<(), PostError> {
        let core = &self.shared.core;
        if core.receives.number.is_some() {
            return Err(PostError::HasSharedReceiveQueue);
        }
        let max = self.shared.capabilities.max_recv_sge as usize;
        let given = request.sg_list.as_slice().len();
        if given > max {
            return Err(PostError::TooManySges { given, max });
        }
        let mut inner = lock(&core.inner);
        match inner.endpoint.permits_receive() {
            Permission::Allowed | Permission::Queued | Permission::Flushed => {}
            _ => return Err(PostError::ReceiveState { state: inner.endpoint.state() }),
        }
        lock(&core.receives.queue).post(request).map_err(|_| PostError::ReceiveQueueFull)?;
        if inner.endpoint.state() == State::Error {
            core.publish_completions(&mut inner, self.adapter(), now());
        }
        Ok(())
    }

    /// Attaches to a multicast group: datagrams to it are received (IBA 11.3.1).
    ///
    /// # Errors
    ///
    /// When it is no group, the service has none, or the system refuses.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach(&self, group: Gid) -> Result<(), MulticastError> {
        let (core, adapter) = (&self.shared.core, self.adapter());
        let mut inner = lock(&core.inner);
        let datagram = inner.endpoint.datagram();
        let datagram = datagram.ok_or(MulticastError::NotDatagram)?;
        datagram.attach(group).map_err(|error| match error {
            ud::AttachError::NotMulticast => MulticastError::NotMulticast,
            ud::AttachError::Full => {
                MulticastError::TooManyGroups { max: self.context().limits().max_mcast_grp }
            }
        })?;
        let index = adapter.device.interface().index;
        let attached = adapter.groups.attach(group, core, index, &adapter.options);
        if attached.is_err() {
            datagram.detach(group);
        }
        drop(inner);
        adapter.thread.wake();
        Ok(attached?)
    }

    /// Whether it is attached to a multicast group.
    pub fn is_attached(&self) -> bool {
        let mut inner = lock(&self.shared.core.inner);
        inner.endpoint.datagram().is_some_and(|datagram| datagram.is_attached())
    }

    /// Detaches from a multicast group, and says whether it was attached.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach(&self, group: Gid) -> bool {
        let core = &self.shared.core;
        let mut inner = lock(&core.inner);
        let was = inner.endpoint.datagram().is_some_and(|datagram| datagram.detach(group));
        drop(inner);
        self.adapter().groups.detach(Some(group), core);
        was
    }

    /// Destroys it, whoever else has a handle to it: when this returns, nothing of it reaches its memory, its CQs or the
    /// network any more, and its completions are gone from its CQs.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(&self) {
        self.shared.destroy();
    }

    /// The connection manager brought the connection up: no event is needed for the first packet.
    pub(crate) fn set_established(&self) {
        lock(&self.shared.core.inner).endpoint.set_established();
    }
}

fn has_receives(service: ServiceType) -> bool {
    !matches!(service, ServiceType::XrcInitiator | ServiceType::XrcTarget)
}

impl Owner {
    fn context(&self) -> &Context {
        match self {
            Self::Pd(membership) => membership.context(),
            Self::Xrc(xrc) => xrc.context(),
        }
    }
}

impl Shared {
    /// Idempotent: a program may destroy a queue pair that an id of the connection manager still has a handle of.
    fn destroy(&self) {
        if self.destroyed.swap(true, Ordering::Relaxed) {
            return;
        }
        let adapter = self.owner.context().adapter();
        adapter.destroy_queue_pair(&self.core);
        // Its number may be another's one day, and windows of type 2 are one queue pair's alone.
        adapter.memory.forget_queue_pair(self.core.number);
        self.core.events.forget(Source::QueuePair(self.core.number));
        for queue in [&self.core.sends, &self.core.receive_completions] {
            queue.forget(self.core.number);
            queue.users.fetch_sub(1, Ordering::Relaxed);
        }
        // Last: from here on the next queue pair may have the number.
        adapter.remove_queue_pair(self.core.number);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.destroy();
    }
}
