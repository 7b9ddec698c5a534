//! What the data path of a device needs: its addresses, QPs, memory, counters, and the queues between its threads.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_links::ring::Rings;
use ferroce_links::route::Route;
use ferroce_links::udp::Forwarding;
use ferroce_memory::Registry;
use ferroce_sync::Signals;
use ferroce_sys::{Event, random};
use ferroce_tap::Tap;
use ferroce_wire::number::Qpn;

use super::counters::Counters;
use super::management::Management;
use super::port::{Groups, Port, PortState, open_links};
use super::queue_pair::{Core, RecvQueue};
use crate::device::Device;
use crate::error::{CreateError, OpenError};
use crate::event::Events;
use crate::options::{Local, Options};
use crate::sync::lock;

/// The QPs and SRQs of an open device.
pub(crate) type Tables = ferroce_device::Tables<Arc<Core>, Arc<RecvQueue>>;

/// What all threads that use an open device share, and what its packets need. [`Driver`](super::driver::Driver) and what it
/// calls know nothing above it.
pub(crate) struct DataPath {
    pub(crate) device: Device,
    pub(crate) options: Options,
    /// Its number among the shards of the device.
    pub(crate) shard: u8,
    pub(crate) port: Port,
    pub(crate) tables: Tables,
    pub(crate) memory: Arc<Registry>,
    pub(crate) management: Management,
    /// Async events of objects that belong to no opened context, such as an incoming connection.
    pub(crate) events: Arc<Events>,
    pub(crate) counters: Arc<Counters>,
    pub(super) tap: Arc<Tap>,

    pub(super) outbox: Outbox,
    pub(super) forwarding: Forwarding,
    pub(crate) rings: Rings,
    /// Threads that wait for the end of a pass.
    pub(super) waiting: AtomicU32,
    /// Completed passes over all receive sockets.
    pub(super) rx_passes: AtomicU64,
    pub(crate) signals: Signals<Event>,
}

impl DataPath {
    /// Opens the sockets of a device, or of a further shard of it if its `first` is given.
    pub(super) fn open(
        device: Device,
        options: Options,
        shard: u8,
        first: Option<&Self>,
    ) -> Result<Self, OpenError> {
        device.mtu()?;
        let (device, links) = open_links(device, &options)?;
        // Routes refer to links by index, so all shards need the same.
        if first.is_some_and(|first| first.device != device) {
            return Err(OpenError::NoAddress { interface: device.interface().name.clone() });
        }
        let slot = links.slot();
        let (memory, events, counters, tap, objects, state);
        match first {
            Some(first) => {
                memory = Arc::clone(&first.memory);
                events = Arc::clone(&first.events);
                counters = Arc::clone(&first.counters);
                tap = Arc::clone(&first.tap);
                objects = Arc::clone(first.tables.objects());
                state = Arc::clone(&first.port.state);
                links.sources().for_each(|source| tap.add_source(source));
            }
            None => {
                state = Arc::new(PortState::new(&device));
                let file = options.capture.as_deref().map(|path| (path, options.capture_policy));
                memory = Arc::new(Registry::with_source(random::number));
                events = Arc::new(Events::new()?);
                let (active, shards) = (state.is_active(), options.shard_count());
                counters = Arc::new(Counters::of(&device, active, shards));
                tap = Tap::open(device.capture_interface(), links.sources(), file)?;
                objects = Arc::default();
            }
        }
        Ok(Self {
            rings: Rings::new(options.local == Local::Memory, &links),
            shard,
            tables: Tables::new(slot, objects),
            memory,
            management: Management::new(slot, &device),
            events,
            counters,
            tap,
            outbox: Outbox::default(),
            forwarding: Forwarding::default(),
            waiting: AtomicU32::new(0),
            rx_passes: AtomicU64::new(0),
            signals: Signals::new(Event::new()?),
            port: Port { links, groups: Groups::default(), state },
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

    /// Whether this is the first shard, which does what is done once per device.
    pub(super) fn is_first(&self) -> bool {
        self.shard == 0
    }
}

/// Packets that belong to no QP: management datagrams and flow control probes.
#[derive(Debug, Default)]
pub(crate) struct Outbox {
    packets: Mutex<VecDeque<(Route, Box<[u8]>)>>,
    /// How many packets were ever queued, and how many of them were sent.
    queued: AtomicU64,
    sent: AtomicU64,
}

impl Outbox {
    pub(super) fn push(&self, route: Route, packet: Box<[u8]>) {
        let mut packets = lock(&self.packets);
        packets.push_back((route, packet));
        self.queued.fetch_add(1, Ordering::Release);
    }

    /// Takes the next packet. Without one it takes no lock: this is called in every pass.
    pub(super) fn pop(&self, taken: u64) -> Option<(Route, Box<[u8]>)> {
        if self.queued.load(Ordering::Acquire) == taken {
            return None;
        }
        lock(&self.packets).pop_front()
    }

    /// The number of packets queued so far.
    #[inline]
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Ordering::Acquire)
    }

    /// Whether the first `count` packets were sent.
    pub(super) fn has_sent(&self, count: u64) -> bool {
        self.sent.load(Ordering::Acquire) >= count
    }

    /// Records that the first `count` packets were sent.
    pub(super) fn set_sent(&self, count: u64) {
        if self.sent.load(Ordering::Relaxed) != count {
            self.sent.store(count, Ordering::Release);
        }
    }
}
