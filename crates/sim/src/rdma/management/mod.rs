//! Connections that are established by messages over the simulated network: the connection manager's, or the set-up
//! exchange's.

mod attempts;
mod exchange;
mod manager;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use ferroce_proto::cm::Owner;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::pad;
use ferroce_wire::cm::ServiceId;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::setup::QUEUE_PAIR;
use ferroce_wire::transport::{Bth, Deth};

use super::frame::{ECT0, ReceivedPacket, emit};
use super::host::QpConfig;
use super::workload::{Service, SetUp};
pub(super) use attempts::Attempt;
use attempts::Attempts;
use exchange::Exchanges;
use manager::Manager;

/// The first QPN of clients of the set-up exchange.
const FIRST_CLIENT_QPN: u32 = 0x80_0000;

/// A connection to establish, as one of its hosts knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionSpec {
    pub(super) connection: usize,
    /// This side sends the request.
    pub(super) active: bool,
    pub(super) service: Service,
    /// Our endpoint.
    pub(super) endpoint: usize,
    pub(super) peer: Ipv4Addr,
    /// By which a server of the set-up exchange identifies a request.
    pub(super) peer_qpn: Qpn,
    pub(super) mtu: u16,
    pub(super) psn: Psn,
    /// Our private data, and the private data expected from the peer.
    pub(super) private: [u8; 32],
    pub(super) expected: [u8; 32],
}

/// Control of a host's queue pairs, by the index of their endpoint.
pub(super) trait QpControl {
    /// Returns the host's address.
    fn address(&self) -> Ipv4Addr;

    /// Sets the peer's QPN and first PSN, and the path MTU, of a queue pair that is not open yet.
    fn set_peer(&mut self, endpoint: usize, qpn: Qpn, psn: Psn, mtu: u16);

    /// Creates the queue pair and binds the windows that its peer uses: the connection is up on this side.
    fn open(&mut self, now: Instant, endpoint: usize);

    /// Posts the endpoint's work: the connection is up on both sides.
    fn start(&mut self, now: Instant, endpoint: usize);

    /// Connects a queue pair in RESET to its peer. Returns false if it is not in RESET any more.
    fn connect(&mut self, endpoint: usize, peer: Ipv4Addr, config: &QpConfig) -> bool;

    /// Moves the queue pair to the error state.
    fn close(&mut self, endpoint: usize);
}

/// The state of a connection on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ConnectionState {
    Pending,
    Established,
    /// It was not established.
    Failed,
    /// It was established and then disconnected.
    Disconnected,
    /// Disconnected without confirmation by the peer.
    Unconfirmed,
}

#[derive(Debug)]
struct ManagedConnection {
    spec: ConnectionSpec,
    state: ConnectionState,
}

/// All connections of a host that are established by messages.
#[derive(Debug, Default)]
struct Connections {
    list: Vec<ManagedConnection>,
    /// Violations of the protocol.
    violations: Vec<String>,
}

impl Connections {
    /// Records that our side is established, and posts its work.
    fn established(&mut self, now: Instant, connection: usize, host: &mut dyn QpControl) {
        self.list[connection].state = ConnectionState::Established;
        host.start(now, self.list[connection].spec.endpoint);
    }

    /// Records that the connection was closed, or not established.
    fn closed(&mut self, connection: usize, confirmed: bool, host: &mut dyn QpControl) {
        let ManagedConnection { spec, state } = &mut self.list[connection];
        *state = match state {
            ConnectionState::Pending | ConnectionState::Failed => ConnectionState::Failed,
            _ if confirmed => ConnectionState::Disconnected,
            _ => ConnectionState::Unconfirmed,
        };
        host.close(spec.endpoint);
    }

    /// Passes the peer's QPN, PSN and path MTU to our queue pair.
    fn set_peer(
        &mut self,
        connection: usize,
        qpn: Qpn,
        psn: Psn,
        mtu: Option<usize>,
        host: &mut dyn QpControl,
    ) {
        let spec = &self.list[connection].spec;
        let mtu = mtu.map_or(spec.mtu, |mtu| mtu as u16);
        host.set_peer(spec.endpoint, qpn, psn, mtu);
    }

    fn report(&mut self, connection: usize, what: &str) {
        let number = self.list[connection].spec.connection;
        self.violations.push(format!("connection {number}: {what}"));
    }
}

/// A UD packet to send.
#[derive(Debug)]
struct OutgoingDatagram {
    to: Ipv4Addr,
    destination: Qpn,
    source: Qpn,
    queue_key: QKey,
    payload: Vec<u8>,
}

#[derive(Debug)]
enum Protocol {
    Manager(Box<Manager>),
    Exchange(Box<Exchanges>),
    Programs(Box<Attempts>),
}

/// Establishes and disconnects a host's connections.
#[derive(Debug)]
pub(super) struct Management {
    connections: Connections,
    protocol: Protocol,
    outgoing: VecDeque<OutgoingDatagram>,
    psn: Psn,
}

impl Management {
    pub(super) fn new(set_up: SetUp, host: u64, seed: u64) -> Self {
        let protocol = match set_up {
            SetUp::Exchange => Protocol::Exchange(Box::new(Exchanges::new(host, seed))),
            _ => Protocol::Manager(Box::new(Manager::new(host, seed))),
        };
        Self::of(protocol)
    }

    /// The management of programs that connect while they run. `slot`: that of a process that shares its address.
    pub(super) fn of_programs(host: u64, seed: u64, slot: Option<u8>) -> Self {
        Self::of(Protocol::Programs(Box::new(Attempts::new(host, seed, slot))))
    }

    fn of(protocol: Protocol) -> Self {
        Self {
            connections: Connections::default(),
            protocol,
            outgoing: VecDeque::new(),
            psn: Psn(0),
        }
    }

    /// Begins an attempt of a program. Returns whether that was possible.
    pub(super) fn attempt(
        &mut self,
        now: Instant,
        attempt: Attempt,
        is_active: bool,
        host: &mut dyn QpControl,
    ) -> bool {
        let Protocol::Programs(attempts) = &mut self.protocol else { return false };
        let begun = attempts.begin(now, attempt, is_active, host);
        self.drain(now, host);
        begun
    }

    /// Ends an attempt, or its connection. `abandons`: its queue pair is not touched any more.
    pub(super) fn end_attempt(
        &mut self,
        now: Instant,
        service: u64,
        abandons: bool,
        host: &mut dyn QpControl,
    ) {
        if let Protocol::Programs(attempts) = &mut self.protocol {
            attempts.end(now, service, abandons, host);
        }
        self.drain(now, host);
    }

    /// The state of an attempt.
    pub(super) fn attempt_state(&self, service: u64) -> Option<ConnectionState> {
        match &self.protocol {
            Protocol::Programs(attempts) => attempts.state(service),
            _ => None,
        }
    }

    /// Which process of the machine a datagram belongs to, of those that share its address.
    pub(super) fn owner(
        &self,
        received: &ReceivedPacket<'_>,
        is_served: impl FnOnce(ServiceId) -> bool,
    ) -> Owner {
        match &self.protocol {
            Protocol::Programs(attempts) => attempts.owner(received, is_served),
            _ => Owner::Us,
        }
    }

    pub(super) fn add_connection(&mut self, spec: ConnectionSpec) {
        self.connections.list.push(ManagedConnection { spec, state: ConnectionState::Pending });
    }

    /// Whether packets to this QPN are for the management.
    pub(super) fn owns(qpn: Qpn) -> bool {
        let is_client = qpn.0 >= FIRST_CLIENT_QPN && qpn != Qpn::MULTICAST;
        qpn == Qpn::GENERAL_SERVICES || qpn == QUEUE_PAIR || is_client
    }

    /// Starts to establish the connections of which this host is the active side.
    pub(super) fn begin(&mut self, now: Instant, host: &mut dyn QpControl) {
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.begin(now, &mut self.connections, host),
            Protocol::Exchange(exchanges) => exchanges.begin(now, &mut self.connections),
            // Programs begin one by one.
            Protocol::Programs(_) => {}
        }
        self.drain(now, host);
    }

    pub(super) fn handle(
        &mut self,
        now: Instant,
        received: &ReceivedPacket<'_>,
        host: &mut dyn QpControl,
    ) {
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.handle(now, received),
            Protocol::Exchange(exchanges) => exchanges.handle(now, received),
            Protocol::Programs(attempts) => attempts.handle(now, received),
        }
        self.drain(now, host);
    }

    /// Handles the first packet for an endpoint, which shows that its peer is ready.
    pub(super) fn data_received(
        &mut self,
        now: Instant,
        endpoint: usize,
        host: &mut dyn QpControl,
    ) {
        if let Protocol::Programs(attempts) = &mut self.protocol {
            attempts.data_received(endpoint);
            return self.drain(now, host);
        }
        let matches = |connection: &ManagedConnection| {
            connection.spec.endpoint == endpoint && !connection.spec.active
        };
        let Some(connection) = self.connections.list.iter().position(matches) else { return };
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.data_received(connection),
            Protocol::Exchange(exchanges) => exchanges.data_received(now, connection),
            Protocol::Programs(_) => {}
        }
        self.drain(now, host);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, host: &mut dyn QpControl) {
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.handle_timeout(now),
            Protocol::Exchange(exchanges) => exchanges.handle_timeout(now),
            Protocol::Programs(attempts) => attempts.handle_timeout(now),
        }
        self.drain(now, host);
    }

    /// Disconnects all connections of which this host is the active side.
    pub(super) fn disconnect(&mut self, now: Instant, host: &mut dyn QpControl) {
        if let Protocol::Manager(manager) = &mut self.protocol {
            manager.disconnect(now, &self.connections);
        }
        self.drain(now, host);
    }

    /// Processes events and collects messages to send.
    fn drain(&mut self, now: Instant, host: &mut dyn QpControl) {
        match &mut self.protocol {
            Protocol::Manager(manager) => {
                manager.drain(now, &mut self.connections, host, &mut self.outgoing);
            }
            Protocol::Exchange(exchanges) => {
                exchanges.drain(now, &mut self.connections, host, &mut self.outgoing);
            }
            Protocol::Programs(attempts) => attempts.drain(now, host, &mut self.outgoing),
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.protocol {
            Protocol::Manager(manager) => manager.poll_timeout(),
            Protocol::Exchange(exchanges) => exchanges.poll_timeout(),
            Protocol::Programs(attempts) => attempts.poll_timeout(),
        }
    }

    /// Writes the next packet as a frame, if there is one.
    pub(super) fn poll_transmit(&mut self, from: Ipv4Addr, out: &mut Vec<u8>) -> bool {
        let Some(datagram) = self.outgoing.pop_front() else { return false };
        let OutgoingDatagram { to, destination, source, queue_key, payload } = datagram;
        let padding = pad(payload.len());
        let packet = Packet {
            bth: Bth {
                opcode: Opcode::UD_SEND_ONLY,
                pad: padding,
                partition: PKey(0xffff),
                destination,
                psn: self.psn,
                ..Bth::default()
            },
            extensions: ExtensionHeaders {
                deth: Some(Deth { queue_key, source, ..Deth::default() }),
                ..ExtensionHeaders::default()
            },
            payload: &payload,
            payload_len: payload.len(),
            pad: &[0; 3][..usize::from(padding)],
            icrc: None,
        };
        self.psn = self.psn.add(1);
        emit(&packet, from, to, 0xc001, ECT0, out);
        true
    }
}

/// The result of comparing both sides of all connections.
#[derive(Debug, Default)]
pub(super) struct Agreement {
    /// Connections that were established and disconnected on both sides.
    pub(super) disconnected: u64,
    /// The first connection whose sides disagree.
    pub(super) first_violation: Option<usize>,
}

/// Checks that both sides of each connection report the same state.
pub(super) fn verify<'a>(
    managements: impl Iterator<Item = &'a Management>,
    faultless: bool,
    violations: &mut Vec<String>,
) -> Agreement {
    let mut agreement = Agreement::default();
    let mut sides: BTreeMap<usize, [Option<ConnectionState>; 2]> = BTreeMap::new();
    let mut by_exchange = false;
    for management in managements {
        violations.extend_from_slice(&management.connections.violations);
        by_exchange |= matches!(management.protocol, Protocol::Exchange(_));
        for ManagedConnection { spec, state } in &management.connections.list {
            let side = usize::from(!spec.active);
            sides.entry(spec.connection).or_default()[side] = Some(*state);
        }
    }
    for (connection, [active, passive]) in sides {
        use ConnectionState::{Disconnected, Established, Failed, Pending, Unconfirmed};
        // The set-up exchange has no disconnect message.
        let up = if by_exchange { Established } else { Disconnected };
        let consistent = match (active, passive) {
            // The state of a host that crashed is unknown.
            (None, _) => true,
            (Some(state), None) => state != Pending,
            (Some(active), Some(passive)) if active == up && passive == up => {
                agreement.disconnected += 1;
                true
            }
            // The last message may be lost.
            (Some(Disconnected | Established), Some(Pending | Failed)) | (Some(Unconfirmed), _) => {
                !faultless
            }
            (Some(Failed), Some(Pending | Failed | Disconnected)) => !faultless,
            _ => false,
        };
        if !consistent {
            agreement.first_violation.get_or_insert(connection);
            violations.push(format!(
                "connection {connection}: the active side is {active:?}, the passive side {passive:?}"
            ));
        }
    }
    agreement
}
