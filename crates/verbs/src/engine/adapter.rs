//! The state that all handles of one device share in a process.

use std::collections::{HashMap, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;

use ferroce_memory::Registry;
use ferroce_proto::memory::PdId;
use ferroce_proto::time::Instant;
use ferroce_sys::interface::Interface;
use ferroce_sys::{Slot, Socket, clock, random, signal};
use ferroce_wire::number::Qpn;

use super::counters::Counters;
use super::forwarding::Forwarding;
use super::link::{Link, Route};
use super::management::Management;
use super::numbers::Numbers;
use super::ownership::Ownership;
use super::port::Port;
use super::progress::PassState;
use super::queue_pair::{Core, RecvQueue};
use super::senders::{Senders, first_port, source_port};
use super::{groups::Groups, thread};
use crate::device::{Device, position};
use crate::error::{CreateError, OpenError, SystemError};
use crate::event::{EventKind, Events};
use crate::options::Options;
use crate::sync::lock;
use crate::tap::Tap;

/// An open device in this process.
pub(crate) struct Adapter {
    pub(crate) device: Device,
    pub(crate) options: Options,
    /// One link per entry of the GID table, in its order, then the links of loopback addresses.
    pub(crate) links: Vec<Link>,
    slot: u32,
    pub(crate) memory: Registry,
    pub(super) queue_pairs: RwLock<HashMap<u32, Arc<Core>>>,
    receive_queues: RwLock<HashMap<u32, Arc<RecvQueue>>>,
    pub(crate) groups: Groups,
    numbers: Mutex<Numbers>,
    domains: AtomicU32,
    /// QPs that may have packets to send.
    pub(crate) ready: Mutex<VecDeque<Arc<Core>>>,
    /// Packets that belong to no QP: management datagrams.
    pub(crate) outbox: Mutex<VecDeque<(Route, Box<[u8]>)>>,
    /// How many packets were ever queued in the outbox, and how many of them were sent.
    outbox_queued: AtomicU64,
    pub(crate) outbox_sent: AtomicU64,
    /// Completed passes over all receive sockets.
    pub(crate) rx_passes: AtomicU64,
    pub(crate) forwarding: Forwarding,
    pub(crate) ownership: Ownership,
    pub(super) progress: Mutex<PassState>,
    /// Threads waiting for the end of a pass.
    pub(super) waiting: AtomicU32,
    /// The process that opened the device.
    pub(super) process: u32,
    pub(crate) thread: thread::Signals,
    /// Async events of objects that belong to no opened context, such as an incoming connection.
    pub(crate) events: Arc<Events>,
    pub(crate) counters: Counters,
    pub(crate) tap: Option<Tap>,
    pub(crate) management: Management,
    pub(crate) port: Port,
    /// Makes the next pass of the device thread panic.
    #[cfg(test)]
    panics: std::sync::atomic::AtomicBool,
}

/// A device, its usable addresses, and the sockets opened for each.
type Opened = (Device, Vec<SocketAddr>, Vec<(Slot, Socket)>);

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
            if let Some(handle) = adapter.thread.handle() {
                return Ok(handle);
            }
        }
        let adapter = Arc::new(Self::new(device.clone(), options.clone())?);
        tracing::info!(device = device.name(), slot = adapter.slot, "device opened");
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
        adapters.iter().for_each(|adapter| adapter.thread.stop());
        let until = clock::now() + LONGEST;
        while !adapters.iter().all(|adapter| adapter.thread.has_stopped()) && clock::now() < until {
            std::thread::yield_now();
        }
        // Dropping the last reference would close sockets that the program may still use.
        adapters.into_iter().for_each(std::mem::forget);
        // Writing captures to a disk may take longer than sending.
        crate::tap::finish_all(clock::now() + 2_000_000_000);
    }

    fn new(device: Device, options: Options) -> Result<Self, OpenError> {
        device.mtu()?;
        let (device, addresses, opened) = Self::open_links(device, &options)?;
        let mut links = Vec::new();
        let slot = opened.first().map_or(0, |(slot, _)| u32::from(slot.number()));
        let interface = device.interface();
        for ((slot, receiver), address) in opened.into_iter().zip(addresses) {
            let sender = open_sender(first_port(address), interface, &options)?;
            links.push(Link { address, receiver, senders: Senders::new(sender), slot });
        }
        let sources = links.iter().map(|link| link.senders.first().local());
        let tap = options.capture.as_ref().map(|path| Tap::open(path, &device, sources));
        let tap = tap.transpose()?;
        let progress = PassState::new(&links, slot as u8, options.faults);
        Ok(Self {
            management: Management::new(slot as u8, &device),
            port: Port::new(&device),
            links,
            slot,
            memory: Registry::with_source(random::number),
            queue_pairs: RwLock::default(),
            receive_queues: RwLock::default(),
            groups: Groups::default(),
            numbers: Mutex::default(),
            domains: AtomicU32::new(1),
            ready: Mutex::default(),
            outbox: Mutex::default(),
            outbox_queued: AtomicU64::new(0),
            outbox_sent: AtomicU64::new(0),
            rx_passes: AtomicU64::new(0),
            forwarding: Forwarding::default(),
            ownership: Ownership::new(),
            progress: Mutex::new(progress),
            waiting: AtomicU32::new(0),
            process: std::process::id(),
            thread: thread::Signals::new()?,
            #[cfg(test)]
            panics: false.into(),
            events: Arc::new(Events::new()?),
            counters: Counters::default(),
            tap,
            device,
            options,
        })
    }

    /// Opens the sockets of all addresses that can be used, and leaves the others out. Another user may have the port on
    /// the loopback: the device is of use without it.
    fn open_links(mut device: Device, options: &Options) -> Result<Opened, OpenError> {
        loop {
            let at_port = |mut address: SocketAddr| {
                address.set_port(options.port);
                address
            };
            let addresses: Vec<_> = device.addresses().into_iter().map(at_port).collect();
            if device.gids().is_empty() {
                return Err(OpenError::NoAddress { interface: device.interface().name.clone() });
            }
            match Slot::open_all(&addresses, &options.sockets) {
                Ok(opened) => return Ok((device, addresses, opened)),
                Err(ferroce_sys::Error::AddressNotLocal { address }) if addresses.len() > 1 => {
                    device = device.without(address);
                }
                Err(SystemError::PortTaken { address })
                    if address.ip().is_loopback() && device.carries_loopback() =>
                {
                    tracing::info!(%address, "loopback addresses skipped: their port is taken");
                    device = device.without_loopback();
                }
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn new_pd(&self) -> PdId {
        PdId(self.domains.fetch_add(1, Ordering::Relaxed))
    }

    /// A number that no queue pair and no shared receive queue of this process has.
    pub(crate) fn new_number(&self) -> Result<Qpn, CreateError> {
        let queue_pairs = self.queue_pairs.read().unwrap_or_else(PoisonError::into_inner);
        let receive_queues = self.receive_queues.read().unwrap_or_else(PoisonError::into_inner);
        let number = |low: u32| self.slot << 16 | low;
        let is_taken = |low| {
            queue_pairs.contains_key(&number(low)) || receive_queues.contains_key(&number(low))
        };
        let low = lock(&self.numbers).next(random::number, is_taken);
        low.map(|low| Qpn(number(low))).ok_or(CreateError::NoQueueNumbers)
    }

    /// The slot in the top bits of this process's QPNs.
    pub(crate) fn slot(&self) -> u8 {
        self.slot as u8
    }

    pub(crate) fn add_queue_pair(&self, core: &Arc<Core>) {
        let mut table = self.queue_pairs.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(core.number.0, Arc::clone(core));
    }

    /// Releases the QPN of a destroyed QP.
    pub(crate) fn remove_queue_pair(&self, number: Qpn) {
        let mut table = self.queue_pairs.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&number.0);
    }

    pub(crate) fn queue_pair(&self, number: Qpn) -> Option<Arc<Core>> {
        let table = self.queue_pairs.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&number.0).cloned()
    }

    pub(crate) fn add_receive_queue(&self, number: Qpn, receives: &Arc<RecvQueue>) {
        let mut table = self.receive_queues.write().unwrap_or_else(PoisonError::into_inner);
        table.insert(number.0, Arc::clone(receives));
    }

    pub(super) fn remove_receive_queue(&self, number: Qpn) {
        let mut table = self.receive_queues.write().unwrap_or_else(PoisonError::into_inner);
        table.remove(&number.0);
    }

    pub(crate) fn receive_queue(&self, number: Qpn) -> Option<Arc<RecvQueue>> {
        let table = self.receive_queues.read().unwrap_or_else(PoisonError::into_inner);
        table.get(&number.0).cloned()
    }

    /// The index of the link with this address.
    pub(crate) fn link_of(&self, address: IpAddr) -> Option<u8> {
        let addresses: Vec<_> = self.links.iter().map(|link| link.address.ip()).collect();
        position(&addresses, address).and_then(|index| u8::try_from(index).ok())
    }

    /// The index of the loopback link of an address family.
    pub(crate) fn loopback_link(&self, ipv4: bool) -> Option<u8> {
        let is_it = |link: &Link| link.address.ip().is_loopback() && link.address.is_ipv4() == ipv4;
        self.links.iter().position(is_it).and_then(|index| u8::try_from(index).ok())
    }

    /// The GID index that represents a link. A loopback link outside the GID table uses the index of an address of its
    /// family, or 0: [`Adapter::route`] then chooses by destination.
    pub(crate) fn source_index(&self, link: u8) -> u8 {
        let gids = self.device.gids();
        if usize::from(link) < gids.len() {
            return link;
        }
        let ipv4 = self.links.get(usize::from(link)).is_some_and(|link| link.address.is_ipv4());
        let family = gids.iter().position(|entry| entry.address.is_ipv4() == ipv4);
        family.and_then(|index| u8::try_from(index).ok()).unwrap_or(0)
    }

    /// Returns the route with the source port of packets between these two QPs.
    pub(crate) fn with_sender(&self, route: Route, local: Qpn, remote: Qpn) -> Route {
        let link = &self.links[usize::from(route.link)];
        let port = source_port(route.flow_label, local, remote);
        let sender = link.senders.index_of(port, |port| {
            let mut address = link.address;
            address.set_port(port);
            let socket = open_sender(address, self.device.interface(), &self.options).ok()?;
            if let Some(tap) = &self.tap {
                tap.add_source(socket.local());
            }
            // The thread has to watch the new socket as well.
            self.thread.wake();
            Some(socket)
        });
        Route { sender, flow_label: 0, ..route }
    }

    /// Queues a QP for transmission and drives the device, unless another thread does.
    pub(crate) fn kick(&self, core: &Arc<Core>) {
        if core.enqueue() {
            lock(&self.ready).push_back(Arc::clone(core));
        }
        self.drive();
    }

    /// Sends a packet that belongs to no QP.
    pub(crate) fn send_packet(&self, route: Route, packet: Box<[u8]>) {
        self.queue_packet(route, packet);
        self.drive();
    }

    /// Queues such a packet. For callers that drive the device already and transmit at the end of their pass.
    pub(crate) fn queue_packet(&self, route: Route, packet: Box<[u8]>) {
        let mut outbox = lock(&self.outbox);
        outbox.push_back((route, packet));
        self.outbox_queued.fetch_add(1, Ordering::Relaxed);
    }

    /// Waits until all packets in the outbox have been sent, so that a process can exit right after queueing them. A
    /// packet to another process of this host may have been steered to our own socket, so the sockets are read as well
    /// and such packets are forwarded.
    ///
    /// Takes at most 100 ms: a network that accepts no packets is not waited for. The caller must not hold a lock.
    pub(crate) fn flush_outbox(&self) {
        const LONGEST: u64 = 100_000_000;
        let until = clock::now() + LONGEST;
        let reached = |count: &AtomicU64, wanted: u64| {
            while count.load(Ordering::Acquire) < wanted && clock::now() < until {
                self.run(false);
                std::thread::yield_now();
            }
        };
        reached(&self.outbox_sent, self.outbox_queued.load(Ordering::Relaxed));
        // A pass may already have been in progress.
        reached(&self.rx_passes, self.rx_passes.load(Ordering::Acquire) + 2);
    }

    /// Transmits everything that is ready, or makes the current owner do it.
    pub(crate) fn drive(&self) {
        self.ownership.run(|| {
            let _fatal = FatalOnPanic::new(self);
            let mut progress = self.begin_pass();
            self.transmit_all(&mut progress, now());
            self.publish_timer(&progress);
        });
    }

    /// Receives, runs timers and transmits, unless another thread does: polling a CQ drives the device. A program that
    /// has armed the CQ (`sleeps`) polls once more and then blocks, so the device thread must keep watching the
    /// sockets.
    pub(crate) fn poll(&self, sleeps: bool) {
        if !sleeps {
            self.thread.polled();
        }
        let mut asked = false;
        let noted = self.ownership.try_run(2, || {
            let _fatal = FatalOnPanic::new(self);
            let mut progress = self.begin_pass();
            // The second pass was requested by the device thread. It would keep requesting passes until the event that
            // woke it is handled, so this pass covers the mailboxes too.
            if asked {
                self.receive_forwarded(&mut progress);
            }
            self.round(&mut progress, asked);
            asked = true;
            self.publish_timer(&progress);
        });
        if noted {
            // The thread requested a pass again before this one ended. Hand over to it: the program is waiting for this
            // call.
            self.thread.wake();
        }
    }

    /// Makes passes for the device thread until there is nothing left to do. Returns whether there was anything, or
    /// `None` if another thread owns the device and will make another pass.
    pub(crate) fn run(&self, mailboxes: bool) -> Option<bool> {
        let mut busy = false;
        let ours = self.ownership.run(|| {
            let _fatal = FatalOnPanic::new(self);
            #[cfg(test)]
            assert!(!self.panics.load(Ordering::Relaxed), "a test wants a panic");
            let mut progress = self.begin_pass();
            if mailboxes {
                self.receive_forwarded(&mut progress);
            }
            // Bounded, so that a request to stop is noticed under load.
            for _ in 0..64 {
                if !self.round(&mut progress, true) {
                    break;
                }
                busy = true;
                if self.is_awaited() {
                    break;
                }
            }
            self.publish_timer(&progress);
        });
        ours.then_some(busy)
    }

    /// Tells the device thread that no thread polls any more: it watches the sockets again.
    pub(crate) fn stop_polling(&self) {
        self.thread.stop_polling();
    }

    fn publish_timer(&self, progress: &PassState) {
        self.thread.set_timer(progress.next_timer());
    }

    /// The socket whose full send buffer blocks transmission, if there is one.
    pub(crate) fn blocked_sender(&self) -> Option<&Socket> {
        let route = lock(&self.progress).blocked_route()?;
        Some(self.links[usize::from(route.link)].senders.get(route.sender))
    }
}

/// Opens a send socket at this address, on its port or the next free one.
fn open_sender(
    address: SocketAddr,
    interface: &Interface,
    options: &Options,
) -> Result<Socket, SystemError> {
    let sender = Socket::source(address, &options.sockets)?;
    if interface.multicast || interface.loopback {
        // On an interface without multicast, sending to a group fails later.
        let _ = sender.multicast_out(interface.index, true);
    }
    Ok(sender)
}

/// Raises [`EventKind::DeviceFatal`] when a pass panics: ownership is never released after that.
struct FatalOnPanic<'a> {
    adapter: &'a Adapter,
    /// Whether the thread was panicking already: a destructor may make a pass during an unrelated panic.
    before: bool,
}

impl<'a> FatalOnPanic<'a> {
    fn new(adapter: &'a Adapter) -> Self {
        Self { adapter, before: std::thread::panicking() }
    }
}

impl Drop for FatalOnPanic<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.before {
            tracing::error!(
                device = self.adapter.device.name(),
                "the engine panicked: device fatal"
            );
            self.adapter.port.raise(EventKind::DeviceFatal);
            // The thread may be asleep.
            self.adapter.thread.wake();
        }
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
        handle.adapter.thread.set_handle(&handle);
        Ok(handle)
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return; // The thread stayed with the parent.
        }
        self.adapter.thread.stop();
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
        adapter.thread.wake();
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
