//! The set-up exchange on real sockets: receives messages to QP 2 and queues events for the handles of
//! [`crate::setup`].
//!
//! Processes share addresses, so a message may reach any of them and is forwarded: a response by the slot in the
//! exchange ID, a request to the process that serves the address. Multicast discovery requests reach every process
//! directly.
//!
//! One lock protects all state machines. While it is held, no thread waits for ownership of the device or takes another
//! lock, except those of the event queues and the services.

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_links::packet::ReceivedPacket;
use ferroce_proto::setup::{
    Client, ClientEvent, Discovery, DiscoveryEvent, Peer, Server, ServerEvent,
};
use ferroce_proto::time::Instant;
use ferroce_sys::Recipient;
use ferroce_sys::random::number as random;
use ferroce_sys::steering::SETUP_SERVICE as SERVICE;
use ferroce_wire::address::Gid;
use ferroce_wire::setup::{
    ExchangeId, MAX_LEN, Magic, MessageType, Prefix, QUEUE_KEY, QUEUE_PAIR, SetupMessage, Status,
};

use super::services::Services;
use super::transport::MadTransport;
use crate::error::SystemError;
use crate::event_queue::EventQueue;
use crate::sync::lock;
use crate::time::now;

/// The exchanges of a device.
#[derive(Debug)]
pub(crate) struct Exchanges {
    services: Arc<Services>,
    machines: Mutex<Machines>,
    /// When the next timer of any state machine expires.
    pub(super) next: AtomicU64,
    psn: AtomicU32,
}

/// The state machines by their handles, in the order of their creation.
type Machines = BTreeMap<u64, Machine>;

/// A state machine, and the queue of its events.
#[derive(Debug)]
pub(crate) enum Machine {
    /// The server of an address. Without an event queue, it only answers discovery requests.
    Server { link: u8, server: Server, events: Option<Arc<EventQueue<ServerEvent>>> },
    /// An exchange begun by this process. It has no event queue if its handle was dropped, and then only answers repeated
    /// messages.
    Client { link: u8, client: Box<Client>, events: Option<Arc<EventQueue<ClientEvent>>> },
    /// A search: the addresses to query, and the link to query them from.
    Search {
        exchange: ExchangeId,
        discovery: Discovery,
        targets: Vec<(u8, Gid)>,
        events: Arc<EventQueue<DiscoveryEvent>>,
    },
}

impl Machine {
    fn poll_timeout(&self) -> Option<Instant> {
        match self {
            Self::Server { server, .. } => server.poll_timeout(),
            Self::Client { client, .. } => client.poll_timeout(),
            Self::Search { discovery, .. } => discovery.poll_timeout(),
        }
    }
}

fn is_answer(message: MessageType) -> bool {
    matches!(
        message,
        MessageType::DEVICE_DISCOVERY_RESP
            | MessageType::QP_CREATE_RESP
            | MessageType::MR_REGISTER_RESP
            | MessageType::CONNECTION_ACCEPT
    )
}

impl Exchanges {
    pub(crate) fn new(services: Arc<Services>) -> Self {
        Self {
            services,
            machines: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
            psn: AtomicU32::new(0),
        }
    }

    /// Allocates an exchange ID with this process's slot, by which responses are forwarded.
    pub(crate) fn new_exchange(&self) -> ExchangeId {
        ExchangeId(u32::from(self.services.slot) << 24 | random() as u32 & 0x00ff_ffff)
    }

    /// Adds a state machine, and returns its handle.
    ///
    /// # Errors
    ///
    /// When another process, or this one, serves the address of a server already.
    pub(crate) fn add(
        &self,
        transport: &dyn MadTransport,
        mut machine: Machine,
    ) -> Result<u64, SystemError> {
        if let Machine::Server { link, .. } = &machine {
            self.services.claim(transport.address(*link), SERVICE)?;
        }
        let mut machines = lock(&self.machines);
        self.pump(transport, &mut machine);
        let handle = machines.last_key_value().map_or(0, |(last, _)| last + 1);
        machines.insert(handle, machine);
        self.set_timer(transport, &mut machines);
        Ok(handle)
    }

    /// The handle of a state machine was dropped: a server or a search ends, and so does an exchange that is not connected.
    /// Others remain to answer repeated messages.
    pub(crate) fn close(&self, transport: &dyn MadTransport, handle: u64) {
        let mut machines = lock(&self.machines);
        let Some(mut machine) = machines.remove(&handle) else { return };
        match &mut machine {
            Machine::Server { link, .. } => {
                self.services.release(transport.address(*link), SERVICE);
            }
            Machine::Client { client, events, .. } => {
                *events = None;
                if !client.is_connected() {
                    client.abort(now(), Status::REJECTED);
                }
                self.pump(transport, &mut machine);
                machines.insert(handle, machine);
            }
            Machine::Search { .. } => {}
        }
        self.set_timer(transport, &mut machines);
    }

    /// Calls a function on a state machine, and sends its messages.
    pub(crate) fn with<T>(
        &self,
        transport: &dyn MadTransport,
        handle: u64,
        act: impl FnOnce(&mut Machine) -> T,
    ) -> Option<T> {
        let mut machines = lock(&self.machines);
        let machine = machines.get_mut(&handle)?;
        let result = act(machine);
        self.pump(transport, machine);
        self.set_timer(transport, &mut machines);
        Some(result)
    }

    /// Handles a message or forwards it to its owner. Returns whether it belongs to this process.
    pub(crate) fn handle(
        &self,
        transport: &dyn MadTransport,
        local: SocketAddr,
        one: &ReceivedPacket<'_>,
    ) -> bool {
        let payload = one.packet.payload;
        let prefix = Prefix::split(payload).filter(|(prefix, _)| prefix.magic == Magic::SETUP);
        let Some((prefix, _)) = prefix else { return true };
        let (exchange, is_answer) = (prefix.exchange, is_answer(prefix.message_type));
        let from = Peer::service(Gid::from_ip(one.info.source.ip()));
        let mut machines = lock(&self.machines);
        let handled = machines.values_mut().any(|machine| {
            match machine {
                Machine::Server { link, server, .. }
                    if !is_answer && serves(transport.address(*link), local, from) =>
                {
                    server.handle_datagram(now(), from, payload);
                }
                Machine::Client { client, .. } if is_answer && client.exchange() == exchange => {
                    client.handle_datagram(now(), from, payload);
                }
                Machine::Search { exchange: own, discovery, .. }
                    if is_answer && *own == exchange =>
                {
                    discovery.handle_datagram(now(), from, payload);
                }
                _ => return false,
            }
            self.pump(transport, machine);
            true
        });
        self.set_timer(transport, &mut machines);
        drop(machines);
        if handled || local.ip().is_multicast() {
            return true;
        }
        let slot = (exchange.0 >> 24) as u8;
        let other = match is_answer {
            // The exchange has ended, or never existed.
            true if slot == self.services.slot => return true,
            true => Recipient::Slot(slot),
            false => Recipient::Service(SERVICE),
        };
        let Some(link) = transport.link_at(local) else { return true };
        transport.try_forward(link, other, one.info, one.bytes);
        false
    }

    pub(crate) fn run(&self, transport: &dyn MadTransport) {
        let time = now();
        if self.next.load(Ordering::SeqCst) > time.as_nanos() {
            return;
        }
        let mut machines = lock(&self.machines);
        for machine in machines.values_mut() {
            match machine {
                Machine::Server { server, .. } => server.handle_timeout(time),
                Machine::Client { client, .. } => client.handle_timeout(time),
                Machine::Search { discovery, .. } => discovery.handle_timeout(time),
            }
            self.pump(transport, machine);
        }
        self.set_timer(transport, &mut machines);
    }

    /// Removes clients that have ended, computes the next timer, and wakes the thread if it is earlier than before.
    fn set_timer(&self, transport: &dyn MadTransport, machines: &mut Machines) {
        machines.retain(|_, one| {
            !matches!(one, Machine::Client { client, events: None, .. } if client.is_drained())
        });
        let next = machines.values().filter_map(Machine::poll_timeout).min();
        let next = next.map_or(u64::MAX, Instant::as_nanos);
        if next < self.next.swap(next, Ordering::SeqCst) {
            transport.wake_thread();
        }
    }

    /// Sends the messages of a state machine, and queues its events.
    fn pump(&self, transport: &dyn MadTransport, machine: &mut Machine) {
        match machine {
            Machine::Server { link, server, events } => {
                while events.as_ref().is_none_or(|events| !events.is_full()) {
                    match (server.poll_event(), &events) {
                        (None, _) => break,
                        (Some(event), Some(events)) => events.raise(event),
                        (Some(ServerEvent::CreateQueuePair { request, .. }), None) => {
                            // The request may have ended already.
                            let _ =
                                server.respond_queue_pair(now(), request, Err(Status::REJECTED));
                        }
                        (Some(_), None) => {}
                    }
                }
                while let Some(transmit) = server.poll_transmit() {
                    self.send(transport, *link, transmit.to.address, &transmit.message);
                }
            }
            Machine::Client { link, client, events } => {
                while let Some(transmit) = client.poll_transmit() {
                    self.send(transport, *link, transmit.to.address, &transmit.message);
                }
                while let Some(event) = client.poll_event() {
                    if let Some(events) = events {
                        events.raise(event);
                    }
                }
            }
            Machine::Search { discovery, targets, events, .. } => {
                while let Some(message) = discovery.poll_transmit() {
                    for &(link, target) in targets.iter() {
                        self.send(transport, link, target, &message);
                    }
                }
                while let Some(event) = discovery.poll_event() {
                    events.raise(event);
                }
            }
        }
    }

    fn send(&self, transport: &dyn MadTransport, link: u8, to: Gid, message: &SetupMessage) {
        // Without a route, the peer counts as not responding.
        let Ok(route) = transport.route_to(link, to) else { return };
        let mut buffer = [0; MAX_LEN];
        transport.send(route, QUEUE_PAIR, QUEUE_KEY, &self.psn, message.emit(&mut buffer));
    }
}

/// Whether the server of an address responds to a message that arrived at `local`, which may be a discovery group. It must
/// reply with an address that the requester can reach: of its family and, for IPv6, of its scope.
fn serves(own: SocketAddr, local: SocketAddr, from: Peer) -> bool {
    let reach = |ip: IpAddr| {
        let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
        (ip.is_ipv4(), ip.is_loopback(), is_local)
    };
    match local.ip().is_multicast() {
        true => reach(own.ip()) == reach(from.address.to_ip()),
        false => own == local,
    }
}
