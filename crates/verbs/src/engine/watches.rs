//! What the device thread waits for, besides time.

use std::os::fd::AsFd;

use ferroce_sys::{Interest, Poller};

use super::adapter::Adapter;
use crate::drive::Links;

/// A descriptor that the thread watches besides those of links.
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

/// The descriptors, by their index in the poller.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) poller: Poller,
    /// Those of [`Watch`].
    single: [Option<usize>; 6],
    mailboxes: Vec<usize>,
    /// The sockets of the links, and the doorbell of the rings as one more.
    sockets: Vec<usize>,
    /// The number of descriptors that do not change. Behind these come sockets of multicast groups, send sockets, and the
    /// send socket whose buffer is full.
    fixed: usize,
    reports: Vec<usize>,
    watches_sender: bool,
    /// Of the multicast groups and of the send sockets.
    version: Option<(u64, usize)>,
}

impl Watches {
    pub(super) fn new(adapter: &Adapter) -> Self {
        let mut poller = Poller::new();
        let connections = &adapter.management.connections;
        let links = &adapter.port.links;
        let hub = adapter.rings.hub();
        let processes = adapter.is_first().then(|| connections.processes(adapter.mads())).flatten();
        let port = adapter.port.state.watch().filter(|_| adapter.is_first());
        let single: [Option<&dyn AsFd>; 6] = [
            Some(adapter.signals.waker()),
            connections.services.changed().map(|event| event as _),
            processes.map(|processes| processes as _),
            adapter.management.neighbours.watch().map(|monitor| monitor as _),
            port.map(|monitor| monitor as _),
            hub.map(|hub| hub as _),
        ];
        let single = single.map(|watched| Some(poller.watch(&watched?, Interest::Read)));
        let mailboxes = links.iter().map(|link| poller.watch(&link.slot, Interest::Read)).collect();
        let sockets = links.iter().map(|link| poller.watch(&link.receiver, Interest::Read));
        let mut sockets: Vec<_> = sockets.collect();
        sockets.extend(hub.map(|hub| poller.watch(&hub.bells(), Interest::Read)));
        let fixed = single.iter().flatten().count() + links.len() + sockets.len();
        let (reports, watches_sender, version) = (Vec::new(), false, None);
        Self { poller, single, mailboxes, sockets, fixed, reports, watches_sender, version }
    }

    /// Whether the thread watches for the end of processes.
    pub(super) fn has_processes(&self) -> bool {
        self.single[Watch::Processes as usize].is_some()
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
        let blocked = adapter.blocked_sender();
        let version = Some((adapter.port.groups.version(), adapter.port.links.senders()));
        if version == self.version && !self.watches_sender && blocked.is_none() {
            return;
        }
        self.poller.truncate(self.fixed);
        adapter.port.groups.watch(&mut self.poller);
        self.reports = adapter.port.links.watch_reports(&mut self.poller);
        self.version = version;
        self.watches_sender = blocked.is_some();
        blocked.map(|sender| self.poller.watch(sender, Interest::Write));
    }
}
