//! What a thread waits for, besides time: the device thread, or one that waits for packets of their completions.
//!
//! A packet that wakes the device thread, which wakes the program, costs two wakeups. A thread that blocks in a wait of
//! this library watches the sockets itself and makes the passes (leader and followers: one thread at a time does).

use std::os::fd::{AsFd, AsRawFd, RawFd};

use ferroce_device::tuning::wait::LEASE;
use ferroce_sys::{Interest, Poller, clock};

use super::adapter::Adapter;
use crate::drive::Links;

/// The receive sockets of a device, for a thread that waits for packets itself, and until when it does.
///
/// Its size is fixed so that a wait neither allocates nor, when a C program cancels the thread, has anything to free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Leading {
    sockets: [RawFd; Leading::MAX],
    count: usize,
    /// The shard that they belong to.
    pub(crate) shard: u8,
    /// When to begin again at the latest, in nanoseconds of the monotonic clock.
    pub(crate) until: u64,
}

impl Leading {
    /// The maximum number of sockets. A device with more is left to its own thread.
    pub const MAX: usize = 7;

    /// The time left, in milliseconds, rounded up: the timeout of poll(2).
    pub fn milliseconds(&self) -> i32 {
        let left = self.until.saturating_sub(clock::now());
        i32::try_from(left.div_ceil(1_000_000)).unwrap_or(i32::MAX)
    }

    /// The descriptors of the sockets.
    pub fn sockets(&self) -> &[RawFd] {
        &self.sockets[..self.count]
    }
}

impl Adapter {
    /// Makes the calling thread the one that waits for packets. `None` if another does, or there are too many sockets.
    pub(crate) fn lead(&self) -> Option<Leading> {
        let links = &self.port.links;
        let bells = self.rings.hub().map(|hub| hub.bells().as_raw_fd());
        if links.len() + bells.iter().len() > Leading::MAX || self.driver.has_failed() {
            return None;
        }
        let now = clock::now();
        let until = now + LEASE;
        if !self.signals.lead(now, until) {
            return None;
        }
        if bells.is_some() {
            self.rings.sleep();
        }
        let (mut sockets, mut count) = ([-1; Leading::MAX], 0);
        for socket in links.iter().map(|link| link.receiver.as_fd().as_raw_fd()).chain(bells) {
            sockets[count] = socket;
            count += 1;
        }
        Some(Leading { sockets, count, shard: self.shard, until })
    }

    /// Adds the receive sockets to what a thread waits for, and the doorbell of the rings as one more.
    pub(crate) fn watch_sockets(&self, poller: &mut Poller) -> Vec<usize> {
        let links = self.port.links.iter();
        let mut sockets: Vec<_> =
            links.map(|link| poller.watch(&link.receiver, Interest::Read)).collect();
        sockets.extend(self.rings.hub().map(|hub| poller.watch(&hub.bells(), Interest::Read)));
        sockets
    }
}

/// A descriptor that the device thread watches besides those of links.
#[derive(Clone, Copy, Debug)]
pub(super) enum Watch {
    /// The thread was woken.
    Wake,
    /// A service of this process has changed.
    Services,
    /// A process has ended, which may have freed its slot.
    Processes,
    Neighbours,
    /// The interface has changed.
    Port,
    /// A process offers a ring or has closed one.
    Rings,
}

/// The descriptors of the device thread, by their index in the poller.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) poller: Poller,
    /// Those of [`Watch`].
    single: [Option<usize>; 6],
    mailboxes: Vec<usize>,
    /// See [`Adapter::watch_sockets`].
    sockets: Vec<usize>,
    /// The number of descriptors that do not change. Behind these come sockets of multicast groups, send sockets, and the
    /// send socket whose buffer is full.
    fixed: usize,
    reports: Vec<usize>,
    /// What `update` saw last: the version of the multicast groups, the number of send sockets, at first 0, and the full one.
    version: (u64, usize, Option<(u8, u8)>),
}

impl Watches {
    pub(super) fn new(adapter: &Adapter) -> Self {
        let mut poller = Poller::new();
        let connections = &adapter.management.connections;
        let links = &adapter.port.links;
        let hub = adapter.rings.hub();
        let processes = adapter.is_first().then(|| connections.processes(adapter.mads())).flatten();
        if processes.is_some() {
            // A capture that started between the opening of the device and the announcement has not found this process.
            ferroce_tap::look_for_collectors();
        }
        let port = adapter.port.state.monitor.as_ref().filter(|_| adapter.is_first());
        let single: [Option<&dyn AsFd>; 6] = [
            Some(adapter.signals.waker()),
            connections.services.changed.as_ref().map(|event| event as _),
            processes.map(|processes| processes as _),
            adapter.management.neighbours.monitor.as_ref().map(|monitor| monitor as _),
            port.map(|monitor| monitor as _),
            hub.map(|hub| hub as _),
        ];
        let single = single.map(|watched| Some(poller.watch(&watched?, Interest::Read)));
        let mailboxes = links.iter().map(|link| poller.watch(&link.slot, Interest::Read)).collect();
        let sockets = adapter.watch_sockets(&mut poller);
        let fixed = single.iter().flatten().count() + links.len() + sockets.len();
        Self {
            poller,
            single,
            mailboxes,
            sockets,
            fixed,
            reports: Vec::new(),
            version: (0, 0, None),
        }
    }

    /// Which links have packets, with those of the rings if they were found otherwise.
    pub(super) fn links(&self, found_in_rings: bool) -> Links {
        let mut readable = self.sockets.iter().map(|&index| self.is_readable(index));
        match (readable.position(|readable| readable), readable.any(|more| more)) {
            _ if self.mailboxes() => Links::All,
            (Some(link), false) => Links::One(link),
            // The rings come behind the sockets.
            (None, _) if found_in_rings => Links::One(self.mailboxes.len()),
            _ => Links::All,
        }
    }

    /// Whether other processes have forwarded packets.
    pub(super) fn mailboxes(&self) -> bool {
        self.mailboxes.iter().any(|&index| self.is_readable(index))
    }

    /// Whether there is something to read.
    pub(super) fn has(&self, watch: Watch) -> bool {
        self.single[watch as usize].is_some_and(|index| self.is_readable(index))
    }

    /// Whether a send socket has an error to report.
    pub(super) fn reports(&self) -> bool {
        self.reports.iter().any(|&index| self.poller.readiness(index).broken)
    }

    fn is_readable(&self, index: usize) -> bool {
        self.poller.readiness(index).readable
    }

    /// Watches the receive sockets, or leaves them to others.
    pub(super) fn watch_sockets(&mut self, watch: bool) {
        let interest = if watch { Interest::Read } else { Interest::Nothing };
        self.sockets.iter().for_each(|&index| self.poller.set(index, interest));
    }

    /// Replaces the descriptors that change, if they have.
    pub(super) fn update(&mut self, adapter: &Adapter) {
        let links = &adapter.port.links;
        let blocked = adapter.signals.blocked();
        let version = (adapter.port.groups.version(), links.senders(), blocked);
        if version == self.version {
            return;
        }
        self.version = version;
        self.poller.truncate(self.fixed);
        for (socket, _) in adapter.port.groups.sockets() {
            self.poller.watch(&socket.as_fd(), Interest::Read);
        }
        self.reports = links.watch_reports(&mut self.poller);
        if let Some((link, sender)) = blocked {
            self.poller.watch(links[usize::from(link)].senders.get(sender), Interest::Write);
        }
    }
}
