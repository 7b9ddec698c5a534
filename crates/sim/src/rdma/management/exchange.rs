//! Connections by the set-up exchange: a server on each host, and a client for each connection that it requests.

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

use super::{
    ConnectionSpec, ConnectionState, Connections, FIRST_CLIENT_QPN, OutgoingDatagram, QpControl,
};
use crate::random::Random;
use crate::rdma::frame::ReceivedPacket;
use crate::rdma::layout::{XRC_SRQS, qpn, srq_number};
use crate::rdma::memory::BASE;
use crate::rdma::workload::Service;

#[derive(Debug)]
pub(super) struct Exchanges {
    server: Server,
    /// Clients, by the index of their connection.
    clients: BTreeMap<usize, Client>,
    /// The connections that the server's exchanges are for.
    exchanges: BTreeMap<ExchangeHandle, usize>,
    random: Random,
}

/// Returns the QP parameters that the exchange carries.
fn queue_pair(one: &ConnectionSpec) -> QpParameters {
    let extended = one.service == Service::Extended;
    QpParameters {
        qp_number: qpn(one.endpoint),
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
        shared_receive_queue: if extended { srq_number(XRC_SRQS[0]).into() } else { SrqNumber(0) },
    }
}

/// Returns a region to exchange. Programs do not use it: they know their regions from the plan.
fn region(one: &ConnectionSpec) -> RegionParameters {
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

    pub(super) fn begin(&mut self, now: Instant, connections: &mut Connections) {
        for (at, connection) in connections.list.iter().enumerate() {
            let one = &connection.spec;
            if one.active {
                let exchange = ExchangeId(self.random.next_u64() as u32 | 1);
                let first = TransactionId(self.random.next_u64() as u32);
                let server = Peer::service(Gid::from_ip(one.peer.into()));
                let config = ClientConfig::new(exchange, first);
                self.clients.insert(at, Client::new(config, server, now));
            }
        }
    }

    pub(super) fn handle(&mut self, now: Instant, received: &ReceivedPacket<'_>) {
        let Some(deth) = received.packet.extensions.deth else { return };
        if deth.queue_key != QUEUE_KEY {
            return;
        }
        let address = Gid::from_ip(Ipv4Addr::from(received.ip.source.0).into());
        let from = Peer { address, queue_pair: deth.source };
        let payload = received.packet.payload;
        match received.packet.bth.destination {
            QUEUE_PAIR => self.server.handle_datagram(now, from, payload),
            Qpn(client) => {
                if let Some(client) =
                    self.clients.get_mut(&(client.wrapping_sub(FIRST_CLIENT_QPN) as usize))
                {
                    client.handle_datagram(now, from, payload);
                }
            }
        }
    }

    pub(super) fn data_received(&mut self, now: Instant, connection: usize) {
        let exchange = self.exchanges.iter().find(|(_, one)| **one == connection);
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
        connections: &mut Connections,
        host: &mut dyn QpControl,
        outgoing: &mut VecDeque<OutgoingDatagram>,
    ) {
        let mut send = |transmit: SetupTransmit, source: Qpn| {
            let IpAddr::V4(to) = transmit.to.address.to_ip() else { return };
            let mut buffer = [0; MAX_LEN];
            let payload = transmit.message.emit(&mut buffer).to_vec();
            let destination = transmit.to.queue_pair;
            outgoing.push_back(OutgoingDatagram {
                to,
                destination,
                source,
                queue_key: QUEUE_KEY,
                payload,
            });
        };
        while let Some(event) = self.server.poll_event() {
            self.serve(now, event, connections, host);
        }
        for (&connection, client) in &mut self.clients {
            while let Some(event) = client.poll_event() {
                step(now, event, client, connection, connections, host);
            }
            while let Some(transmit) = client.poll_transmit() {
                send(transmit, Qpn(FIRST_CLIENT_QPN + connection as u32));
            }
        }
        while let Some(transmit) = self.server.poll_transmit() {
            send(transmit, QUEUE_PAIR);
        }
    }

    fn serve(
        &mut self,
        now: Instant,
        event: ServerEvent,
        connections: &mut Connections,
        host: &mut dyn QpControl,
    ) {
        let known = self.exchanges.get(&event.exchange()).copied();
        // An error means that the exchange is already over.
        let _ = match (event, known) {
            (ServerEvent::CreateQueuePair { request, peer, parameters }, _) => {
                let connection = connections.list.iter().position(|connection| {
                    let one = &connection.spec;
                    !one.active
                        && Gid::from_ip(one.peer.into()) == peer.address
                        && one.peer_qpn == parameters.qp_number
                        && connection.state == ConnectionState::Pending
                });
                let response =
                    connection.map(|connection| queue_pair(&connections.list[connection].spec));
                if let Some(connection) = connection {
                    self.exchanges.insert(event.exchange(), connection);
                    let mtu = parameters.path_mtu.bytes();
                    let (qpn, psn) = (parameters.qp_number, parameters.starting_psn);
                    connections.set_peer(connection, qpn, psn, mtu, host);
                }
                let response = response.ok_or(Status::NO_RESOURCES);
                self.server.respond_queue_pair(now, request, response)
            }
            (ServerEvent::RegisterRegion { request, .. }, Some(connection)) => {
                let registered = RegisteredRegion {
                    region: region(&connections.list[connection].spec),
                    remote_key: RKey(1),
                    local_key: LKey(0),
                };
                self.server.respond_region(now, request, Ok(registered))
            }
            (ServerEvent::Connect { request, .. }, Some(connection)) => {
                host.open(now, connections.list[connection].spec.endpoint);
                self.server.respond_connection(now, request, Ok(1 << 24))
            }
            (ServerEvent::Connected { .. }, Some(connection)) => {
                connections.established(now, connection, host);
                Ok(())
            }
            (ServerEvent::Failed { .. }, Some(connection)) => {
                connections.closed(connection, true, host);
                Ok(())
            }
            _ => Ok(()),
        };
    }
}

/// Performs the client's next step.
fn step(
    now: Instant,
    event: ClientEvent,
    client: &mut Client,
    connection: usize,
    connections: &mut Connections,
    host: &mut dyn QpControl,
) {
    let one = connections.list[connection].spec;
    let result = match event {
        ClientEvent::Discovered(_) => client.create_queue_pair(now, queue_pair(&one)),
        ClientEvent::QueuePairCreated(theirs) => {
            let mtu = theirs.path_mtu.bytes();
            connections.set_peer(connection, theirs.qp_number, theirs.starting_psn, mtu, host);
            host.open(now, one.endpoint);
            client.register_region(now, region(&one))
        }
        ClientEvent::RegionRegistered(theirs) => {
            let server_key = theirs.remote_key;
            client.connect(now, ConnectionParameters { server_key, ..Default::default() })
        }
        ClientEvent::Accepted(_) => {
            let confirmed = client.confirm(now);
            connections.established(now, connection, host);
            confirmed
        }
        ClientEvent::Failed(_) => {
            connections.closed(connection, true, host);
            Ok(())
        }
    };
    if result.is_err() {
        connections.report(connection, "a step of the set-up exchange was out of order");
    }
}
