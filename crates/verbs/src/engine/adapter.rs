//! The state that all handles of one device share in a process.

use std::sync::atomic::{AtomicU32, AtomicU64};
use std::sync::{Arc, Mutex, Weak};
use std::thread::JoinHandle;

use ferroce_memory::Registry;
use ferroce_proto::time::Instant;
use ferroce_sys::{Owned, Socket, clock, random, signal};
use ferroce_wire::number::Qpn;

use super::counters::Counters;
use super::driver::Driver;
use super::forwarding::Forwarding;
use super::link::Route;
use super::management::Management;
use super::outbox::Outbox;
use super::port::Port;
use super::schedule::Posted;
use super::signals::Signals;
use super::tables::Tables;
use super::thread;
use crate::device::Device;
use crate::error::OpenError;
use crate::event::Events;
use crate::options::Options;
use crate::sync::lock;
use crate::tap::Tap;

/// An open device in this process: its identity, and its parts.
pub(crate) struct Adapter {
    pub(crate) device: Device,
    pub(crate) options: Options,
    /// The process that opened the device.
    pub(super) process: u32,
    pub(crate) port: Port,
    pub(crate) tables: Tables,
    pub(crate) memory: Registry,
    pub(crate) management: Management,
    /// Async events of objects that belong to no opened context, such as an incoming connection.
    pub(crate) events: Arc<Events>,
    pub(crate) counters: Counters,
    pub(crate) tap: Option<Tap>,

    /// What only the thread that makes a pass may use.
    pub(super) driver: Owned<Driver>,
    /// What other threads leave for the next pass.
    pub(super) posted: Posted,
    pub(super) outbox: Outbox,
    pub(super) forwarding: Forwarding,
    /// Threads that wait for the end of a pass.
    pub(super) waiting: AtomicU32,
    /// Completed passes over all receive sockets.
    pub(super) rx_passes: AtomicU64,
    /// The CQ that was polled last; when a program last polled or posted, and when a poll last found nothing to do.
    pub(super) last_poller: AtomicU64,
    pub(super) last_call: AtomicU64,
    pub(super) last_empty_pass: AtomicU64,
    pub(crate) signals: Signals,
    /// Makes the next pass of the device thread panic.
    #[cfg(test)]
    pub(super) panics: std::sync::atomic::AtomicBool,
}

/// The devices open in this process. A forked child has none: the sockets and the thread belong to its parent.
static OPEN: Mutex<Vec<(u32, Weak<Adapter>)>> = Mutex::new(Vec::new());

impl Adapter {
    /// The device as this process has it, opened now if it was not. The thread ends with the last handle.
    pub(crate) fn open(device: &Device, options: &Options) -> Result<Arc<Handle>, OpenError> {
        let process = std::process::id();
        let mut open = lock(&OPEN);
        open.retain(|(owner, adapter)| *owner == process && adapter.strong_count() > 0);
        let same = |adapter: &Arc<Self>| {
            adapter.device.name() == device.name() && adapter.options == *options
        };
        if let Some(adapter) = open.iter().filter_map(|(_, adapter)| adapter.upgrade()).find(same) {
            if let Some(handle) = adapter.signals.handle() {
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
        crate::tap::finish_all(clock::now() + 2_000_000_000);
    }

    fn new(device: Device, options: Options) -> Result<Self, OpenError> {
        device.mtu()?;
        let (port, device) = Port::open(device, &options)?;
        let sources = port.links.iter().map(|link| link.senders.first().local());
        let tap = options.capture.as_ref().map(|path| Tap::open(path, &device, sources));
        let slot = port.slot();
        Ok(Self {
            process: std::process::id(),
            tables: Tables::new(slot),
            memory: Registry::with_source(random::number),
            management: Management::new(slot, &device),
            events: Arc::new(Events::new()?),
            counters: Counters::default(),
            tap: tap.transpose()?,
            driver: Owned::new(Driver::new(&port, options.faults)),
            posted: Posted::default(),
            outbox: Outbox::default(),
            forwarding: Forwarding::default(),
            waiting: AtomicU32::new(0),
            rx_passes: AtomicU64::new(0),
            last_poller: AtomicU64::new(0),
            last_call: AtomicU64::new(0),
            last_empty_pass: AtomicU64::new(0),
            signals: Signals::new()?,
            #[cfg(test)]
            panics: false.into(),
            port,
            device,
            options,
        })
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
        let interface = self.device.interface();
        let opened = |socket: &Socket| {
            if let Some(tap) = &self.tap {
                tap.add_source(socket.local());
            }
            // The thread has to watch the new socket as well.
            self.signals.wake();
        };
        let sender =
            self.port.sender_for(&route, (local, remote), interface, &self.options, opened);
        Route { sender, flow_label: 0, ..route }
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

/// The current time on the clock of the transports.
pub(crate) fn now() -> Instant {
    Instant::from_nanos(clock::now())
}

impl std::fmt::Debug for Adapter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Adapter").field("device", &self.device.name()).finish_non_exhaustive()
    }
}

/// Keeps a device running: its thread stops when this is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    pub(crate) adapter: Arc<Adapter>,
    thread: Mutex<Option<JoinHandle<()>>>,
    process: u32,
}

impl Handle {
    fn start(adapter: Arc<Adapter>) -> Result<Arc<Self>, OpenError> {
        let worker = Arc::clone(&adapter);
        let name = format!("{:.15}", adapter.device.name());
        let thread = std::thread::Builder::new().name(name);
        let thread = signal::with_signals_blocked(|| thread.spawn(move || thread::run(&worker)))
            .map_err(OpenError::Thread)?;
        let handle = Arc::new(Self {
            adapter,
            thread: Mutex::new(Some(thread)),
            process: std::process::id(),
        });
        handle.adapter.signals.set_handle(&handle);
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return; // The thread stayed with the parent.
        }
        self.adapter.signals.stop();
        let thread = lock(&self.thread).take();
        // The device thread itself may drop the last handle, in an event handler.
        if let Some(thread) = thread.filter(|one| one.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
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
