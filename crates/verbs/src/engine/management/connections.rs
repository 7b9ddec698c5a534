//! The connection manager on real sockets: receives messages to QP 1 and delivers events to cm_ids
//! ([`crate::cm::CmId`]).
//!
//! Each address has its own manager, and processes share addresses. A message may reach any of these processes and is
//! forwarded to its owner: by the slot in the communication ID, or by the service ID.
//!
//! Lock order: `delivering`, a cm_id, a manager, the services. No thread waits for ownership of the device while it
//! holds one of these.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use ferroce_links::packet::ReceivedPacket;
use ferroce_proto::cm::{
    Config, ConnectionId, ConnectionManager, Event, Keepalive, Loss, Owner, QueryId, ResolutionId,
    State, Transmit,
};
use ferroce_proto::time::Instant;
use ferroce_sys::random::number as random;
use ferroce_sys::{ProcessName, Processes, Recipient};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, ServiceId, SidrStatus};
use ferroce_wire::number::{Guid, QKey, Qpn};

use super::ledger::Ledger;
use super::services::Services;
use super::transport::MadTransport;
use super::unserved::{Datagram, UnservedRequests};
use crate::device::Device;
use crate::error::{CmError, RouteError};
use crate::sync::lock;
use crate::time::now;

/// QP 1, the general services QP (IBA 10.2.4, 16.7).
pub(crate) const MANAGEMENT: Qpn = Qpn(1);
/// The queue key of QP 1 (IBA 10.2.4).
pub(super) const QUEUE_KEY: QKey = QKey(0x8001_0000);

/// The consumer of a connection's events: a cm_id.
pub(crate) trait CmEventHandler: std::fmt::Debug + Send + Sync {
    /// Handles an event of the manager of `link`.
    fn handle_cm_event(self: Arc<Self>, link: CmLink<'_>, event: Event);

    /// The neighbour on the route was resolved, or resolving it failed with this error.
    fn handle_neighbour(self: Arc<Self>, failure: Option<CmError>);
}

/// The managers of a device.
#[derive(Debug)]
pub(crate) struct Connections {
    managers: Vec<Mutex<Manager>>,
    pub(crate) services: Arc<Services>,
    unserved: UnservedRequests,
    /// Held while events are delivered, so that those of one connection stay in order.
    delivering: Mutex<()>,
    /// When the next timer of any manager expires.
    pub(super) next: AtomicU64,
    /// Held while `next` is computed, so that an older value cannot overwrite a newer one.
    timing: Mutex<()>,
    psn: AtomicU32,
    /// The processes of this host that are connected to this one, from the first use of a manager. `None` if the
    /// process had no free descriptor.
    processes: OnceLock<Option<Processes>>,
    /// The connections that `ferroce run` disconnects if this process is killed.
    pub(crate) ledger: Ledger,
    /// The packets being handled were forwarded by another process. Used only by the owner of the device.
    forwarded: AtomicBool,
}

/// The manager of an address, and the cm_ids that receive its events.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) cm: ConnectionManager,
    pub(crate) connections: HashMap<ConnectionId, Weak<dyn CmEventHandler>>,
    pub(crate) listeners: HashMap<u64, Weak<dyn CmEventHandler>>,
    pub(crate) resolutions: HashMap<ResolutionId, Weak<dyn CmEventHandler>>,
}

/// A link of a device: the manager of its address, and what the calling thread sends its messages with.
#[derive(Clone, Copy)]
pub(crate) struct CmLink<'a> {
    pub(crate) connections: &'a Connections,
    pub(crate) transport: &'a dyn MadTransport,
    pub(crate) index: u8,
}

impl Connections {
    pub(crate) fn new(device: &Device, services: Arc<Services>) -> Self {
        let manager = || {
            let config = Config {
                slot: Some(services.slot),
                keepalive: Some(Keepalive::DEFAULT),
                ..Config::new(Guid(device.guid()), random())
            };
            Mutex::new(Manager {
                cm: ConnectionManager::new(config),
                connections: HashMap::new(),
                listeners: HashMap::new(),
                resolutions: HashMap::new(),
            })
        };
        Self {
            managers: device.addresses().map(|_| manager()).collect(),
            services,
            unserved: UnservedRequests::default(),
            delivering: Mutex::new(()),
            next: AtomicU64::new(u64::MAX),
            timing: Mutex::new(()),
            psn: AtomicU32::new(0),
            forwarded: AtomicBool::new(false),
            processes: OnceLock::new(),
            ledger: Ledger::default(),
        }
    }

    /// The number of connections of all managers, including those in time-wait.
    pub(crate) fn len(&self) -> usize {
        self.managers.iter().map(|manager| lock(manager).cm.connections()).sum()
    }

    /// The number of connections that have sent a DREQ and wait for the DREP.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.managers.iter().map(|manager| lock(manager).cm.unconfirmed()).sum()
    }

    /// Repeats these DREQs.
    pub(crate) fn repeat_disconnects(&self, transport: &dyn MadTransport) {
        for link in self.links(transport) {
            link.act(|manager, _| manager.cm.repeat_disconnects());
        }
    }

    fn links<'a>(&'a self, transport: &'a dyn MadTransport) -> impl Iterator<Item = CmLink<'a>> {
        let indexes = 0..self.managers.len() as u8;
        indexes.map(move |index| CmLink { connections: self, transport, index })
    }

    /// The watched processes. The first call announces this process to the others.
    pub(crate) fn processes(&self, transport: &dyn MadTransport) -> Option<&Processes> {
        let announce = || {
            let processes = Processes::new().ok()?;
            for (_, own) in transport.links() {
                let (address, port) = (own.ip(), own.port());
                // If the name is taken, the keepalive detects our end.
                processes.announce(ProcessName { address, port, slot: self.services.slot });
            }
            Some(processes)
        };
        self.processes.get_or_init(announce).as_ref()
    }

    /// Takes the names of the processes that have ended since the last call, and whether each is in use again: another
    /// process, or the same one that closed its device and opened it again, may have established connections since.
    pub(crate) fn take_ended(&self, transport: &dyn MadTransport) -> HashMap<ProcessName, bool> {
        let Some(processes) = self.processes(transport) else { return HashMap::new() };
        let ended = processes.take_ended();
        if processes.take_capture_start() {
            // The thread that joins a capture makes system calls and allocates the ring: not here.
            let thread = std::thread::Builder::new().name("ferroce-collect".into());
            let look = || thread.spawn(ferroce_tap::look_for_collectors);
            let _ = ferroce_sys::signal::with_signals_blocked(look);
        }
        ended.into_iter().map(|name| (name, processes.watch(name))).collect()
    }

    /// Ends the connections of processes that have ended. Packets they sent before may still be in a socket, of this process
    /// or of another one that forwards them: the caller has received and forwarded them.
    pub(crate) fn end_connections(
        &self,
        transport: &dyn MadTransport,
        ended: &HashMap<ProcessName, bool>,
    ) {
        for link in self.links(transport) {
            let port = link.address().port();
            link.act(|manager, now| {
                for connection in manager.cm.established().collect::<Vec<_>>() {
                    let Some((peer, id)) = manager.cm.peer(connection) else { continue };
                    // The peer of a connection to a name in use again is asked whether it knows it.
                    let _ = match ended.get(&process_name(peer, port, id)) {
                        Some(true) => manager.cm.probe(now, connection),
                        Some(false) => manager.cm.peer_is_lost(now, connection, Loss::ProcessEnded),
                        None => Ok(()),
                    };
                }
            });
        }
        self.deliver_events(transport);
    }

    /// Handles a message or forwards it to its owner. Returns whether it belongs to this process.
    pub(crate) fn handle(
        &self,
        transport: &dyn MadTransport,
        local: SocketAddr,
        one: &ReceivedPacket<'_>,
    ) -> bool {
        let (info, packet, mad) = (*one.info, one.bytes.into(), one.packet.payload.into());
        self.take(transport, &Datagram { local, info, packet, mad, waits: 0 })
    }

    /// Handles a message or forwards it to its owner. Returns whether it belongs to this process.
    fn take(&self, transport: &dyn MadTransport, one: &Datagram<'_>) -> bool {
        let from = Gid::from_ip(one.info.source.ip());
        let Some(index) = transport.link_at(one.local) else { return true };
        let ours = CmLink { connections: self, transport, index }.act(|manager, now| {
            let is_forwarded = self.forwarded.load(Ordering::Relaxed);
            let is_served = |service: ServiceId| self.services.has(one.local, service.0);
            let owner = manager.cm.owner(from, &one.mad, is_forwarded, is_served);
            let forward = |to| transport.forward(one.local, to, &one.info, &one.packet);
            match owner {
                Owner::Us => {}
                Owner::Slot(slot) if forward(Recipient::Slot(slot)) => return false,
                Owner::Service(service) if forward(Recipient::Service(service.0)) => return false,
                // No process has it. We reject it, but a listener may be about to appear.
                Owner::Service(_) if self.unserved.keep(now, one) => return true,
                Owner::Slot(_) | Owner::Service(_) => {}
                Owner::Unnamed => {
                    transport.forward_to_all(index, &one.info, &one.packet);
                    return false;
                }
            }
            // The manager decides whether to respond to an invalid message.
            let class = one.info.tos & !3;
            let _ = manager.cm.handle_datagram(now, from, class, &one.mad);
            true
        });
        self.deliver_events(transport);
        ours
    }

    /// Sets whether the packets being handled were forwarded by another process; those are not broadcast again.
    pub(crate) fn set_forwarded(&self, forwarded: bool) {
        self.forwarded.store(forwarded, Ordering::Relaxed);
    }

    pub(crate) fn run(&self, transport: &dyn MadTransport) {
        let due = now();
        if self.next.load(Ordering::SeqCst) > due.as_nanos() {
            return;
        }
        for link in self.links(transport) {
            link.act(|manager, now| manager.cm.handle_timeout(now));
        }
        for request in self.unserved.take_due(due) {
            self.take(transport, &request);
        }
        self.deliver_events(transport);
    }

    /// Computes the next timer, and wakes the thread if it is earlier than before.
    fn set_timer(&self, transport: &dyn MadTransport) {
        let _timing = lock(&self.timing);
        let timers = self.managers.iter().filter_map(|manager| lock(manager).cm.poll_timeout());
        let next = timers.chain(self.unserved.next()).min().map_or(u64::MAX, Instant::as_nanos);
        if next < self.next.swap(next, Ordering::SeqCst) {
            transport.wake_thread();
        }
    }

    /// Delivers all pending events to their cm_ids. The caller must not hold a cm_id's lock.
    pub(crate) fn deliver_events(&self, transport: &dyn MadTransport) {
        let _telling = lock(&self.delivering);
        for link in self.links(transport) {
            let next = || {
                let mut manager = link.manager();
                manager.cm.poll_event().map(|event| (manager.target(&event), event))
            };
            while let Some((target, event)) = next() {
                tracing::debug!(link = link.index, ?event, "CM event");
                match target {
                    Some(id) => id.handle_cm_event(link, event),
                    None => link.refuse(event),
                }
            }
        }
    }
}

impl<'a> CmLink<'a> {
    fn manager(self) -> MutexGuard<'a, Manager> {
        lock(&self.connections.managers[usize::from(self.index)])
    }

    /// Calls a function on the manager, and sends the resulting messages. Does not deliver events.
    pub(crate) fn act<T>(self, act: impl FnOnce(&mut Manager, Instant) -> T) -> T {
        self.connections.processes(self.transport);
        let mut manager = self.manager();
        let result = act(&mut manager, now());
        self.transmit(&mut manager.cm);
        drop(manager);
        self.connections.set_timer(self.transport);
        result
    }

    /// Sends the messages of the manager, under its lock, so that they stay in order.
    fn transmit(self, manager: &mut ConnectionManager) {
        while let Some(transmit) = manager.poll_transmit() {
            // Without a route, the peer counts as not responding.
            if let Err(error) = self.send(&transmit) {
                tracing::debug!(to = ?transmit.destination, %error, "no route for a CM message");
            }
        }
    }

    /// Sends a message.
    pub(crate) fn send(self, message: &Transmit) -> Result<(), RouteError> {
        let mut route = self.transport.route_to(self.index, message.destination)?;
        route.traffic_class = message.traffic_class & !3;
        let (psn, mad) = (&self.connections.psn, message.to_mad());
        self.transport.send(route, MANAGEMENT, QUEUE_KEY, psn, &mad);
        Ok(())
    }

    /// The address of the link.
    pub(crate) fn address(self) -> SocketAddr {
        self.transport.address(self.index)
    }

    /// The name of the process at the other end of a connection, as if it were on this host.
    pub(crate) fn peer_process(self, connection: ConnectionId) -> Option<ProcessName> {
        let (peer, id) = self.manager().cm.peer(connection)?;
        Some(process_name(peer, self.address().port(), id))
    }

    /// Watches the peer of a new connection: if it is a process of this host, its end ends the connection.
    pub(crate) fn watch_peer(self, connection: ConnectionId) {
        let Self { connections, transport, .. } = self;
        let notice = self.act(|manager, _| manager.cm.disconnect_notice(connection));
        if let Some(notice) = notice {
            connections.ledger.record(Gid::from_ip(self.address().ip()), &notice);
        }
        let Some(processes) = connections.processes(transport) else { return };
        let Some(name) = self.peer_process(connection) else { return };
        let own = transport.addresses().has_address(name.address);
        if own && name.slot == connections.services.slot {
            return; // It is ourselves.
        }
        if !processes.watch(name) && own {
            // It may have ended before it was watched.
            self.act(|manager, now| manager.cm.probe(now, connection).ok());
        }
    }

    /// Answers the peer for a cm_id that no longer exists.
    fn refuse(self, event: Event) {
        self.act(|manager, now| match event {
            Event::Request(connection, _)
            | Event::Reply(connection, _)
            | Event::Established(connection, _)
            | Event::DisconnectRequest(connection, _) => manager.drop_connection(now, connection),
            Event::Unanswered(connection, _) => {
                let _ = manager.cm.peer_is_lost(now, connection, Loss::NoResponse);
            }
            Event::Query(query, _) => manager.drop_query(query, SidrStatus::UNSUPPORTED_SERVICE),
            _ => {}
        });
    }
}

/// The name of the process that owns a communication ID: its slot is the top byte.
fn process_name(peer: Gid, port: u16, id: CommId) -> ProcessName {
    ProcessName { address: peer.to_ip(), port, slot: (id.0 >> 24) as u8 }
}

impl Manager {
    /// The cm_id of an event. A final event also removes the connection.
    fn target(&mut self, event: &Event) -> Option<Arc<dyn CmEventHandler>> {
        let target = match event {
            Event::Request(_, request) => self.listeners.get(&request.service_id.0),
            Event::Query(_, query) => self.listeners.get(&query.service_id.0),
            Event::Resolved(resolution, _) | Event::Unresolved(resolution) => {
                return self.resolutions.remove(resolution)?.upgrade();
            }
            Event::Reply(connection, _)
            | Event::Established(connection, _)
            | Event::Rejected(connection, _)
            | Event::Failed(connection, _)
            | Event::DisconnectRequest(connection, _)
            | Event::Disconnected(connection, _)
            | Event::Unanswered(connection, _)
            | Event::TimeWaitEnded(connection) => {
                let target = self.connections.get(connection).and_then(Weak::upgrade);
                if target.is_none() || self.cm.state(*connection) == State::Idle {
                    self.connections.remove(connection);
                }
                return target;
            }
        };
        target.and_then(Weak::upgrade)
    }

    /// Closes a connection without a cm_id.
    pub(crate) fn drop_connection(&mut self, now: Instant, connection: ConnectionId) {
        self.connections.remove(&connection);
        let _ = self.cm.close(now, connection);
    }

    /// Refuses an SIDR request that has no listener.
    pub(crate) fn drop_query(&mut self, query: QueryId, status: SidrStatus) {
        let _ = self.cm.answer(query, &ferroce_proto::cm::Resolution::refused(status));
    }
}
