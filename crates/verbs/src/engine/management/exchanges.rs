//! The set-up exchange on real sockets: receives messages to QP 2 and queues events for the handles of
//! [`crate::setup`].
//!
//! Processes share addresses, so a message may reach any of them and is forwarded: a response by the slot in the
//! exchange ID, a request to the process that serves the address. Multicast discovery requests reach every process
//! directly.
//!
//! One lock protects all state machines. While it is held, no thread waits for ownership of the device or takes another
//! lock, except those of the event queues and the services.

use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use ferroce_links::packet::ReceivedPacket;
use ferroce_proto::setup::{
    Client, ClientConfig, ClientEvent, Discovery, DiscoveryConfig, DiscoveryEvent, Peer, Server,
    ServerConfig, ServerEvent,
};
use ferroce_proto::time::Instant;
use ferroce_sys::Recipient;
use ferroce_sys::random::number as random;
use ferroce_sys::steering::SETUP_SERVICE as SERVICE;
use ferroce_wire::address::Gid;
use ferroce_wire::number::Psn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::setup::{
    ExchangeId, MAX_LEN, Magic, MessageType, Prefix, QUEUE_KEY, QUEUE_PAIR, SetupMessage, Status,
};

use super::services::Services;
use super::transport::MadTransport;
use crate::error::{RouteError, SetupExchangeError};
use crate::event_queue::EventQueue;
use crate::sync::lock;
use crate::time::now;

/// The exchanges of a device.
#[derive(Debug)]
pub(crate) struct Exchanges {
    slot: u8,
    services: Arc<Services>,
    machines: Mutex<Machines>,
    /// When the next timer of any state machine expires.
    next: AtomicU64,
    psn: AtomicU32,
}

#[derive(Debug, Default)]
struct Machines {
    servers: Vec<ServerState>,
    clients: Vec<ClientState>,
    discoveries: Vec<DiscoveryState>,
}

impl Machines {
    fn client(&mut self, exchange: ExchangeId) -> Option<&mut ClientState> {
        self.clients.iter_mut().find(|one| one.machine.exchange() == exchange)
    }
}

/// The server of an address.
#[derive(Debug)]
struct ServerState {
    link: u8,
    machine: Server,
    /// Its event queue. A server without one only answers discovery requests.
    events: Option<Arc<EventQueue<ServerEvent>>>,
}

/// An exchange begun by this process.
#[derive(Debug)]
struct ClientState {
    link: u8,
    machine: Client,
    /// Its event queue. `None` if its handle was dropped; the exchange then only answers repeated messages.
    events: Option<Arc<EventQueue<ClientEvent>>>,
}

#[derive(Debug)]
struct DiscoveryState {
    exchange: ExchangeId,
    machine: Discovery,
    /// The addresses to query, and the link to query them from.
    targets: Vec<(u8, Gid)>,
    events: Arc<EventQueue<DiscoveryEvent>>,
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
    pub(crate) fn new(slot: u8, services: Arc<Services>) -> Self {
        Self {
            slot,
            services,
            machines: Mutex::default(),
            next: AtomicU64::new(u64::MAX),
            psn: AtomicU32::new(0),
        }
    }

    /// Allocates an exchange ID with this process's slot, by which responses are forwarded.
    pub(crate) fn new_exchange(&self) -> ExchangeId {
        ExchangeId(u32::from(self.slot) << 24 | random() as u32 & 0x00ff_ffff)
    }

    /// Serves the exchanges of an address. Without an event queue, it only answers discovery requests.
    pub(crate) fn serve(
        &self,
        transport: &dyn MadTransport,
        link: u8,
        config: ServerConfig,
        events: Option<Arc<EventQueue<ServerEvent>>>,
    ) -> Result<(), SetupExchangeError> {
        let address = transport.address(link);
        let address = address.ok_or(RouteError::NoSuchGid { index: link, entries: 0 })?;
        self.services.claim(address, SERVICE)?;
        let serving = ServerState { link, machine: Server::new(config), events };
        lock(&self.machines).servers.push(serving);
        Ok(())
    }

    pub(crate) fn stop_serving(&self, transport: &dyn MadTransport, link: u8) {
        lock(&self.machines).servers.retain(|one| one.link != link);
        if let Some(address) = transport.address(link) {
            self.services.release(address, SERVICE);
        }
    }

    /// Calls a function on the server of a link, and sends the resulting messages.
    pub(crate) fn with_server<T>(
        &self,
        transport: &dyn MadTransport,
        link: u8,
        act: impl FnOnce(&mut Server, Instant) -> T,
    ) -> Option<T> {
        let mut machines = lock(&self.machines);
        let serving = machines.servers.iter_mut().find(|one| one.link == link)?;
        let result = act(&mut serving.machine, now());
        self.pump_server(transport, serving);
        self.set_timer(transport, &machines);
        Some(result)
    }

    /// Begins an exchange.
    pub(crate) fn begin(
        &self,
        transport: &dyn MadTransport,
        link: u8,
        server: Gid,
        config: ClientConfig,
        events: Arc<EventQueue<ClientEvent>>,
    ) -> Result<(), RouteError> {
        transport.route_to(link, server)?;
        let machine = Client::new(config, Peer::service(server), now());
        let mut asking = ClientState { link, machine, events: Some(events) };
        let mut machines = lock(&self.machines);
        self.pump_client(transport, &mut asking);
        machines.clients.push(asking);
        self.set_timer(transport, &machines);
        Ok(())
    }

    /// Calls a function on an exchange, and sends the resulting messages.
    pub(crate) fn with_client<T>(
        &self,
        transport: &dyn MadTransport,
        exchange: ExchangeId,
        act: impl FnOnce(&mut Client, Instant) -> T,
    ) -> Option<T> {
        let mut machines = lock(&self.machines);
        let asking = machines.client(exchange)?;
        let result = act(&mut asking.machine, now());
        self.pump_client(transport, asking);
        self.set_timer(transport, &machines);
        Some(result)
    }

    /// The handle of an exchange was dropped: an unconnected exchange ends, others remain to answer repeated messages.
    pub(crate) fn remove_client(&self, transport: &dyn MadTransport, exchange: ExchangeId) {
        let mut machines = lock(&self.machines);
        let Some(asking) = machines.client(exchange) else { return };
        asking.events = None;
        if !asking.machine.is_connected() {
            asking.machine.abort(now(), Status::REJECTED);
        }
        self.pump_client(transport, asking);
        machines.clients.retain(|one| one.events.is_some() || !one.machine.is_drained());
        self.set_timer(transport, &machines);
    }

    /// Begins a discovery.
    pub(crate) fn search(
        &self,
        transport: &dyn MadTransport,
        config: DiscoveryConfig,
        targets: Vec<(u8, Gid)>,
        events: Arc<EventQueue<DiscoveryEvent>>,
    ) {
        let machine = Discovery::new(config, now());
        let mut searching = DiscoveryState { exchange: config.exchange, machine, targets, events };
        let mut machines = lock(&self.machines);
        self.pump_discovery(transport, &mut searching);
        machines.discoveries.push(searching);
        self.set_timer(transport, &machines);
    }

    pub(crate) fn stop_searching(&self, transport: &dyn MadTransport, exchange: ExchangeId) {
        let mut machines = lock(&self.machines);
        machines.discoveries.retain(|one| one.exchange != exchange);
        self.set_timer(transport, &machines);
    }

    /// Handles a message or forwards it to its owner. Returns whether it belongs to this process.
    pub(crate) fn handle(
        &self,
        transport: &dyn MadTransport,
        local: SocketAddr,
        one: &ReceivedPacket<'_>,
    ) -> bool {
        let Some(deth) = one.packet.extensions.deth else { return true };
        if one.packet.bth.opcode != Opcode::UD_SEND_ONLY
            || (deth.queue_key, deth.source) != (QUEUE_KEY, QUEUE_PAIR)
        {
            return true;
        }
        let payload = one.packet.payload;
        let Some((prefix, _)) = Prefix::split(payload) else { return true };
        if prefix.magic != Magic::SETUP {
            return true;
        }
        let from = Peer::service(Gid::from_ip(one.info.source.ip()));
        let mut machines = lock(&self.machines);
        let ours = if is_answer(prefix.message_type) {
            self.answered(transport, &mut machines, from, prefix.exchange, payload)
        } else {
            self.asked(transport, &mut machines, local, from, payload)
        };
        self.set_timer(transport, &machines);
        drop(machines);
        if ours || local.ip().is_multicast() {
            return true;
        }
        let slot = (prefix.exchange.0 >> 24) as u8;
        let other = match is_answer(prefix.message_type) {
            // The exchange has ended, or never existed.
            true if slot == self.slot => return true,
            true => Recipient::Slot(slot),
            false => Recipient::Service(SERVICE),
        };
        let Some(link) = transport.link_at(local) else { return true };
        transport.try_forward(link, other, one.info, one.bytes);
        false
    }

    fn answered(
        &self,
        transport: &dyn MadTransport,
        machines: &mut Machines,
        from: Peer,
        exchange: ExchangeId,
        payload: &[u8],
    ) -> bool {
        if let Some(asking) = machines.client(exchange) {
            asking.machine.handle_datagram(now(), from, payload);
            self.pump_client(transport, asking);
            return true;
        }
        let found = machines.discoveries.iter_mut().find(|one| one.exchange == exchange);
        let Some(searching) = found else { return false };
        searching.machine.handle_datagram(now(), from, payload);
        self.pump_discovery(transport, searching);
        true
    }

    fn asked(
        &self,
        transport: &dyn MadTransport,
        machines: &mut Machines,
        local: SocketAddr,
        from: Peer,
        payload: &[u8],
    ) -> bool {
        let group = local.ip().is_multicast();
        let fits = |one: &ServerState| {
            let Some(address) = transport.address(one.link) else { return false };
            if !group {
                return address == local;
            }
            // Reply with an address that the requester can reach: of its family and, for IPv6, of its scope.
            let reach = |ip: IpAddr| {
                let is_local = matches!(ip, IpAddr::V6(ip) if ip.is_unicast_link_local());
                (ip.is_ipv4(), ip.is_loopback(), is_local)
            };
            reach(address.ip()) == reach(from.address.to_ip())
        };
        let Some(serving) = machines.servers.iter_mut().find(|one| fits(one)) else { return false };
        serving.machine.handle_datagram(now(), from, payload);
        self.pump_server(transport, serving);
        true
    }

    pub(crate) fn run(&self, transport: &dyn MadTransport) {
        let time = now();
        if self.next_timer() > time.as_nanos() {
            return;
        }
        let mut machines = lock(&self.machines);
        for serving in &mut machines.servers {
            serving.machine.handle_timeout(time);
            self.pump_server(transport, serving);
        }
        for asking in &mut machines.clients {
            asking.machine.handle_timeout(time);
            self.pump_client(transport, asking);
        }
        for searching in &mut machines.discoveries {
            searching.machine.handle_timeout(time);
            self.pump_discovery(transport, searching);
        }
        machines.clients.retain(|one| one.events.is_some() || !one.machine.is_drained());
        self.set_timer(transport, &machines);
    }

    pub(crate) fn next_timer(&self) -> u64 {
        self.next.load(Ordering::SeqCst)
    }

    /// Computes the next timer, and wakes the thread if it is earlier than before.
    fn set_timer(&self, transport: &dyn MadTransport, machines: &Machines) {
        let servers = machines.servers.iter().filter_map(|one| one.machine.poll_timeout());
        let clients = machines.clients.iter().filter_map(|one| one.machine.poll_timeout());
        let others = machines.discoveries.iter().filter_map(|one| one.machine.poll_timeout());
        let next = servers.chain(clients).chain(others).min();
        let next = next.map_or(u64::MAX, Instant::as_nanos);
        if next < self.next.swap(next, Ordering::SeqCst) {
            transport.wake_thread();
        }
    }

    fn pump_server(&self, transport: &dyn MadTransport, serving: &mut ServerState) {
        let machine = &mut serving.machine;
        while !serving.events.as_ref().is_some_and(|events| events.is_full()) {
            let Some(event) = machine.poll_event() else { break };
            match (&serving.events, event) {
                (Some(events), event) => events.raise(event),
                (None, ServerEvent::CreateQueuePair { request, .. }) => {
                    // The request may have ended already.
                    let _ = machine.respond_queue_pair(now(), request, Err(Status::REJECTED));
                }
                (None, _) => {}
            }
        }
        while let Some(transmit) = machine.poll_transmit() {
            self.send(transport, serving.link, transmit.to.address, &transmit.message);
        }
    }

    fn pump_client(&self, transport: &dyn MadTransport, asking: &mut ClientState) {
        while let Some(transmit) = asking.machine.poll_transmit() {
            self.send(transport, asking.link, transmit.to.address, &transmit.message);
        }
        while let Some(event) = asking.machine.poll_event() {
            if let Some(events) = &asking.events {
                events.raise(event);
            }
        }
    }

    fn pump_discovery(&self, transport: &dyn MadTransport, searching: &mut DiscoveryState) {
        while let Some(message) = searching.machine.poll_transmit() {
            for &(link, target) in &searching.targets {
                self.send(transport, link, target, &message);
            }
        }
        while let Some(event) = searching.machine.poll_event() {
            searching.events.raise(event);
        }
    }

    fn send(&self, transport: &dyn MadTransport, link: u8, to: Gid, message: &SetupMessage) {
        // Without a route, the peer counts as not responding.
        let Ok(route) = transport.route_to(link, to) else { return };
        let psn = Psn(self.psn.fetch_add(1, Ordering::Relaxed) & 0x00ff_ffff);
        let mut buffer = [0; MAX_LEN];
        transport.send(route, QUEUE_PAIR, QUEUE_KEY, psn, message.emit(&mut buffer));
    }
}
