//! Packets between processes of one user on one host, through memory that they share.
//!
//! A ring takes the place of the sockets and of the flow control: its space is what may be in flight. Everything above
//! stays what it is, from the transports to captures and faults. A QP's packets go through the ring from the moment it
//! is ready to receive, if its peer is a process on this host that accepts rings ([`ferroce_sys::Hub`]), and through the
//! sockets otherwise. Packets from both are accepted.
//!
//! A record is a packet, or a run of them ([`run`]), behind the metadata that a socket would have reported. The ICRC is computed only where the packet
//! is captured: memory does not flip bits.

mod datagrams;
mod fast_path;
mod run;
mod rx;
#[cfg(test)]
mod tests;
mod tx;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_sys::{Change, Hub, Incoming, Outgoing, RxInfo, record_header};
use ferroce_wire::number::Qpn;

use super::adapter::{Adapter, now};
use super::driver::Driver;
use super::flow::Receiver;
use super::link::Route;
use super::queue_pair::Core;
use super::tx::{DEFAULT_HOPS, MAX_PACKET};
use crate::headers::Headers;
use crate::options::Local;
use crate::sync::lock;

/// The bytes of a ring: enough that both sides rarely wait for each other, and little enough for their caches.
const RING_SIZE: usize = 1 << 20;

/// How often a thread that spins looks at the rings between two looks at the sockets.
const LOOKS: usize = 32;

/// How often a pass of a program that polls looks at the rings before it does the rest.
const LOOKS_PER_PASS: usize = 64;

/// Bytes before the packet in a record.
const INFO: usize = record_header::LENGTH;
const MAX_RECORD: usize = INFO + MAX_PACKET + run::MAX_PAYLOAD;

/// The rings of a device.
#[derive(Debug)]
pub(crate) struct Rings {
    /// `None` if packets between local processes go through sockets.
    hub: Option<Hub>,
    incoming: Mutex<Arc<[Arc<Incoming>]>>,
    /// Changes with `incoming`.
    version: AtomicU32,
    outgoing: Mutex<HashMap<Receiver, Arc<RingTo>>>,
    /// Receivers of datagrams that accepted no ring, and when they are asked again.
    without: Mutex<HashMap<Receiver, u64>>,
    /// Rings that QPs wait for.
    full: Mutex<Vec<Arc<RingTo>>>,
    is_full: AtomicBool,
    /// Rings to processes that have ended; and whether there are any.
    ending: Mutex<Vec<Arc<RingTo>>>,
    is_ending: AtomicBool,
}

/// A ring to another process.
#[derive(Debug)]
pub(crate) struct RingTo {
    ring: Outgoing,
    /// QPs that wait for space.
    waiting: Mutex<VecDeque<Arc<Core>>>,
    /// The other process has ended, or what it wrote makes no sense.
    ended: AtomicBool,
    /// Since when datagrams have found it full, in nanoseconds; 0 if the last one did not.
    full_since: AtomicU64,
}

/// A QP's way to its peer, or to the receiver of a datagram.
#[derive(Debug)]
pub(crate) struct RingRoute {
    to: Arc<RingTo>,
    /// The route that its packets would have otherwise.
    path: Route,
    /// The metadata of its packets.
    info: [u8; INFO],
    /// The end of its last packet in the ring.
    sent: u64,
}

impl RingRoute {
    fn new(adapter: &Adapter, to: Arc<RingTo>, path: Route) -> Self {
        let info = record_header::encode(&RxInfo {
            source: adapter.port.sender(&path).local(),
            destination: path.destination.ip(),
            interface: None,
            tos: path.traffic_class,
            hop_limit: Some(path.hop_limit.unwrap_or(DEFAULT_HOPS)),
            length: 0,
            segment: 0,
            truncated: false,
        });
        Self { to, path, info, sent: 0 }
    }

    /// Whether packets of this route can still take it.
    fn serves(&self, path: &Route) -> bool {
        self.path == *path && !self.to.ended.load(Ordering::Relaxed)
    }

    /// Whether the peer has not yet received all packets: it is busy or stopped.
    pub(super) fn is_unread(&self) -> bool {
        !self.to.ended.load(Ordering::Relaxed) && self.to.ring.producer.lock().is_unread(self.sent)
    }
}

/// The part that only the thread that makes a pass uses.
#[derive(Debug)]
pub(super) struct RingState {
    incoming: Vec<Arc<Incoming>>,
    version: u32,
    /// The QP of the last packet, and the version of the table that it was found in: the next is often for the same.
    last_core: Option<(u32, Arc<Core>)>,
    /// A record, copied out of its ring.
    record: Box<[u8]>,
    /// The last metadata: the next is often the same.
    last: Option<Metadata>,
    /// What was received in this burst and is not counted yet.
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
}

/// The metadata of a record.
#[derive(Debug)]
struct Metadata {
    /// As it was in the ring.
    bytes: [u8; INFO],
    info: RxInfo,
    headers: Headers,
}

impl RingState {
    pub(super) fn new() -> Self {
        Self {
            incoming: Vec::new(),
            version: 0,
            last_core: None,
            record: vec![0; MAX_RECORD].into(),
            last: None,
            received: Uncounted::default(),
        }
    }
}

impl RingState {
    /// Looks several times whether there are packets, for a program that polls: an empty pass takes as long as twenty looks.
    #[inline]
    pub(super) fn look_for_packets(&self) {
        if let [only] = &self.incoming[..] {
            let _ = (0..LOOKS_PER_PASS).any(|_| only.consumer.look());
            return;
        }
        let looks = LOOKS_PER_PASS / self.incoming.len().max(1);
        let _ = (0..looks).any(|_| self.incoming.iter().any(|ring| ring.consumer.look()));
    }

    /// Releases a destroyed QP.
    pub(super) fn forget(&mut self, core: &Arc<Core>) {
        self.last_core.take_if(|(_, last)| Arc::ptr_eq(last, core));
    }
}

impl Rings {
    /// Accepts rings at these addresses, unless packets are to go through sockets.
    pub(super) fn new(
        local: Local,
        mut addresses: impl Iterator<Item = SocketAddr>,
        slot: u8,
    ) -> Self {
        let hub = (local == Local::Memory).then(Hub::new).and_then(Result::ok);
        // A process that cannot announce itself does not offer rings, so that both directions take the same way.
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

    /// What the device thread watches to accept rings and to notice the end of their processes.
    pub(super) fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// Whether there are packets to receive.
    pub(super) fn has_packets(&self) -> bool {
        self.hub.is_some() && lock(&self.incoming).iter().any(|ring| !ring.consumer.is_empty())
    }

    /// Looks several times whether there are packets, in about the time of one system call.
    pub(super) fn look_for_packets(&self) -> bool {
        (0..LOOKS).any(|_| {
            std::hint::spin_loop();
            self.has_packets()
        })
    }

    /// Announces that a thread will wait for the bells, which are readable if there are packets already.
    pub(crate) fn sleep(&self) {
        if let Some(hub) = &self.hub {
            let rings = Arc::clone(&lock(&self.incoming));
            hub.sleep(&rings, || self.has_space());
        }
    }

    /// Whether a ring that QPs wait for has space again.
    fn has_space(&self) -> bool {
        if !self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        // A copy: the thread that makes a pass takes the two locks in the other order.
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

    /// The ring to a process, made if there is none.
    fn connect(&self, receiver: Receiver, address: SocketAddr) -> Option<Arc<RingTo>> {
        let hub = self.hub.as_ref()?;
        let mut outgoing = lock(&self.outgoing);
        if let Some(ring) = outgoing.get(&receiver) {
            // Another process may have the slot by now.
            if !ring.ended.load(Ordering::Relaxed) && !ring.ring.has_ended() {
                return Some(Arc::clone(ring));
            }
        }
        let ring = hub.connect(address, receiver.slot, RING_SIZE)?;
        tracing::debug!(%address, slot = receiver.slot, "packets go through shared memory");
        let ring = Arc::new(RingTo {
            ring,
            waiting: Mutex::default(),
            ended: AtomicBool::new(false),
            full_since: AtomicU64::new(0),
        });
        outgoing.insert(receiver, Arc::clone(&ring));
        Some(ring)
    }
}

impl Adapter {
    /// The way of a QP's packets to a peer on this host, if they can go through memory.
    pub(crate) fn ring_to(&self, route: &Route, peer: Qpn) -> Option<RingRoute> {
        self.rings.hub()?;
        if !self.port.is_here(route.destination.ip()) || peer.0 < 3 {
            return None;
        }
        let receiver = Receiver::new(route.destination.ip(), peer);
        let to = self.rings.connect(receiver, route.destination)?;
        Some(RingRoute::new(self, to, *route))
    }

    /// Accepts rings, and notes the end of processes. For the device thread.
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
    /// Fails the requests that are in flight to processes that have ended. Called when all that they had sent was
    /// received: the last ACK may be among it.
    fn end_rings(&mut self, adapter: &Adapter) {
        adapter.rings.is_ending.store(false, Ordering::Relaxed);
        let ending = std::mem::take(&mut *lock(&adapter.rings.ending));
        if ending.is_empty() {
            return;
        }
        ending.iter().for_each(|ring| ring.ended.store(true, Ordering::Relaxed));
        for core in adapter.tables.queue_pairs() {
            let mut inner = core.inner.lock();
            let to = inner.ring.as_ref().map(|route| &route.to);
            let concerned = to.is_some_and(|to| ending.iter().any(|ring| Arc::ptr_eq(ring, to)));
            if !concerned || inner.destroyed {
                continue;
            }
            let now = now();
            inner.endpoint.handle_link_down(now);
            self.received(adapter, &core, &mut inner, now);
            self.schedule.push(Arc::clone(&core));
        }
    }
}
