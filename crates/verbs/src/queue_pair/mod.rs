//! Queue pairs (QP).

mod modify;
mod options;
mod post;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_proto::congestion::Congestion;
use ferroce_proto::endpoint::Settings;
use ferroce_proto::memory::PdId;
use ferroce_proto::qp::{Capabilities, QueuePairAttributes, ServiceType, State};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::ud;
use ferroce_sync::Mutex;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{PKey, Qpn};

use crate::context::Context;
use crate::engine::{Adapter, Core, Inner, QpStats, RecvQueue};
use crate::error::{CreateError, MulticastError};
use crate::event::Source;
use crate::pd::{Domain, ProtectionDomain};
use crate::shared_receive::{SharedReceiveQueue, XrcDomain};

pub(crate) use modify::required;
pub use options::QueuePairOptions;
pub use post::{AddressHandle, Posted, UdSendRequest};

/// A queue pair (QP): a send queue and a receive queue. Clones share it; it is destroyed when the last one is dropped.
///
/// A QP sends when it is in the state RTS. [`cm`](crate::cm) brings it there and connects it to its peer;
/// [`QueuePair::connect_to`] does so for programs that exchange QPNs by other means, and [`QueuePair::modify`] sets every
/// attribute by hand.
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let (device, gid_index) = Device::with_address("127.0.0.1:0".parse()?)?;
/// let context = Context::open(&device, &Options::default())?;
/// let pd = context.protection_domain();
/// let mr = pd.allocate(64, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_WRITE)?;
/// let channel = CompletionChannel::new()?;
/// let cq = context.completion_queue(16, Some(&channel))?;
///
/// // Two queue pairs, connected to each other.
/// let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
/// let (one, other) = (pd.queue_pair(&options)?, pd.queue_pair(&options)?);
/// let gid = device.gids()[usize::from(gid_index)].gid;
/// one.connect_to(gid_index, gid, other.number())?;
/// other.connect_to(gid_index, gid, one.number())?;
/// assert_eq!(one.state(), State::ReadyToSend);
///
/// // RDMA WRITE: from the front of the memory to offset 32.
/// mr.write(0, b"hello")?;
/// let operation = Operation::Write { remote: mr.remote(32), immediate: None };
/// let data = Data::SgList(mr.sge(0, 5).into());
/// one.post_send(SendRequest::new(WorkId(7), operation, data))?;
/// let done = cq.wait()?;
/// assert_eq!((done.id, done.status), (WorkId(7), Status::Success));
///
/// let mut bytes = [0; 5];
/// mr.read(32, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[doc(alias = "ibv_qp")]
pub struct QueuePair {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    core: Arc<Core>,
    /// The shard it belongs to.
    adapter: Arc<Adapter>,
    owner: Owner,
    capabilities: Capabilities,
    destroyed: AtomicBool,
    /// Kept alive for the lifetime of the QP.
    _receives: Option<SharedReceiveQueue>,
}

/// The owner of a QP: XRC targets have no PD.
#[derive(Debug)]
enum Owner {
    Pd(Arc<Domain>),
    Xrc(XrcDomain),
}

impl ProtectionDomain {
    /// Creates a queue pair (QP) in RESET.
    ///
    /// # Errors
    ///
    /// When no QPN is left, or a size is above the device's limit.
    #[doc(alias = "ibv_create_qp")]
    pub fn queue_pair(&self, options: &QueuePairOptions<'_>) -> Result<QueuePair, CreateError> {
        QueuePair::new(Owner::Pd(self.join()), options)
    }
}

impl XrcDomain {
    /// Creates an XRC target QP in RESET, as [`ProtectionDomain::queue_pair`] does the others.
    pub fn target(&self, options: &QueuePairOptions<'_>) -> Result<QueuePair, CreateError> {
        QueuePair::new(Owner::Xrc(self.clone()), options)
    }
}

impl QueuePair {
    fn new(owner: Owner, options: &QueuePairOptions<'_>) -> Result<Self, CreateError> {
        let service = options.service;
        if matches!(owner, Owner::Xrc(_)) != (service == ServiceType::XrcTarget) {
            return Err(CreateError::WrongOwner { service });
        }
        let context = owner.context();
        let limits = context.limits();
        let mut capabilities = options.capabilities;
        capabilities.max_send_wr = capabilities.max_send_wr.max(1);
        let is_xrc = matches!(service, ServiceType::XrcInitiator | ServiceType::XrcTarget);
        if options.srq.is_some() || is_xrc {
            (capabilities.max_recv_wr, capabilities.max_recv_sge) = (0, 0);
        }
        let requests = capabilities.max_send_wr.max(capabilities.max_recv_wr);
        let sges = capabilities.max_send_sge.max(capabilities.max_recv_sge);
        for (what, given, max) in [
            ("work requests in a queue", requests, limits.max_qp_wr),
            ("SGEs in a work request", sges, limits.max_sge),
            ("bytes of inline data", capabilities.max_inline_data, limits.max_inline_data),
        ] {
            if given > max {
                return Err(CreateError::AboveLimit { what, given, max });
            }
        }
        let queues = [options.send_cq, options.recv_cq].map(|cq| Arc::clone(&cq.queue));
        let (adapter, pd, xrc) = match &owner {
            Owner::Pd(domain) => {
                // See `crate::engine`, `shards`.
                let used = queues.iter().find_map(|queue| queue.shard());
                let shard = used.unwrap_or_else(|| context.handle.next_shard());
                (context.handle.shard(shard), domain.pd, Default::default())
            }
            // Its receive completions go to CQs of SRQs, which know only the first shard. Its PD is never that of an MR: it
            // uses the PDs of its SRQs.
            Owner::Xrc(xrc) => (context.adapter(), PdId(0), xrc.xrcd()),
        };
        let number = adapter.new_number()?;
        let receives = match options.srq {
            Some(srq) => Arc::clone(&srq.shared.receives),
            None => Arc::new(RecvQueue {
                number: None,
                published: None,
                queue: Mutex::new(ReceiveQueue::new(capabilities.max_recv_wr as usize)),
                completions: None,
                events: Arc::clone(&context.events),
            }),
        };
        let settings = Settings {
            service,
            number,
            pd,
            capabilities,
            signal_all: options.signal_all,
            shared_receives: options.srq.is_some(),
            xrc,
            partition: PKey(0xffff),
            port_mtu: context.mtu().bytes().map_or(256, |bytes| bytes as u16),
            groups: limits.max_mcast_grp as usize,
            congestion: adapter.options.congestion.unwrap_or_else(|| {
                Congestion::Window(context.adapter().port.links.receive_share())
            }),
            keepalive: adapter.options.keepalive,
        };
        let inner = Inner {
            stats: QpStats::new(
                &adapter.counters,
                &settings,
                [options.send_cq.id(), options.recv_cq.id()],
                receives.number,
                adapter.shard,
            ),
            queue_pair: ferroce_device::QueuePair::new(settings),
            peer_info: None,
            captured: None,
            ended_by: 0,
            heard: None,
        };
        for queue in &queues {
            queue.users.fetch_add(1, Ordering::Relaxed);
            queue.add_shard(adapter.shard);
        }
        let [sends, receive_completions] = queues;
        let core = Arc::new(Core {
            number,
            inner: Mutex::new(inner),
            sends,
            receive_completions,
            receives,
            events: Arc::clone(&context.events),
            marks: Default::default(),
        });
        adapter.tables.add_queue_pair(&core);
        let shared = Shared {
            core,
            adapter: Arc::clone(adapter),
            owner,
            capabilities,
            destroyed: AtomicBool::new(false),
            _receives: options.srq.cloned(),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Returns the queue pair number (QPN), by which peers address it.
    pub fn number(&self) -> Qpn {
        self.shared.core.number
    }

    /// Returns the number of handles, including this one.
    pub fn handles(&self) -> usize {
        Arc::strong_count(&self.shared)
    }

    /// Returns the transport service.
    pub fn service(&self) -> ServiceType {
        self.shared.core.inner.lock().endpoint.settings().service
    }

    /// Returns the sizes of the queues.
    pub fn capabilities(&self) -> Capabilities {
        self.shared.capabilities
    }

    /// Whether it has a shared receive queue (SRQ).
    pub fn has_shared_receives(&self) -> bool {
        self.shared.core.receives.number.is_some()
    }

    /// Returns the state.
    pub fn state(&self) -> State {
        self.shared.core.inner.lock().endpoint.state()
    }

    /// Returns the state and all attributes that were set.
    #[doc(alias = "ibv_query_qp")]
    pub fn attributes(&self) -> QueuePairAttributes {
        self.shared.core.inner.lock().endpoint.attributes()
    }

    /// Whether it is in SQD with requests in flight.
    pub fn is_draining(&self) -> bool {
        self.shared.core.inner.lock().endpoint.is_draining()
    }

    /// Whether its packets reach the peer through memory that both processes share: see [`Local`](crate::Local). Decided
    /// when it becomes ready to receive; for UD with each datagram, of which this describes the last.
    pub fn shares_memory(&self) -> bool {
        let inner = self.shared.core.inner.lock();
        inner.queue.is_some() || inner.datagrams.is_some()
    }

    /// Returns the context it was created from.
    pub fn context(&self) -> &Context {
        self.shared.owner.context()
    }

    /// Attaches a UD QP to a multicast group (IBA 11.3.1).
    ///
    /// # Errors
    ///
    /// When the GID is not a multicast address, the service is not UD, or the system refuses.
    #[doc(alias = "ibv_attach_mcast")]
    pub fn attach(&self, group: Gid) -> Result<(), MulticastError> {
        let (core, adapter) = (&self.shared.core, &self.shared.adapter);
        let mut inner = core.inner.lock();
        let datagram = inner.endpoint.datagram().ok_or(MulticastError::NotDatagram)?;
        datagram.attach(group).map_err(|error| match error {
            ud::AttachError::NotMulticast => MulticastError::NotMulticast,
            ud::AttachError::Full => {
                MulticastError::TooManyGroups { max: self.context().limits().max_mcast_grp }
            }
        })?;
        let index = adapter.device.interface().index;
        let attached = adapter.port.groups.attach(group, core, index, &adapter.options);
        if attached.is_err() {
            datagram.detach(group);
        }
        drop(inner);
        adapter.signals.wake();
        Ok(attached?)
    }

    /// Whether it is attached to a multicast group.
    pub fn is_attached(&self) -> bool {
        let mut inner = self.shared.core.inner.lock();
        inner.endpoint.datagram().is_some_and(|datagram| datagram.is_attached())
    }

    /// Detaches from a multicast group. Returns whether it was attached.
    #[doc(alias = "ibv_detach_mcast")]
    pub fn detach(&self, group: Gid) -> bool {
        let core = &self.shared.core;
        let mut inner = core.inner.lock();
        let attached = inner.endpoint.datagram().is_some_and(|datagram| datagram.detach(group));
        drop(inner);
        self.shared.adapter.port.groups.detach(Some(group), core);
        attached
    }

    /// Destroys it, whatever other handles exist. Afterwards it accesses no memory, CQ or network, and its completions are
    /// removed from its CQs.
    #[doc(alias = "ibv_destroy_qp")]
    pub fn destroy(&self) {
        self.shared.destroy();
    }

    /// Suppresses [`EventKind::Established`](crate::EventKind::Established): the connection manager reports the connection.
    pub(crate) fn set_established(&self) {
        self.shared.core.inner.lock().endpoint.set_established();
    }
}

impl Owner {
    fn context(&self) -> &Context {
        match self {
            Self::Pd(domain) => &domain.context,
            Self::Xrc(xrc) => xrc.context(),
        }
    }
}

impl Shared {
    /// Idempotent: a program may destroy a QP that a cm_id still has a handle of.
    fn destroy(&self) {
        if self.destroyed.swap(true, Ordering::Relaxed) {
            return;
        }
        let adapter = &self.adapter;
        adapter.destroy_queue_pair(&self.core);
        self.core.inner.lock().stats.end();
        // The QPN may be reused, and windows of type 2 are bound to a QP.
        adapter.memory.forget_queue_pair(self.core.number);
        self.core.events.forget(Source::QueuePair(self.core.number));
        for queue in [&self.core.sends, &self.core.receive_completions] {
            queue.forget(self.core.number);
            queue.users.fetch_sub(1, Ordering::Relaxed);
        }
        // Last: from here on the QPN may be reused.
        adapter.tables.remove_queue_pair(self.core.number);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.destroy();
    }
}
