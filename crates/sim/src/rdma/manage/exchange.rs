//! Connections by the set-up exchange: a server on each host, and a client for each connection that it asks for.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::setup::{
    Client, ClientConfig, ClientEvent, ConnectionParameters, Device, ExchangeHandle, Peer,
    QpParameters, RegionParameters, RegisteredRegion, Server, ServerConfig, ServerEvent,
    SetupTransmit,
};
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::PathMtu;
use ferroce_wire::number::{Guid, LKey, QKey, Qpn, RKey, SrqNumber, VirtualAddress};
use ferroce_wire::setup::{
    Capabilities, ExchangeId, MAX_LEN, PeerId, QUEUE_KEY, QUEUE_PAIR, QpType, RegionId, Status,
    TransactionId, Transports,
};

use super::{CLIENTS, Datagram, Introduction, Links, State};
use crate::Random;
use crate::rdma::frame::InboundPacket;
use crate::rdma::host::{RdmaHost, number, queue_number};
use crate::rdma::memory::{BASE, key};
use crate::rdma::plan::EXTENDED_QUEUES;
use crate::rdma::workload::Service;

#[derive(Debug)]
pub(super) struct Exchanges {
    server: Server,
    /// Clients, by the place of their link.
    clients: BTreeMap<usize, Client>,
    /// The links that the server's exchanges are for.
    exchanges: BTreeMap<ExchangeHandle, usize>,
    random: Random,
}

/// An end as the exchange describes it.
fn queue_pair(one: &Introduction) -> QpParameters {
    let extended = one.service == Service::Extended;
    QpParameters {
        qp_number: number(one.end),
        qp_type: match one.service {
            Service::Unreliable => QpType::UC,
            Service::Extended => QpType::XRC,
            _ => QpType::RC,
        },
        path_mtu: PathMtu::from_bytes(usize::from(one.mtu)).unwrap_or_default(),
        responder_resources: 8,
        initiator_depth: 8,
        max_send_wqe: 64,
        max_recv_wqe: 64,
        max_send_sge: 2,
        max_recv_sge: 1,
        send_queue_size: 4096,
        recv_queue_size: 4096,
        starting_psn: one.psn,
        queue_key: QKey(0),
        shared_receive_queue: if extended {
            queue_number(EXTENDED_QUEUES[0]).into()
        } else {
            SrqNumber(0)
        },
    }
}

/// A region to tell the peer of: what programs use they know from the start.
fn region(one: &Introduction) -> RegionParameters {
    RegionParameters {
        id: RegionId(one.connection as u32 + 1),
        access: AccessFlags::REMOTE_READ,
        address: VirtualAddress(BASE),
        length: 64,
        ..RegionParameters::default()
    }
}

impl Exchanges {
    pub(super) fn new(host: u64, seed: u64) -> Self {
        let device = Device {
            id: PeerId(host as u32 + 1),
            capabilities: Capabilities(0x1ff),
            guid: Guid(0x0200_00ff_fe00_0000 + host),
            max_queue_pairs: 1 << 16,
            max_memory_regions: 1 << 16,
            max_message_size: 1 << 24,
            transports: Transports::RC | Transports::UC | Transports::UD | Transports::XRC,
            path_mtu: PathMtu::MTU_4096,
        };
        Self {
            server: Server::new(ServerConfig::new(device)),
            clients: BTreeMap::new(),
            exchanges: BTreeMap::new(),
            random: Random::new(seed),
        }
    }

    pub(super) fn begin(&mut self, now: Instant, links: &mut Links) {
        for (at, link) in links.links.iter().enumerate() {
            let one = &link.introduction;
            if one.active {
                let exchange = ExchangeId(self.random.next_u64() as u32 | 1);
                let first = TransactionId(self.random.next_u64() as u32);
                let server = Peer::service(Gid::from_ip(one.peer.into()));
                let config = ClientConfig::new(exchange, first);
                self.clients.insert(at, Client::new(config, server, now));
            }
        }
    }

    pub(super) fn handle(&mut self, now: Instant, arrival: &InboundPacket<'_>) {
        let Some(deth) = arrival.packet.extensions.deth else { return };
        if deth.queue_key != QUEUE_KEY {
            return;
        }
        let address = Gid::from_ip(Ipv4Addr::from(arrival.ip.source.0).into());
        let from = Peer { address, queue_pair: deth.source };
        let payload = arrival.packet.payload;
        match arrival.packet.bth.destination {
            QUEUE_PAIR => self.server.handle_datagram(now, from, payload),
            Qpn(client) => {
                if let Some(client) = self.clients.get_mut(&(client.wrapping_sub(CLIENTS) as usize))
                {
                    client.handle_datagram(now, from, payload);
                }
            }
        }
    }

    pub(super) fn data_received(&mut self, now: Instant, link: usize) {
        let exchange = self.exchanges.iter().find(|(_, one)| **one == link);
        if let Some((&exchange, _)) = exchange {
            self.server.handle_data_received(now, exchange);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        self.server.handle_timeout(now);
        self.clients.values_mut().for_each(|client| client.handle_timeout(now));
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        let clients = self.clients.values().filter_map(Client::poll_timeout);
        clients.chain(self.server.poll_timeout()).min()
    }

    pub(super) fn drain(
        &mut self,
        now: Instant,
        links: &mut Links,
        host: &mut RdmaHost,
        outgoing: &mut VecDeque<Datagram>,
    ) {
        let mut send = |transmit: SetupTransmit, source: Qpn| {
            let IpAddr::V4(to) = transmit.to.address.to_ip() else { return };
            let mut buffer = [0; MAX_LEN];
            let payload = transmit.message.emit(&mut buffer).to_vec();
            let destination = transmit.to.queue_pair;
            outgoing.push_back(Datagram { to, destination, source, queue_key: QUEUE_KEY, payload });
        };
        while let Some(event) = self.server.poll_event() {
            self.serve(now, event, links, host);
        }
        for (&link, client) in &mut self.clients {
            while let Some(event) = client.poll_event() {
                step(now, event, client, link, links, host);
            }
            while let Some(transmit) = client.poll_transmit() {
                send(transmit, Qpn(CLIENTS + link as u32));
            }
        }
        while let Some(transmit) = self.server.poll_transmit() {
            send(transmit, QUEUE_PAIR);
        }
    }

    fn serve(&mut self, now: Instant, event: ServerEvent, links: &mut Links, host: &mut RdmaHost) {
        let known = self.exchanges.get(&event.exchange()).copied();
        // The exchange may be over by now: then there is nothing to answer.
        let _ = match (event, known) {
            (ServerEvent::CreateQueuePair { request, peer, parameters }, _) => {
                let link = links.links.iter().position(|link| {
                    let one = &link.introduction;
                    !one.active
                        && Gid::from_ip(one.peer.into()) == peer.address
                        && one.peer_qpn == parameters.qp_number
                        && link.state == State::Waiting
                });
                let answer = link.map(|link| queue_pair(&links.links[link].introduction));
                if let Some(link) = link {
                    self.exchanges.insert(event.exchange(), link);
                    let mtu = parameters.path_mtu.bytes();
                    let (qpn, psn) = (parameters.qp_number, parameters.starting_psn);
                    links.learn(link, qpn, psn, mtu, host);
                }
                let answer = answer.ok_or(Status::NO_RESOURCES);
                self.server.respond_queue_pair(now, request, answer)
            }
            (ServerEvent::RegisterRegion { request, .. }, Some(link)) => {
                let registered = RegisteredRegion {
                    region: region(&links.links[link].introduction),
                    remote_key: RKey(key(0)),
                    local_key: LKey(0),
                };
                self.server.respond_region(now, request, Ok(registered))
            }
            (ServerEvent::Connect { request, .. }, Some(link)) => {
                host.open(now, links.links[link].introduction.end);
                self.server.respond_connection(now, request, Ok(1 << 24))
            }
            (ServerEvent::Connected { .. }, Some(link)) => {
                links.up(link, host);
                Ok(())
            }
            (ServerEvent::Failed { .. }, Some(link)) => {
                links.down(link, true, host);
                Ok(())
            }
            _ => Ok(()),
        };
    }
}

/// The client's next step.
fn step(
    now: Instant,
    event: ClientEvent,
    client: &mut Client,
    link: usize,
    links: &mut Links,
    host: &mut RdmaHost,
) {
    let one = links.links[link].introduction;
    let taken = match event {
        ClientEvent::Discovered(_) => client.create_queue_pair(now, queue_pair(&one)),
        ClientEvent::QueuePairCreated(theirs) => {
            let mtu = theirs.path_mtu.bytes();
            links.learn(link, theirs.qp_number, theirs.starting_psn, mtu, host);
            host.open(now, one.end);
            client.register_region(now, region(&one))
        }
        ClientEvent::RegionRegistered(theirs) => {
            let server_key = theirs.remote_key;
            client.connect(now, ConnectionParameters { server_key, ..Default::default() })
        }
        ClientEvent::Accepted(_) => {
            let confirmed = client.confirm(now);
            links.up(link, host);
            confirmed
        }
        ClientEvent::Failed(_) => {
            links.down(link, true, host);
            Ok(())
        }
    };
    if taken.is_err() {
        links.complain(link, "a step of the set-up exchange was out of turn");
    }
}
