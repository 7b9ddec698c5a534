//! Packets between processes of one user on one host, through shared memory.
//!
//! A ring replaces the sockets and their flow control: its space bounds what may be in flight. The layers above are
//! unchanged, from the transports to captures and faults. Once a QP is ready to receive, its packets go through a ring
//! if its peer is a process on this host that accepts rings ([`ferroce_sys::Hub`]), and through the sockets otherwise.
//! Packets from both paths are accepted.
//!
//! A record is a packet or a run of packets ([`run`]), preceded by the metadata that a socket would report. The ICRC is
//! computed only for captures and injected faults, because memory does not flip bits.

mod datagrams;
mod fast_path;
mod run;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

pub(super) use tx::resume_rings;

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_device::credit::Receiver;
use ferroce_device::tuning::shared_memory::{
    MAX_PAYLOAD, SIZE as RING_SIZE, SPINS, SPINS_PER_PASS,
};
use ferroce_links::packet::MAX_PACKET;
use ferroce_links::route::Route;
use ferroce_sys::{Change, Hub, Incoming, MAX_RING_SIZE, Outgoing, RxInfo, record_header};
use ferroce_wire::number::Qpn;
use ferroce_wire::udp_headers::Headers;

use super::adapter::{Adapter, now};
use super::counters::Counters;
use super::driver::Driver;
use crate::options::Local;
use crate::sync::lock;

/// Bytes of metadata before the packet in a record.
const INFO: usize = record_header::LENGTH;
const MAX_RECORD: usize = INFO + MAX_PACKET + MAX_PAYLOAD;

// No process accepts a larger one.
const _: () = assert!(RING_SIZE <= MAX_RING_SIZE);

/// The rings of a device.
#[derive(Debug)]
pub(crate) struct Rings {
    /// `None` if packets between local processes go through sockets.
    hub: Option<Hub>,
    incoming: Mutex<Arc<[Arc<Incoming>]>>,
    /// Incremented when `incoming` changes.
    version: AtomicU32,
    outgoing: Mutex<HashMap<Receiver, Arc<RingTo>>>,
    /// Receivers of datagrams that accepted no ring, and when a connect to them is retried.
    without: Mutex<HashMap<Receiver, u64>>,
    /// Full rings that QPs wait for, and whether there are any.
    full: Mutex<Vec<Arc<RingTo>>>,
    is_full: AtomicBool,
    /// Rings to processes that have exited, and whether there are any.
    ending: Mutex<Vec<Arc<RingTo>>>,
    is_ending: AtomicBool,
}

/// A ring to another process.
#[derive(Debug)]
pub(crate) struct RingTo {
    ring: Outgoing,
    /// The other process has exited, or has written an invalid position.
    ended: AtomicBool,
}

/// A QP's path through a ring to its peer, or to the receiver of a datagram.
#[derive(Debug)]
pub(crate) struct RingRoute {
    to: Arc<RingTo>,
    /// The route that its packets would take through a socket.
    path: Route,
    /// The metadata of its packets.
    info: [u8; INFO],
    /// The position in the ring after its last packet.
    sent: u64,
    /// Where short packets are written first.
    short: [u8; tx::SHORT_RECORD],
}

impl RingRoute {
    fn new(adapter: &Adapter, to: Arc<RingTo>, path: Route) -> Self {
        let info = record_header::encode(&RxInfo {
            source: adapter.port.links.sender(&path).local(),
            destination: path.destination.ip(),
            interface: None,
            tos: path.traffic_class,
            hop_limit: Some(path.hops()),
            length: 0,
            segment: 0,
            truncated: false,
        });
        Self { to, path, info, sent: 0, short: [0; tx::SHORT_RECORD] }
    }

    /// Whether packets with this route can still be sent through the ring.
    pub(super) fn serves(&self, path: &Route) -> bool {
        self.path == *path && !self.to.ended.load(Ordering::Relaxed)
    }
}

/// State that only the owner of the device uses.
#[derive(Debug)]
pub(super) struct RingState {
    incoming: Vec<Arc<Incoming>>,
    version: u32,
    /// The buffer into which records are copied out of their rings.
    record: Box<[u8]>,
    /// The metadata of the last record: that of the next is often the same.
    last: Option<Metadata>,
    /// What was received in this burst and is not yet counted.
    received: Uncounted,
}

/// Packets and bytes to add to the counters of the device.
#[derive(Clone, Copy, Debug, Default)]
struct Uncounted {
    packets: u32,
    bytes: usize,
}

impl Uncounted {
    #[inline]
    fn add(&mut self, packets: u32, bytes: usize) {
        self.packets += packets;
        self.bytes += bytes;
    }

    /// Adds the counts to the counters of the device, and resets them.
    #[inline]
    fn move_to(&mut self, counters: &Counters) {
        let Self { packets, bytes } = std::mem::take(self);
        if packets > 0 {
            counters.received_locally(packets, bytes);
        }
    }
}

/// The parsed metadata of a record.
#[derive(Debug)]
struct Metadata {
    /// As encoded in the ring.
    bytes: [u8; INFO],
    info: RxInfo,
    headers: Headers,
}

impl RingState {
    pub(super) fn new() -> Self {
        Self {
            incoming: Vec::new(),
            version: 0,
            record: vec![0; MAX_RECORD].into(),
            last: None,
            received: Uncounted::default(),
        }
    }
}

impl RingState {
    /// Polls the rings several times, for a polling program: an empty pass takes as long as twenty polls of the rings.
    #[inline]
    pub(super) fn spin_for_packets(&self) {
        if let [only] = &self.incoming[..] {
            let _ = (0..SPINS_PER_PASS).any(|_| only.consumer.has_records());
            return;
        }
        let looks = SPINS_PER_PASS / self.incoming.len().max(1);
        let _ = (0..looks).any(|_| self.incoming.iter().any(|ring| ring.consumer.has_records()));
    }
}

impl Rings {
    /// Accepts rings at these addresses, unless `local` selects sockets.
    pub(super) fn new(
        local: Local,
        mut addresses: impl Iterator<Item = SocketAddr>,
        slot: u8,
    ) -> Self {
        let hub = (local == Local::Memory).then(Hub::new).and_then(Result::ok);
        // A process that cannot announce itself does not offer rings either, so that both directions take the same path.
        let hub = hub.filter(|hub| addresses.all(|at| hub.announce(at, slot)));
        Self {
            hub,
            incoming: Mutex::new(Arc::new([])),
            version: AtomicU32::new(0),
            outgoing: Mutex::default(),
            without: Mutex::default(),
            full: Mutex::default(),
            is_full: AtomicBool::new(false),
            ending: Mutex::default(),
            is_ending: AtomicBool::new(false),
        }
    }

    /// What the device thread watches to accept rings and to notice when their processes exit.
    pub(super) fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// Whether there are packets to receive.
    pub(super) fn has_packets(&self) -> bool {
        self.hub.is_some() && lock(&self.incoming).iter().any(|ring| !ring.consumer.is_empty())
    }

    /// Polls the rings several times, in about the time of one system call. Returns whether there are packets.
    pub(super) fn spin_for_packets(&self) -> bool {
        (0..SPINS).any(|_| {
            std::hint::spin_loop();
            self.has_packets()
        })
    }

    /// Requests wakeups for a thread that is about to wait for [`Hub::bells`], which is readable at once if there are packets already.
    pub(crate) fn sleep(&self) {
        if let Some(hub) = &self.hub {
            let rings = Arc::clone(&lock(&self.incoming));
            hub.sleep(&rings, || self.has_space());
        }
    }

    /// Whether a full ring that QPs wait for has space again.
    fn has_space(&self) -> bool {
        if !self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        // A copy, so that the locks are not nested: the owner of the device takes the two in the opposite order.
        let full = lock(&self.full).clone();
        full.iter().any(|to| {
            let mut producer = to.ring.producer.lock();
            let has_room = !producer.awaits_room() || producer.has_room(MAX_RECORD) != Ok(false);
            has_room || to.ended.load(Ordering::Relaxed)
        })
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Incoming>>)) {
        let mut incoming = lock(&self.incoming);
        let mut list = incoming.to_vec();
        change(&mut list);
        *incoming = list.into();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The ring to a process, created if there is none.
    fn connect(&self, receiver: Receiver, address: SocketAddr) -> Option<Arc<RingTo>> {
        let hub = self.hub.as_ref()?;
        let mut outgoing = lock(&self.outgoing);
        if let Some(ring) = outgoing.get(&receiver) {
            // Another process may own the slot by now.
            if !ring.ended.load(Ordering::Relaxed) && !ring.ring.has_ended() {
                return Some(Arc::clone(ring));
            }
        }
        let ring = hub.connect(address, receiver.slot, RING_SIZE)?;
        tracing::debug!(%address, slot = receiver.slot, "packets go through shared memory");
        let ring = Arc::new(RingTo { ring, ended: AtomicBool::new(false) });
        outgoing.insert(receiver, Arc::clone(&ring));
        Some(ring)
    }
}

impl Adapter {
    /// The path of a QP's packets through a ring to a peer on this host, if the peer accepts rings.
    pub(crate) fn ring_to(&self, route: &Route, peer: Qpn) -> Option<RingRoute> {
        self.rings.hub()?;
        if !self.port.links.is_here(route.destination.ip()) || peer.0 < 3 {
            return None;
        }
        let receiver = Receiver::new(route.destination.ip(), peer);
        let to = self.rings.connect(receiver, route.destination)?;
        Some(RingRoute::new(self, to, *route))
    }

    /// Accepts rings, and records which processes have exited. Called by the device thread.
    pub(super) fn run_hub(&self) {
        let Some(hub) = self.rings.hub() else { return };
        for change in hub.run() {
            match change {
                Change::Accepted(ring) => self.rings.change(|list| list.push(ring)),
                Change::Ended(id) => {
                    let mut outgoing = lock(&self.rings.outgoing);
                    let found = outgoing.iter().find(|(_, ring)| ring.ring.id == id);
                    let ring = found.map(|(&to, _)| to).and_then(|to| outgoing.remove(&to));
                    lock(&self.rings.ending).extend(ring);
                    self.rings.is_ending.store(true, Ordering::Release);
                }
            }
        }
    }
}

impl Driver {
    /// Fails the requests in flight to processes that have exited. Called after everything that they sent was received,
    /// because the last ACK may be among it.
    fn end_rings(&mut self, adapter: &Adapter) {
        adapter.rings.is_ending.store(false, Ordering::Relaxed);
        let ending = std::mem::take(&mut *lock(&adapter.rings.ending));
        if ending.is_empty() {
            return;
        }
        ending.iter().for_each(|ring| ring.ended.store(true, Ordering::Relaxed));
        for core in adapter.tables.queue_pairs() {
            let mut inner = core.inner.lock();
            let to = inner.queue.as_ref().map(|route| &route.to);
            let concerned = to.is_some_and(|to| ending.iter().any(|ring| Arc::ptr_eq(ring, to)));
            if !concerned || inner.destroyed {
                continue;
            }
            let now = now();
            inner.endpoint.handle_link_down(now);
            self.rx.completed |= self.device.received(adapter, &core, &mut inner, now);
            self.device.schedule.push(Arc::clone(&core));
        }
    }
}
