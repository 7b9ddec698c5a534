//! What the device thread waits for, besides time.

use ferroce_sys::{Interest, Poller};

use super::adapter::Adapter;
use crate::drive::Links;

/// The descriptors, by their index in the poller.
#[derive(Debug)]
pub(super) struct Watches {
    pub(super) poller: Poller,
    wake: usize,
    mailboxes: Vec<usize>,
    services: Option<usize>,
    processes: Option<usize>,
    neighbours: Option<usize>,
    port: Option<usize>,
    rings: Option<usize>,
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
        let wake = poller.watch(adapter.signals.waker(), Interest::Read);
        let mailboxes = links.iter().map(|link| poller.watch(&link.slot, Interest::Read)).collect();
        let services = connections.services.changed();
        let services = services.map(|event| poller.watch(event, Interest::Read));
        let processes = adapter.is_first().then(|| connections.processes(adapter.mads())).flatten();
        let processes = processes.map(|processes| poller.watch(processes, Interest::Read));
        let neighbours = adapter.management.neighbours.watch();
        let neighbours = neighbours.map(|monitor| poller.watch(monitor, Interest::Read));
        let port = adapter.port.state.watch().filter(|_| adapter.is_first());
        let port = port.map(|monitor| poller.watch(monitor, Interest::Read));
        let hub = adapter.rings.hub();
        let rings = hub.map(|hub| poller.watch(hub, Interest::Read));
        let sockets = links.iter().map(|link| poller.watch(&link.receiver, Interest::Read));
        let mut sockets: Vec<_> = sockets.collect();
        sockets.extend(hub.map(|hub| poller.watch(&hub.bells(), Interest::Read)));
        let optional = [services, processes, neighbours, port, rings];
        let fixed = 1 + links.len() + optional.iter().flatten().count() + sockets.len();
        let (reports, watches_sender, version) = (Vec::new(), false, None);
        Self {
            poller,
            wake,
            mailboxes,
            services,
            processes,
            neighbours,
            port,
            rings,
            sockets,
            fixed,
            reports,
            watches_sender,
            version,
        }
    }

    /// Whether the thread watches for the end of processes.
    pub(super) fn has_processes(&self) -> bool {
        self.processes.is_some()
    }

    /// Which links have packets, with those of the rings if they were found otherwise.
    pub(super) fn links(&self, found_in_rings: bool) -> Links {
        let mut readable = self.sockets.iter().map(|&index| self.is_readable(Some(index)));
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
        self.mailboxes.iter().any(|&index| self.is_readable(Some(index)))
    }

    /// Whether the thread was woken.
    pub(super) fn wake(&self) -> bool {
        self.is_readable(Some(self.wake))
    }

    /// Whether a service of this process has changed.
    pub(super) fn services(&self) -> bool {
        self.is_readable(self.services)
    }

    /// Whether a process has ended, which may have freed its slot.
    pub(super) fn processes(&self) -> bool {
        self.is_readable(self.processes)
    }

    pub(super) fn neighbours(&self) -> bool {
        self.is_readable(self.neighbours)
    }

    /// Whether the interface has changed.
    pub(super) fn port(&self) -> bool {
        self.is_readable(self.port)
    }

    /// Whether a process offers a ring or has closed one.
    pub(super) fn rings(&self) -> bool {
        self.is_readable(self.rings)
    }

    /// Whether a send socket has an error to report.
    pub(super) fn reports(&self) -> bool {
        self.reports.iter().any(|&index| self.poller.readiness(index).broken)
    }

    fn is_readable(&self, index: Option<usize>) -> bool {
        index.is_some_and(|index| self.poller.readiness(index).readable)
    }

    /// Watches the receive sockets, or leaves them to others.
    pub(super) fn watch_sockets(&mut self, watch: bool) {
        let interest = if watch { Interest::Read } else { Interest::Nothing };
        self.sockets.iter().for_each(|&index| self.poller.set(index, interest));
    }

    /// Replaces the descriptors that change, if they have.
    pub(super) fn update(&mut self, adapter: &Adapter) {
        let blocked = adapter.blocked_sender();
        let version = Some((adapter.port.groups.version(), adapter.port.senders()));
        if version == self.version && !self.watches_sender && blocked.is_none() {
            return;
        }
        self.poller.truncate(self.fixed);
        adapter.port.groups.watch(&mut self.poller);
        self.reports = adapter.watch_reports(&mut self.poller);
        self.version = version;
        self.watches_sender = blocked.is_some();
        blocked.map(|sender| self.poller.watch(sender, Interest::Write));
    }
}
