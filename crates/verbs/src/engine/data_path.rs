//! What the data path of a device needs: its addresses, QPs, memory, counters, and the queues between its threads.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64};

use ferroce_device::Objects;
use ferroce_links::ring::Rings;
use ferroce_links::udp::Forwarding;
use ferroce_memory::Registry;
use ferroce_sync::{PostedQueue, Signals};
use ferroce_sys::{Event, Socket, random};
use ferroce_tap::Tap;
use ferroce_wire::number::Qpn;

use super::counters::Counters;
use super::management::Management;
use super::outbox::Outbox;
use super::port::Port;
use super::queue_pair::{Core, RecvQueue};
use crate::device::Device;
use crate::error::{CreateError, OpenError};
use crate::event::Events;
use crate::options::{Local, Options};

/// The QPs and SRQs of an open device.
pub(crate) type Tables = ferroce_device::Tables<Arc<Core>, Arc<RecvQueue>>;

/// What all threads that use an open device share, and what its packets need. [`Driver`](super::driver::Driver) and what it
/// calls know nothing above it.
pub(crate) struct DataPath {
    pub(crate) device: Device,
    pub(crate) options: Options,
    /// Its number among the shards of the device.
    pub(super) shard: u8,
    pub(crate) port: Port,
    pub(crate) tables: Tables,
    pub(crate) memory: Arc<Registry>,
    pub(crate) management: Management,
    /// Async events of objects that belong to no opened context, such as an incoming connection.
    pub(crate) events: Arc<Events>,
    pub(crate) counters: Arc<Counters>,
    tap: Arc<Tap>,

    /// What other threads leave for the next pass.
    pub(super) posted: PostedQueue<Arc<Core>>,
    pub(super) outbox: Outbox,
    pub(super) forwarding: Forwarding,
    pub(crate) rings: Rings,
    /// Threads that wait for the end of a pass.
    pub(super) waiting: AtomicU32,
    /// Completed passes over all receive sockets.
    pub(super) rx_passes: AtomicU64,
    pub(crate) signals: Signals<Event>,
}

/// What all shards of a device share.
struct Common {
    memory: Arc<Registry>,
    events: Arc<Events>,
    counters: Arc<Counters>,
    tap: Arc<Tap>,
    objects: Arc<Objects<Arc<RecvQueue>>>,
}

impl DataPath {
    /// Opens the sockets of a device.
    pub(super) fn open(device: Device, options: Options) -> Result<Self, OpenError> {
        device.mtu()?;
        let (port, device) = Port::open(device, &options, None)?;
        let file = options.capture.as_deref().map(|path| (path, options.capture_policy));
        let tap = Tap::open(device.capture_interface(), port.links.sources(), file)?;
        let common = Common {
            memory: Arc::new(Registry::with_source(random::number)),
            events: Arc::new(Events::new()?),
            counters: Arc::new(Counters::of(
                &device,
                port.state.is_active(),
                options.shard_count(),
            )),
            tap,
            objects: Arc::default(),
        };
        Self::with(0, device, options, port, common)
    }

    /// Opens the sockets of a further shard of a device.
    pub(super) fn open_shard(first: &Self, shard: u8) -> Result<Self, OpenError> {
        let state = Some(Arc::clone(&first.port.state));
        let (port, device) = Port::open(first.device.clone(), &first.options, state)?;
        // Routes refer to links by index, so all shards need the same.
        if device != first.device {
            let interface = device.interface().name.clone();
            return Err(OpenError::NoAddress { interface });
        }
        let common = Common {
            memory: Arc::clone(&first.memory),
            events: Arc::clone(&first.events),
            counters: Arc::clone(&first.counters),
            tap: Arc::clone(&first.tap),
            objects: Arc::clone(first.tables.objects()),
        };
        port.links.sources().for_each(|source| common.tap.add_source(source));
        Self::with(shard, device, first.options.clone(), port, common)
    }

    fn with(
        shard: u8,
        device: Device,
        options: Options,
        port: Port,
        common: Common,
    ) -> Result<Self, OpenError> {
        let Common { memory, events, counters, tap, objects } = common;
        let slot = port.links.slot();
        let rings = Rings::new(options.local == Local::Memory, &port.links);
        Ok(Self {
            rings,
            shard,
            tables: Tables::new(slot, objects),
            memory,
            management: Management::new(slot, &device),
            events,
            counters,
            tap,
            posted: PostedQueue::default(),
            outbox: Outbox::default(),
            forwarding: Forwarding::default(),
            waiting: AtomicU32::new(0),
            rx_passes: AtomicU64::new(0),
            signals: Signals::new(Event::new()?),
            port,
            device,
            options,
        })
    }

    /// A number that no QP and no SRQ of this process has.
    pub(crate) fn new_number(&self) -> Result<Qpn, CreateError> {
        self.tables.new_number(random::number).ok_or(CreateError::NoQueueNumbers)
    }

    /// The capture of the device, while its packets are recorded.
    #[inline]
    pub(crate) fn tap(&self) -> Option<&Tap> {
        self.tap.is_active().then_some(&*self.tap)
    }

    /// Its number among the shards of the device.
    pub(crate) fn shard(&self) -> u8 {
        self.shard
    }

    /// Whether this is the first shard, which does what is done once per device.
    pub(super) fn is_first(&self) -> bool {
        self.shard == 0
    }

    /// The GID index that represents a link. A loopback link outside the GID table uses the index of an address of its
    /// family, or 0: [`DataPath::route`] then chooses by destination.
    pub(crate) fn source_index(&self, link: u8) -> u8 {
        let gids = self.device.gids();
        if usize::from(link) < gids.len() {
            return link;
        }
        let links = &self.port.links;
        let ipv4 = links.get(usize::from(link)).is_some_and(|link| link.address.is_ipv4());
        let family = gids.iter().position(|entry| entry.address.is_ipv4() == ipv4);
        family.and_then(|index| u8::try_from(index).ok()).unwrap_or(0)
    }

    /// Adds an address that the device sends from to its captures.
    pub(super) fn add_source(&self, source: SocketAddr) {
        self.tap.add_source(source);
    }

    /// Tells the device thread that no thread polls any more: it watches the sockets again.
    pub(crate) fn stop_polling(&self) {
        self.signals.stop_polling();
    }

    /// The socket whose full send buffer blocks transmission, if there is one.
    pub(super) fn blocked_sender(&self) -> Option<&Socket> {
        let (link, sender) = self.signals.blocked()?;
        Some(self.port.links.get(usize::from(link))?.senders.get(sender))
    }
}

impl std::fmt::Debug for DataPath {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("DataPath").field("device", &self.device.name()).finish_non_exhaustive()
    }
}
