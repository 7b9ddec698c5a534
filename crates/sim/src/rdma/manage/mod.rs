//! Connections that come up by messages over the same network: the connection manager's, or the set-up exchange's.

mod exchange;
mod manager;

use std::collections::{BTreeMap, VecDeque};
use std::net::Ipv4Addr;

use ferroce_proto::time::Instant;
use ferroce_proto::transmit::pad;
use ferroce_wire::number::{PKey, Psn, QKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::setup::QUEUE_PAIR;
use ferroce_wire::transport::{Bth, Deth};

use super::Summary;
use super::frame::{InboundPacket, emit};
use super::host::RdmaHost;
use super::workload::{Service, SetUp};
use exchange::Exchanges;
use manager::Manager;

/// Queue pairs from here on are those of clients of the set-up exchange.
const CLIENTS: u32 = 0x80_0000;

/// A connection that is to come up, as one of its hosts knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Introduction {
    pub(super) connection: usize,
    /// This side asks.
    pub(super) active: bool,
    pub(super) service: Service,
    /// Our end.
    pub(super) end: usize,
    pub(super) peer: Ipv4Addr,
    /// By which a server knows whose request it has.
    pub(super) peer_qpn: Qpn,
    pub(super) mtu: u16,
    pub(super) psn: Psn,
    /// What we say with it, and what the peer must say.
    pub(super) private: [u8; 32],
    pub(super) expected: [u8; 32],
}

/// Where a connection stands on one side.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Waiting,
    Up,
    /// It never came up.
    Failed,
    /// It was up, and is over.
    Over,
    /// As before, but the peer was asked in vain to say so too.
    Unconfirmed,
}

#[derive(Debug)]
struct Link {
    introduction: Introduction,
    state: State,
}

/// All connections of a host that come up by messages.
#[derive(Debug, Default)]
struct Links {
    links: Vec<Link>,
    /// What should not have happened.
    complaints: Vec<String>,
}

impl Links {
    /// Our side of the connection is up: what was waiting for it is posted.
    fn up(&mut self, link: usize, host: &mut RdmaHost) {
        self.links[link].state = State::Up;
        host.start(self.links[link].introduction.end);
    }

    /// The connection is over, or never was.
    fn down(&mut self, link: usize, confirmed: bool, host: &mut RdmaHost) {
        let Link { introduction, state } = &mut self.links[link];
        *state = match state {
            State::Waiting | State::Failed => State::Failed,
            _ if confirmed => State::Over,
            _ => State::Unconfirmed,
        };
        host.close(introduction.end);
    }

    /// What the peer says of itself; our queue pair is made from it.
    fn learn(&mut self, link: usize, qpn: Qpn, psn: Psn, mtu: Option<usize>, host: &mut RdmaHost) {
        let introduction = &self.links[link].introduction;
        let mtu = mtu.map_or(introduction.mtu, |mtu| mtu as u16);
        if let Some(waiting) = &mut host.ends[introduction.end].waiting {
            waiting.blueprint.learn(qpn, psn, mtu);
        }
    }

    fn complain(&mut self, link: usize, what: &str) {
        let number = self.links[link].introduction.connection;
        self.complaints.push(format!("connection {number}: {what}"));
    }
}

/// A datagram to send.
#[derive(Debug)]
struct Datagram {
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
}

/// What sets up a host's connections.
#[derive(Debug)]
pub(super) struct Management {
    links: Links,
    protocol: Protocol,
    outgoing: VecDeque<Datagram>,
    psn: Psn,
}

impl Management {
    pub(super) fn new(set_up: SetUp, host: u64, seed: u64) -> Self {
        let protocol = match set_up {
            SetUp::Exchange => Protocol::Exchange(Box::new(Exchanges::new(host, seed))),
            _ => Protocol::Manager(Box::new(Manager::new(host, seed))),
        };
        Self { links: Links::default(), protocol, outgoing: VecDeque::new(), psn: Psn(0) }
    }

    pub(super) fn introduce(&mut self, introduction: Introduction) {
        self.links.links.push(Link { introduction, state: State::Waiting });
    }

    /// Whether packets to this queue pair are for the management.
    pub(super) fn owns(qpn: Qpn) -> bool {
        qpn == Qpn::GENERAL_SERVICES || qpn == QUEUE_PAIR || qpn.0 >= CLIENTS
    }

    /// Asks for the connections that this host asks for.
    pub(super) fn begin(&mut self, now: Instant, host: &mut RdmaHost) {
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.begin(now, &mut self.links, host),
            Protocol::Exchange(exchanges) => exchanges.begin(now, &mut self.links),
        }
        self.drain(now, host);
    }

    pub(super) fn handle(
        &mut self,
        now: Instant,
        arrival: &InboundPacket<'_>,
        host: &mut RdmaHost,
    ) {
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.handle(now, arrival),
            Protocol::Exchange(exchanges) => exchanges.handle(now, arrival),
        }
        self.drain(now, host);
    }

    /// Something came for this end: its peer is ready.
    pub(super) fn data_received(&mut self, now: Instant, end: usize, host: &mut RdmaHost) {
        let of_end = |link: &Link| link.introduction.end == end && !link.introduction.active;
        let Some(link) = self.links.links.iter().position(of_end) else { return };
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.data_received(link),
            Protocol::Exchange(exchanges) => exchanges.data_received(now, link),
        }
        self.drain(now, host);
    }

    pub(super) fn handle_timeout(&mut self, now: Instant, host: &mut RdmaHost) {
        match &mut self.protocol {
            Protocol::Manager(manager) => manager.handle_timeout(now),
            Protocol::Exchange(exchanges) => exchanges.handle_timeout(now),
        }
        self.drain(now, host);
    }

    /// Ends all connections that this host asked for.
    pub(super) fn disconnect(&mut self, now: Instant, host: &mut RdmaHost) {
        if let Protocol::Manager(manager) = &mut self.protocol {
            manager.disconnect(now, &self.links);
        }
        self.drain(now, host);
    }

    /// Takes news and messages.
    fn drain(&mut self, now: Instant, host: &mut RdmaHost) {
        match &mut self.protocol {
            Protocol::Manager(manager) => {
                manager.drain(now, &mut self.links, host, &mut self.outgoing);
            }
            Protocol::Exchange(exchanges) => {
                exchanges.drain(now, &mut self.links, host, &mut self.outgoing);
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        match &self.protocol {
            Protocol::Manager(manager) => manager.poll_timeout(),
            Protocol::Exchange(exchanges) => exchanges.poll_timeout(),
        }
    }

    /// Writes the next datagram as a frame, if there is one.
    pub(super) fn poll_transmit(&mut self, from: Ipv4Addr, out: &mut Vec<u8>) -> bool {
        let Some(datagram) = self.outgoing.pop_front() else { return false };
        let Datagram { to, destination, source, queue_key, payload } = datagram;
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
        emit(&packet, from, to, 0xc001, out);
        true
    }
}

/// Judges whether both sides of each connection tell the same of it, and says for which they first do not.
pub(super) fn judge(
    hosts: &[Option<&RdmaHost>],
    faultless: bool,
    summary: &mut Summary,
    violations: &mut Vec<String>,
) -> Option<usize> {
    let mut wrong = None;
    let mut sides: BTreeMap<usize, [Option<State>; 2]> = BTreeMap::new();
    let mut by_exchange = false;
    for management in hosts.iter().flatten().filter_map(|host| host.management.as_ref()) {
        violations.extend_from_slice(&management.links.complaints);
        by_exchange |= matches!(management.protocol, Protocol::Exchange(_));
        for Link { introduction, state } in &management.links.links {
            let side = usize::from(!introduction.active);
            sides.entry(introduction.connection).or_default()[side] = Some(*state);
        }
    }
    for (connection, [active, passive]) in sides {
        use State::{Failed, Over, Unconfirmed, Up, Waiting};
        // The set-up exchange has no message that ends a connection.
        let up = if by_exchange { Up } else { Over };
        let right = match (active, passive) {
            // A host that crashed took its side with it.
            (None, _) => true,
            (Some(state), None) => state != Waiting,
            (Some(active), Some(passive)) if active == up && passive == up => {
                summary.disconnected += 1;
                true
            }
            // The last message may always be the one that is lost.
            (Some(Over | Up), Some(Waiting | Failed)) | (Some(Unconfirmed), _) => !faultless,
            (Some(Failed), Some(Waiting | Failed | Over)) => !faultless,
            _ => false,
        };
        if !right {
            wrong = wrong.or(Some(connection));
            violations.push(format!(
                "connection {connection}: {active:?} for the active side, {passive:?} for the passive one"
            ));
        }
    }
    wrong
}
