//! The rings of a device.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use ferroce_device::credit::Receiver;
use ferroce_device::tuning::shared_memory::{ASKED_AGAIN, SIZE, SPINS};
use ferroce_sync::Mutex;
use ferroce_sys::{Change, Hub, Incoming, MAX_RING_SIZE, clock};
use ferroce_wire::number::Qpn;

use super::route::{MAX_RECORD, RingRoute, RingTo};
use crate::route::Route;
use crate::udp::addresses::Addresses;

// No process accepts a larger one.
const _: () = assert!(SIZE <= MAX_RING_SIZE);

/// The rings of a device.
#[derive(Debug, Default)]
pub struct Rings {
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

impl Rings {
    /// Accepts rings at these addresses, if `is_on`: otherwise packets between local processes go through sockets.
    pub fn new(is_on: bool, addresses: &Addresses) -> Self {
        let hub = is_on.then(Hub::new).and_then(Result::ok);
        let slot = addresses.slot();
        // A process that cannot announce itself does not offer rings either, so that both directions take the same path.
        let hub = hub.filter(|hub| addresses.iter().all(|own| hub.announce(own.address, slot)));
        Self { hub, ..Self::default() }
    }

    /// What the device thread watches to accept rings and to notice when their processes exit.
    pub fn hub(&self) -> Option<&Hub> {
        self.hub.as_ref()
    }

    /// Whether there are packets to receive.
    pub fn has_packets(&self) -> bool {
        self.hub.is_some() && self.incoming.lock().iter().any(|ring| !ring.consumer.is_empty())
    }

    /// Polls the rings several times, in about the time of one system call. Returns whether there are packets.
    pub fn spin_for_packets(&self) -> bool {
        (0..SPINS).any(|_| {
            std::hint::spin_loop();
            self.has_packets()
        })
    }

    /// Requests wakeups for a thread that is about to wait for [`Hub::bells`], which is readable at once if there are packets already.
    pub fn sleep(&self) {
        if let Some(hub) = &self.hub {
            hub.sleep(&self.incoming(), || self.has_space());
        }
    }

    /// Whether a full ring that QPs wait for has space again.
    fn has_space(&self) -> bool {
        if !self.is_full.load(Ordering::Relaxed) {
            return false;
        }
        // Of a copy, so that the locks are not nested: the owner of the device takes the two in the opposite order.
        self.full().iter().any(|to| {
            let mut producer = to.ring.producer.lock();
            let has_room = !producer.awaits_room() || producer.has_room(MAX_RECORD) != Ok(false);
            has_room || to.has_ended()
        })
    }

    /// The full rings that QPs wait for.
    pub fn full(&self) -> Vec<Arc<RingTo>> {
        self.full.lock().clone()
    }

    /// QPs wait for space in a ring.
    pub(super) fn wait_for(&self, to: &Arc<RingTo>) {
        let mut full = self.full.lock();
        if !full.iter().any(|known| Arc::ptr_eq(known, to)) {
            full.push(Arc::clone(to));
        }
        self.is_full.store(true, Ordering::Relaxed);
    }

    /// Finds the rings that have space again, and calls `resume` with their number and for how many QPs. It returns whether
    /// others still wait.
    #[inline]
    pub fn resume(&self, resume: impl FnMut(u64, usize) -> bool) {
        if self.is_full.load(Ordering::Relaxed) {
            self.resume_full(resume);
        }
    }

    fn resume_full(&self, mut resume: impl FnMut(u64, usize) -> bool) {
        let mut full = self.full.lock();
        full.retain(|to| {
            let mut most = usize::MAX;
            if !to.has_ended() {
                let mut producer = to.ring.producer.lock();
                let is_full = producer.has_room(MAX_RECORD) == Ok(false)
                    && (producer.awaits_room() || producer.wait_for_room(MAX_RECORD) == Ok(false));
                if is_full {
                    return true;
                }
                most = producer.rooms(MAX_RECORD).max(1);
            }
            resume(to.ring.id, most)
        });
        self.is_full.store(!full.is_empty(), Ordering::Relaxed);
    }

    /// The rings to receive from.
    pub fn incoming(&self) -> Arc<[Arc<Incoming>]> {
        Arc::clone(&self.incoming.lock())
    }

    /// A number that is different whenever [`Rings::incoming`] is.
    #[inline]
    pub fn version(&self) -> u32 {
        self.version.load(Ordering::Acquire)
    }

    /// Closes rings from other processes: those that are broken, and those that have ended, of which all records were taken.
    #[cold]
    pub fn close(&self, ids: &[u64]) {
        if let Some(hub) = &self.hub {
            ids.iter().for_each(|&id| hub.close(id));
        }
        self.change(|list| list.retain(|ring| !ids.contains(&ring.id)));
    }

    fn change(&self, change: impl FnOnce(&mut Vec<Arc<Incoming>>)) {
        let mut incoming = self.incoming.lock();
        let mut list = incoming.to_vec();
        change(&mut list);
        *incoming = list.into();
        self.version.fetch_add(1, Ordering::Release);
    }

    /// The ring to a process, created if there is none.
    fn connect(&self, receiver: Receiver, address: SocketAddr) -> Option<Arc<RingTo>> {
        let hub = self.hub.as_ref()?;
        let mut outgoing = self.outgoing.lock();
        if let Some(ring) = outgoing.get(&receiver) {
            // Another process may own the slot by now.
            if !ring.has_ended() && !ring.ring.has_ended() {
                return Some(Arc::clone(ring));
            }
        }
        let ring = hub.connect(address, receiver.slot, SIZE)?;
        tracing::debug!(%address, slot = receiver.slot, "packets go through shared memory");
        let ring = Arc::new(RingTo::new(ring));
        let replaced = outgoing.insert(receiver, Arc::clone(&ring));
        // When the hub reports its end, it is not found any more: the QPs that still use it are told now.
        if let Some(replaced) = replaced.filter(|replaced| !replaced.has_ended()) {
            self.ending.lock().push(replaced);
            self.is_ending.store(true, Ordering::Release);
        }
        Some(ring)
    }

    /// Whether packets to this QPN may go through a ring: it is on this host, and not for management.
    fn may_reach(&self, addresses: &Addresses, route: &Route, to: Qpn) -> bool {
        self.hub.is_some() && to.0 >= 3 && addresses.is_here(route.destination.ip())
    }

    /// The path of a QP's packets through a ring to a peer on this host, if the peer accepts rings.
    pub fn route(&self, addresses: &Addresses, route: &Route, peer: Qpn) -> Option<RingRoute> {
        if !self.may_reach(addresses, route, peer) {
            return None;
        }
        let receiver = Receiver::new(route.destination.ip(), peer);
        let to = self.connect(receiver, route.destination)?;
        Some(RingRoute::new(addresses, to, *route))
    }

    /// The ring to a process, if there is one and the process has not exited.
    fn existing(&self, receiver: Receiver) -> Option<Arc<RingTo>> {
        let outgoing = self.outgoing.lock();
        outgoing.get(&receiver).filter(|ring| !ring.has_ended()).cloned()
    }

    /// Creates the ring for a datagram that is about to be posted, if its receiver is on this host and accepts rings. The thread
    /// that posts does this, because it takes system calls.
    pub fn prepare_datagram(&self, addresses: &Addresses, route: &Route, destination: Qpn) {
        if destination == Qpn::MULTICAST || !self.may_reach(addresses, route, destination) {
            return;
        }
        let receiver = Receiver::new(route.destination.ip(), destination);
        if self.existing(receiver).is_some() {
            return;
        }
        let now = clock::now();
        let mut without = self.without.lock();
        if without.get(&receiver).is_some_and(|&until| now < until) {
            return;
        }
        match self.connect(receiver, route.destination) {
            Some(_) => without.remove(&receiver),
            None => without.insert(receiver, now + ASKED_AGAIN),
        };
    }

    /// The path of datagrams through the ring to a process, if there is one and the process has not exited. Each datagram may go
    /// to another process.
    pub fn datagram_route(
        &self,
        addresses: &Addresses,
        receiver: Receiver,
        path: Route,
    ) -> Option<RingRoute> {
        Some(RingRoute::new(addresses, self.existing(receiver)?, path))
    }

    /// Accepts rings, and records which processes have exited. Called by the device thread.
    pub fn run_hub(&self) {
        let Some(hub) = &self.hub else { return };
        for change in hub.run() {
            match change {
                Change::Accepted(ring) => self.change(|list| list.push(ring)),
                Change::Ended(id) => {
                    let mut outgoing = self.outgoing.lock();
                    let found = outgoing.iter().find(|(_, ring)| ring.ring.id == id);
                    let ring = found.map(|(&to, _)| to).and_then(|to| outgoing.remove(&to));
                    self.ending.lock().extend(ring);
                    self.is_ending.store(true, Ordering::Release);
                }
            }
        }
    }

    /// Whether processes have exited to which there are rings.
    #[inline]
    pub fn is_ending(&self) -> bool {
        self.is_ending.load(Ordering::Acquire)
    }

    /// Ends the rings to processes that have exited, and returns them. Called after everything that they sent was received,
    /// because the last ACK may be among it.
    pub fn end(&self) -> Vec<Arc<RingTo>> {
        self.is_ending.store(false, Ordering::Relaxed);
        let ending = std::mem::take(&mut *self.ending.lock());
        ending.iter().for_each(|ring| ring.end());
        ending
    }
}
