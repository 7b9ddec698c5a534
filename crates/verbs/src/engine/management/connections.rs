//! The connection manager on real sockets: messages to queue pair 1 come in here, and become news for
//! [`crate::cm::CmId`]s.
//!
//! Each address has a manager of its own, and processes share addresses: a message reaches any of them and is passed
//! on to the one it belongs to, by the slot in the name of a connection, or by the service that is asked for.
//!
//! Locks are taken in this order: news being told, an id, a manager, the services. Nobody waits for the device's claim
//! while holding one of them.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};

use ferroce_proto::cm::{
    Config, ConnectionId, ConnectionManager, Event, Keepalive, QueryId, ResolutionId, State,
};
use ferroce_proto::time::Instant;
use ferroce_sys::{ProcessName, Processes, Recipient, Slot};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, Message, SidrStatus};
use ferroce_wire::mad::Mad;
use ferroce_wire::number::{Guid, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;

use super::super::{Adapter, ReceivedPacket, now};
use super::ledger::Ledger;
use super::random;
use super::services::Services;
use crate::device::Device;
use crate::error::Error;
use crate::sync::lock;

/// Queue pair 1 of everybody (IBA 10.2.4, 16.7).
pub(crate) const MANAGEMENT: Qpn = Qpn(1);
/// Its key (IBA 10.2.4).
pub(crate) const QUEUE_KEY: QKey = QKey(0x8001_0000);

/// Whom a message is for.
enum Owner {
    /// This process, or nobody.
    Us,
    /// Another one, if there is such.
    Other(Recipient),
    /// Any of the others: a peer that gives up before it knows our name for the connection gives only its own.
    Unnamed,
}

/// The consumer of a connection's events: a cm_id.
pub(crate) trait CmEventHandler: std::fmt::Debug + Send + Sync {
    /// Handles an event of the manager of `link`.
    fn handle_cm_event(self: Arc<Self>, adapter: &Adapter, link: u8, event: Event);

    /// The neighbour on the route was resolved, or resolving it failed with this error.
    fn handle_neighbour(self: Arc<Self>, failure: Option<Error>);
}

/// The managers of a device.
#[derive(Debug)]
pub(crate) struct Connections {
    managers: Vec<Mutex<Manager>>,
    pub(crate) services: Services,
    slot: u8,
    /// Held while news are told, so that those of one connection are told in their order.
    delivering: Mutex<()>,
    /// When the next timer of any manager runs out.
    next: AtomicU64,
    /// Held while that is found out, or a later answer could be overwritten by an earlier one.
    timing: Mutex<()>,
    psn: AtomicU32,
    /// The processes of this machine that have connections with this one, from the first use of a manager on. `None`
    /// when the process had no descriptor left.
    processes: OnceLock<Option<Processes>>,
    /// What somebody needs who says goodbye for us.
    pub(crate) ledger: Ledger,
    /// What is handled was passed on by another process. Only who drives the device reads and writes it.
    forwarded: AtomicBool,
}

/// The manager of an address, and whom its news are for.
#[derive(Debug)]
pub(crate) struct Manager {
    pub(crate) cm: ConnectionManager,
    pub(crate) connections: HashMap<ConnectionId, Weak<dyn CmEventHandler>>,
    pub(crate) listeners: HashMap<u64, Weak<dyn CmEventHandler>>,
    pub(crate) resolutions: HashMap<ResolutionId, Weak<dyn CmEventHandler>>,
}

impl Connections {
    pub(crate) fn new(slot: u8, device: &Device) -> Self {
        let manager = || {
            let config = Config {
                slot: Some(slot),
                keepalive: Some(Keepalive::USUAL),
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
            managers: device.addresses().iter().map(|_| manager()).collect(),
            services: Services::new(slot),
            slot,
            delivering: Mutex::new(()),
            next: AtomicU64::new(u64::MAX),
            timing: Mutex::new(()),
            psn: AtomicU32::new(0),
            forwarded: AtomicBool::new(false),
            processes: OnceLock::new(),
            ledger: Ledger::default(),
        }
    }

    /// How many connections all managers have, those in time-wait included.
    pub(crate) fn len(&self) -> usize {
        self.managers.iter().map(|manager| lock(manager).cm.connections()).sum()
    }

    /// How many connections have asked their peers for the end, and wait for the answer.
    pub(crate) fn unconfirmed(&self) -> usize {
        self.managers.iter().map(|manager| lock(manager).cm.unconfirmed()).sum()
    }

    /// Asks these again.
    pub(crate) fn repeat_disconnects(&self, adapter: &Adapter) {
        for link in 0..self.managers.len() {
            self.act(adapter, link as u8, |manager, _| manager.cm.repeat_disconnects());
        }
    }

    /// Does something with the manager of a link, and sends what it has to send. News are not told here.
    pub(crate) fn act<T>(
        &self,
        adapter: &Adapter,
        link: u8,
        act: impl FnOnce(&mut Manager, Instant) -> T,
    ) -> Option<T> {
        self.processes(adapter);
        let mut manager = lock(self.managers.get(usize::from(link))?);
        let result = act(&mut manager, now());
        self.transmit(adapter, link, &mut manager.cm);
        drop(manager);
        self.set_timer(adapter);
        Some(result)
    }

    /// The processes that are watched. Before the first connection, this one makes itself known to the others.
    pub(crate) fn processes(&self, adapter: &Adapter) -> Option<&Processes> {
        let announce = || {
            let processes = Processes::new().ok()?;
            for link in &adapter.links {
                let (address, port) = (link.address.ip(), link.address.port());
                // Where the name is taken, others learn of our end by the keepalive.
                processes.announce(ProcessName { address, port, slot: self.slot });
            }
            Some(processes)
        };
        self.processes.get_or_init(announce).as_ref()
    }

    /// The process at the other end of a connection, if that were one of this machine.
    pub(crate) fn peer_process(
        &self,
        adapter: &Adapter,
        link: u8,
        connection: ConnectionId,
    ) -> Option<ProcessName> {
        let port = adapter.links.get(usize::from(link))?.address.port();
        let manager = lock(self.managers.get(usize::from(link))?);
        let (peer, id) = manager.cm.peer(connection)?;
        Some(process_name(peer, port, id))
    }

    /// A connection is up: if its peer is a process of this machine, the end of that process ends the connection.
    pub(crate) fn watch_peer(&self, adapter: &Adapter, link: u8, connection: ConnectionId) {
        let farewell = self.act(adapter, link, |manager, _| manager.cm.farewell(connection));
        if let (Some(Some(farewell)), Some(here)) = (farewell, adapter.links.get(usize::from(link)))
        {
            self.ledger.record(Gid::from_ip(here.address.ip()), &farewell);
        }
        let Some(processes) = self.processes(adapter) else { return };
        let Some(name) = self.peer_process(adapter, link, connection) else { return };
        let own = adapter.links.iter().any(|link| link.address.ip() == name.address);
        if own && name.slot == self.slot {
            return; // It is ourselves.
        }
        if !processes.watch(name) && own {
            // It may have ended before we could watch it.
            self.act(adapter, link, |manager, now| manager.cm.probe(now, connection).ok());
        }
    }

    /// Processes have ended: so have their connections.
    pub(crate) fn end_of_processes(&self, adapter: &Adapter) {
        let Some(processes) = self.processes(adapter) else { return };
        let ended = processes.take_ended();
        if ended.is_empty() {
            return;
        }
        // What they have sent before is here already, or on its way through another process.
        adapter.flush_outbox();
        for (index, link) in adapter.links.iter().enumerate() {
            let port = link.address.port();
            self.act(adapter, index as u8, |manager, now| {
                let with_ended = |connection: &ConnectionId| {
                    let peer = manager.cm.peer(*connection);
                    peer.is_some_and(|(peer, id)| ended.contains(&process_name(peer, port, id)))
                };
                let lost: Vec<_> = manager.cm.established().filter(with_ended).collect();
                for connection in lost {
                    let _ = manager.cm.peer_is_lost(now, connection);
                }
            });
        }
        self.deliver_events(adapter);
    }

    /// A message that reached this process: it is ours, or somebody else's. Says whether it is ours.
    pub(crate) fn handle(
        &self,
        adapter: &Adapter,
        local: SocketAddr,
        one: &ReceivedPacket<'_>,
    ) -> bool {
        let key = one.packet.extensions.deth.map(|header| header.queue_key);
        if one.packet.bth.opcode != Opcode::UD_SEND_ONLY || key != Some(QUEUE_KEY) {
            return true;
        }
        let Some(index) = adapter.links.iter().position(|link| link.address == local) else {
            return true;
        };
        let from = Gid::from_ip(one.info.source.ip());
        let ours = self.act(adapter, index as u8, |manager, now| {
            let slot = &adapter.links[index].slot;
            match self.owner(&manager.cm, local, from, one.packet.payload) {
                Owner::Us => {}
                Owner::Other(other) => {
                    // Where nobody has it, it falls to us to say so.
                    if adapter.forward(local, other, one.info, one.bytes) {
                        return false;
                    }
                }
                Owner::Unnamed => {
                    self.pass_to_all(slot, one);
                    return false;
                }
            }
            // What is ignored is answered, or not, by the manager itself.
            let class = one.info.tos & !3;
            let _ = manager.cm.handle_datagram(now, from, class, one.packet.payload);
            true
        });
        self.deliver_events(adapter);
        ours.unwrap_or(true)
    }

    /// A message to this peer, which began so, found the port closed.
    pub(crate) fn handle_unreachable(&self, adapter: &Adapter, link: u8, peer: Gid, quoted: &[u8]) {
        // What quotes nothing of ours is somebody else's, or forged.
        self.act(adapter, link, |manager, now| {
            manager.cm.handle_unreachable(now, peer, quoted).ok()
        });
        self.deliver_events(adapter);
    }

    /// Whom a message is for.
    fn owner(
        &self,
        manager: &ConnectionManager,
        local: SocketAddr,
        from: Gid,
        payload: &[u8],
    ) -> Owner {
        let Ok(mad) = Mad::parse(payload) else { return Owner::Us };
        let Ok(message) = Message::from_mad(&mad) else { return Owner::Us };
        if manager.knows(from, mad.header.transaction, &message) {
            return Owner::Us;
        }
        match (&message, message.service_id(), message.remote_comm_id()) {
            (Message::Req(_) | Message::SidrReq(_), Some(service), _) => {
                match self.services.has(local, service.0) {
                    true => Owner::Us,
                    false => Owner::Other(Recipient::Service(service.0)),
                }
            }
            (Message::Rej(_), _, Some(CommId(0))) => match self.forwarded.load(Ordering::Relaxed) {
                true => Owner::Us,
                false => Owner::Unnamed,
            },
            (_, _, Some(CommId(name))) if name != 0 && (name >> 24) as u8 != self.slot => {
                Owner::Other(Recipient::Slot((name >> 24) as u8))
            }
            _ => Owner::Us,
        }
    }

    fn pass_to_all(&self, slot: &Slot, one: &ReceivedPacket<'_>) {
        for other in slot.others().unwrap_or_default() {
            // One that has no room hears it when the peer repeats it.
            let _ = slot.forward(Recipient::Slot(other), one.info, one.bytes);
        }
    }

    /// Says whether what is handled from now on was passed on by another process: that is not passed on to all.
    pub(crate) fn set_forwarded(&self, forwarded: bool) {
        self.forwarded.store(forwarded, Ordering::Relaxed);
    }

    pub(crate) fn run(&self, adapter: &Adapter) {
        let due = now();
        if self.next_timer() > due.as_nanos() {
            return;
        }
        for link in 0..self.managers.len() {
            self.act(adapter, link as u8, |manager, now| manager.cm.handle_timeout(now));
        }
        self.deliver_events(adapter);
    }

    pub(crate) fn next_timer(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Finds out when the next timer runs out, and wakes the thread if that is sooner than it was.
    fn set_timer(&self, adapter: &Adapter) {
        let _timing = lock(&self.timing);
        let timers = self.managers.iter().filter_map(|manager| lock(manager).cm.poll_timeout());
        let next = timers.min().map_or(u64::MAX, Instant::as_nanos);
        if next < self.next.swap(next, Ordering::SeqCst) {
            adapter.thread.wake();
        }
    }

    pub(crate) fn next_psn(&self) -> Psn {
        Psn(self.psn.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff)
    }

    /// Sends what a manager has to send. Under its lock, so that messages leave in their order.
    fn transmit(&self, adapter: &Adapter, link: u8, manager: &mut ConnectionManager) {
        while let Some(transmit) = manager.poll_transmit() {
            // A peer that there is no way to is one that does not answer.
            let Ok(mut route) = adapter.route_to(link, transmit.destination) else { continue };
            route.traffic_class = transmit.traffic_class & !3;
            adapter.send_management(
                route,
                MANAGEMENT,
                QUEUE_KEY,
                self.next_psn(),
                &transmit.to_mad(),
            );
        }
    }

    /// Answers the peer for a cm_id that no longer exists.
    fn refuse(&self, adapter: &Adapter, link: u8, event: Event) {
        self.act(adapter, link, |manager, now| match event {
            Event::Request(connection, _)
            | Event::Reply(connection, _)
            | Event::Established(connection, _)
            | Event::DisconnectRequest(connection, _) => manager.drop_connection(now, connection),
            Event::Unanswered(connection, _) => {
                let _ = manager.cm.peer_is_lost(now, connection);
            }
            Event::Query(query, _) => manager.drop_query(query, SidrStatus::UNSUPPORTED_SERVICE),
            _ => {}
        });
    }

    /// Tells the ids what there is to tell. Nobody who calls this may hold an id's lock.
    pub(crate) fn deliver_events(&self, adapter: &Adapter) {
        let _telling = lock(&self.delivering);
        for (index, manager) in self.managers.iter().enumerate() {
            loop {
                let next = {
                    let mut manager = lock(manager);
                    manager.cm.poll_event().map(|event| (manager.target(&event), event))
                };
                let Some((target, event)) = next else { break };
                let link = index as u8;
                match target {
                    Some(id) => id.handle_cm_event(adapter, link, event),
                    None => self.refuse(adapter, link, event),
                }
            }
        }
    }
}

/// The process that a communication ID of this address would belong to: every ID begins with a slot.
fn process_name(peer: Gid, port: u16, id: CommId) -> ProcessName {
    ProcessName { address: peer.to_ip(), port, slot: (id.0 >> 24) as u8 }
}

impl Manager {
    /// Whom an event is about. One that ends something is the last.
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
            | Event::Rested(connection) => {
                let target = self.connections.get(connection).and_then(Weak::upgrade);
                if target.is_none() || self.cm.state(*connection) == State::Idle {
                    self.connections.remove(connection);
                }
                return target;
            }
        };
        target.and_then(Weak::upgrade)
    }

    /// Forgets whom the news of a connection are for, and ends it.
    pub(crate) fn drop_connection(&mut self, now: Instant, connection: ConnectionId) {
        self.connections.remove(&connection);
        let _ = self.cm.close(now, connection);
    }

    /// Answers a resolution that nobody wants to answer.
    pub(crate) fn drop_query(&mut self, query: QueryId, status: SidrStatus) {
        let _ = self.cm.answer(query, &ferroce_proto::cm::Resolution::refused(status));
    }
}
