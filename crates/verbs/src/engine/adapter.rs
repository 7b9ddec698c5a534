//! An open device in a process, or one of its shards: see [`super::shards`].

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};

use ferroce_device::Objects;
use ferroce_links::embedder::Embedder as _;
use ferroce_links::ring::Rings;
use ferroce_links::route::Route;
use ferroce_links::udp::Forwarding;
use ferroce_memory::Registry;
use ferroce_proto::time::Instant;
use ferroce_sync::{Owned, PostedQueue, Signals};
use ferroce_sys::{Event, Socket, clock, random};
use ferroce_tap::Tap;
use ferroce_wire::number::Qpn;

use super::counters::Counters;
use super::driver::Driver;
use super::management::Management;
use super::outbox::Outbox;
use super::pause::Pause;
use super::port::Port;
use super::queue_pair::{Core, Inner, RecvQueue};
use super::shards::Handle;
use super::thread;
use crate::device::Device;
use crate::drive::Polling;
use crate::error::{CreateError, OpenError};
use crate::event::Events;
use crate::options::{Local, Options};
use crate::sync::lock;

/// The QPs and SRQs of an open device.
pub(crate) type Tables = ferroce_device::Tables<Arc<Core>, Arc<RecvQueue>>;

/// An open device in this process: its identity, and its parts.
pub(crate) struct Adapter {
    pub(crate) device: Device,
    pub(crate) options: Options,
    /// Its number among the shards of the device.
    pub(super) shard: u8,
    /// The process that opened the device.
    pub(super) process: u32,
    pub(crate) port: Port,
    pub(crate) tables: Tables,
    pub(crate) memory: Arc<Registry>,
    pub(crate) management: Management,
    /// Async events of objects that belong to no opened context, such as an incoming connection.
    pub(crate) events: Arc<Events>,
    pub(crate) counters: Arc<Counters>,
    tap: Arc<Tap>,

    /// What only the thread that makes a pass may use.
    pub(super) driver: Owned<Driver>,
    /// What other threads leave for the next pass.
    pub(super) posted: PostedQueue<Arc<Core>>,
    pub(super) outbox: Outbox,
    pub(super) forwarding: Forwarding,
    pub(crate) rings: Rings,
    /// Threads that wait for the end of a pass.
    pub(super) waiting: AtomicU32,
    /// Completed passes over all receive sockets.
    pub(super) rx_passes: AtomicU64,
    pub(super) polling: Polling,
    pub(crate) signals: Signals<Event>,
    pub(super) pause: Pause,
    handle: Mutex<Weak<Handle>>,
    /// Makes the next pass of the device thread panic.
    #[cfg(test)]
    pub(super) panics: std::sync::atomic::AtomicBool,
}

/// What all shards of a device share.
struct Common {
    memory: Arc<Registry>,
    events: Arc<Events>,
    counters: Arc<Counters>,
    tap: Arc<Tap>,
    objects: Arc<Objects<Arc<RecvQueue>>>,
}

/// The devices open in this process, with all shards. A forked child has none: the sockets and the thread belong to its parent.
static OPEN: Mutex<Vec<(u32, Weak<Adapter>)>> = Mutex::new(Vec::new());

impl Adapter {
    /// The device as this process has it, opened now if it was not. The thread ends with the last handle.
    pub(crate) fn open(device: &Device, options: &Options) -> Result<Arc<Handle>, OpenError> {
        let process = std::process::id();
        let mut open = lock(&OPEN);
        open.retain(|(owner, adapter)| *owner == process && adapter.strong_count() > 0);
        let same = |adapter: &Arc<Self>| {
            let same_device = adapter.device.name() == device.name();
            adapter.shard == 0 && same_device && adapter.options == *options
        };
        if let Some(adapter) = open.iter().filter_map(|(_, adapter)| adapter.upgrade()).find(same) {
            if let Some(handle) = adapter.handle() {
                return Ok(handle);
            }
        }
        let adapter = Arc::new(Self::new(device.clone(), options.clone())?);
        tracing::info!(device = device.name(), slot = adapter.tables.slot(), "device opened");
        open.push((process, Arc::downgrade(&adapter)));
        Handle::start(adapter)
    }

    /// Shuts down all devices before the process exits: sends queued messages and forwards packets of other processes,
    /// as closing the devices would. Bounded in time, because a process that exits in the middle of a call may hold a
    /// lock that is never released.
    pub(crate) fn shut_down_all() {
        const LONGEST: u64 = thread::DISCONNECT_TIMEOUT + 200_000_000;
        let process = std::process::id();
        let Ok(open) = OPEN.try_lock() else { return };
        let ours = open.iter().filter(|(owner, _)| *owner == process);
        let adapters: Vec<_> = ours.filter_map(|(_, adapter)| adapter.upgrade()).collect();
        drop(open);
        adapters.iter().for_each(|adapter| adapter.signals.stop());
        let until = clock::now() + LONGEST;
        while !adapters.iter().all(|adapter| adapter.signals.has_stopped()) && clock::now() < until
        {
            std::thread::yield_now();
        }
        // Dropping the last reference would close sockets that the program may still use.
        adapters.into_iter().for_each(std::mem::forget);
        // Writing captures to a disk may take longer than sending.
        ferroce_tap::finish_all(clock::now() + 2_000_000_000);
    }

    fn new(device: Device, options: Options) -> Result<Self, OpenError> {
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

    /// Opens a further shard of a device.
    pub(super) fn open_shard(first: &Self, shard: u8) -> Result<Arc<Self>, OpenError> {
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
        let adapter = Self::with(shard, device, first.options.clone(), port, common)?;
        let adapter = Arc::new(adapter);
        tracing::info!(shard, slot = adapter.tables.slot(), "shard opened");
        lock(&OPEN).push((first.process, Arc::downgrade(&adapter)));
        Ok(adapter)
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
            process: std::process::id(),
            tables: Tables::new(slot, objects),
            memory,
            management: Management::new(slot, &device),
            events,
            counters,
            tap,
            driver: Owned::new(Driver::new(&port, options.faults)),
            posted: PostedQueue::default(),
            outbox: Outbox::default(),
            forwarding: Forwarding::default(),
            waiting: AtomicU32::new(0),
            rx_passes: AtomicU64::new(0),
            polling: Polling::default(),
            signals: Signals::new(Event::new()?),
            pause: Pause::default(),
            handle: Mutex::default(),
            #[cfg(test)]
            panics: false.into(),
            port,
            device,
            options,
        })
    }

    /// The open device, unless it is being closed. The first shard knows it.
    pub(crate) fn handle(&self) -> Option<Arc<Handle>> {
        lock(&self.handle).upgrade()
    }

    pub(super) fn set_handle(&self, handle: &Arc<Handle>) {
        *lock(&self.handle) = Arc::downgrade(handle);
    }

    /// A number that no QP and no SRQ of this process has.
    pub(crate) fn new_number(&self) -> Result<Qpn, CreateError> {
        self.tables.new_number(random::number).ok_or(CreateError::NoQueueNumbers)
    }

    /// Publishes what a QP has to report to the program.
    pub(crate) fn publish(&self, core: &Arc<Core>, inner: &mut Inner, now: Instant) {
        ferroce_device::publish(self, core, inner, now);
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
    /// family, or 0: [`Adapter::route`] then chooses by destination.
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

    /// Returns the route with the source port of packets between these two QPs.
    pub(crate) fn with_sender(&self, route: Route, local: Qpn, remote: Qpn) -> Route {
        self.port.links.with_sender(route, (local, remote), |address| self.open_sender(address))
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

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;
    use std::time::{Duration, Instant};

    use crate::event::{AsyncEvent, EventKind, Source};
    use crate::{Context, Device, Options};

    #[test]
    fn a_panic_in_a_pass_is_a_fatal_event() {
        let options = Options { port: 9471, ..Options::default() };
        let context = Context::open(&Device::named("lo").unwrap(), &options).unwrap();
        let adapter = context.adapter();
        adapter.panics.store(true, Ordering::Relaxed);
        adapter.signals.wake();
        let deadline = Instant::now() + Duration::from_secs(20);
        let event = context.wait_event(Some(deadline)).unwrap();
        let fatal = AsyncEvent { source: Source::Device, kind: EventKind::DeviceFatal };
        assert_eq!(event, Some(fatal));
        // Calls still return, and the device can be closed.
        let pd = context.protection_domain();
        let completions = context.completion_queue(16, None).unwrap();
        assert!(completions.poll_one().is_none());
        drop((pd, completions, context));
    }
}
