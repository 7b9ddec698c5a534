//! Connections by the connection manager: REQ, REP, RTU, and DREQ at the end.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use ferroce_proto::cm::{
    AcceptParameters, Config, ConnectParameters, ConnectionId, ConnectionManager, Disconnection,
    DrepData, DreqData, Event, RejData, Rejection, RtuData, private_data, roce_path,
};
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{PathMtu, ResponseTimeout, ServiceId, Transport};
use ferroce_wire::number::{Guid, QKey, Qpn};

use super::{Datagram, Links, State};
use crate::rdma::frame::InboundPacket;
use crate::rdma::host::{RdmaHost, number};
use crate::rdma::workload::Service;

/// The service of connection 0; the others follow.
const SERVICE: u64 = 0x1000;

/// 4 ms: a message is repeated while the faults of a scenario last.
const TIMEOUT: ResponseTimeout = ResponseTimeout(10);

#[derive(Debug)]
pub(super) struct Manager {
    manager: ConnectionManager,
    /// The manager's names for the links, by their place.
    ids: Vec<Option<ConnectionId>>,
}

fn gid(address: Ipv4Addr) -> Gid {
    Gid::from_ip(address.into())
}

impl Manager {
    pub(super) fn new(host: u64, seed: u64) -> Self {
        let config = Config::new(Guid(0x0200_00ff_fe00_0000 + host), seed);
        Self { manager: ConnectionManager::new(config), ids: Vec::new() }
    }

    pub(super) fn begin(&mut self, now: Instant, links: &mut Links, host: &RdmaHost) {
        self.ids = vec![None; links.links.len()];
        for (at, link) in links.links.iter().enumerate() {
            let one = &link.introduction;
            let service = ServiceId(SERVICE + one.connection as u64);
            if !one.active {
                // Each connection has a service of its own.
                let _ = self.manager.listen(service, 1);
                continue;
            }
            let path = roce_path(gid(host.address), gid(one.peer), 0);
            let wish = ConnectParameters {
                transport: match one.service {
                    Service::Unreliable => Transport::Uc,
                    Service::Extended => Transport::Xrc,
                    _ => Transport::Rc,
                },
                path_mtu: PathMtu::from_bytes(usize::from(one.mtu)).unwrap_or_default(),
                responder_resources: 8,
                initiator_depth: 8,
                local_response_timeout: TIMEOUT,
                remote_response_timeout: TIMEOUT,
                private_data: private_data(&one.private).unwrap_or_default(),
                ..ConnectParameters::new(service, number(one.end), one.psn, path)
            };
            self.ids[at] = self.manager.connect(now, &wish).ok();
        }
    }

    pub(super) fn handle(&mut self, now: Instant, arrival: &InboundPacket<'_>) {
        let keyed = arrival
            .packet
            .extensions
            .deth
            .is_some_and(|deth| deth.queue_key == QKey::GENERAL_SERVICES);
        if keyed {
            let from = gid(Ipv4Addr::from(arrival.ip.source.0));
            // What does not fit is ignored: it came late, or twice.
            let _ = self.manager.handle_mad(now, from, arrival.packet.payload);
        }
    }

    pub(super) fn data_received(&mut self, link: usize) {
        if let Some(id) = self.ids[link] {
            // An error is a connection that is up already.
            let _ = self.manager.handle_data_received(id);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.manager.poll_timeout().is_some_and(|time| time <= now) {
            self.manager.handle_timeout(now);
        }
    }

    pub(super) fn disconnect(&mut self, now: Instant, links: &Links) {
        for (link, id) in links.links.iter().zip(&self.ids) {
            if let (true, State::Up, Some(id)) = (link.introduction.active, link.state, id) {
                // It may be over already: the peer did not know it.
                let _ = self.manager.disconnect(now, *id, DreqData::default());
            }
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.manager.poll_timeout()
    }

    pub(super) fn drain(
        &mut self,
        now: Instant,
        links: &mut Links,
        host: &mut RdmaHost,
        outgoing: &mut VecDeque<Datagram>,
    ) {
        while let Some(event) = self.manager.poll_event() {
            self.consume(now, event, links, host);
        }
        while let Some(transmit) = self.manager.poll_transmit() {
            let IpAddr::V4(to) = transmit.destination.to_ip() else { continue };
            outgoing.push_back(Datagram {
                to,
                destination: Qpn::GENERAL_SERVICES,
                source: Qpn::GENERAL_SERVICES,
                queue_key: QKey::GENERAL_SERVICES,
                payload: transmit.to_mad().to_vec(),
            });
        }
    }

    fn consume(&mut self, now: Instant, event: Event, links: &mut Links, host: &mut RdmaHost) {
        let find = |id| self.ids.iter().position(|one| *one == Some(id));
        match event {
            Event::Request(id, request) => {
                let number_of = |link: &super::Link| SERVICE + link.introduction.connection as u64;
                let link = links.links.iter().position(|link| {
                    number_of(link) == request.service_id.0 && link.state == State::Waiting
                });
                let Some(link) = link else {
                    // It was up once, or failed: a request of the past.
                    let no = Rejection::by_consumer(RejData::default());
                    let _ = self.manager.reject(now, id, &no);
                    return;
                };
                self.ids[link] = Some(id);
                let one = links.links[link].introduction;
                if request.private_data[..32] != one.expected {
                    links.complain(link, "REQ came with other private data");
                }
                let mtu = request.path_mtu.bytes();
                links.learn(link, request.remote_qpn, request.starting_psn, mtu, host);
                // Ready before the peer is told, as Linux does: its first packet may overtake its RTU.
                host.open(now, one.end);
                let yes = AcceptParameters {
                    responder_resources: 8,
                    initiator_depth: 8,
                    private_data: private_data(&one.private).unwrap_or_default(),
                    ..AcceptParameters::new(number(one.end), one.psn)
                };
                let _ = self.manager.accept(now, id, &yes);
            }
            Event::Reply(id, reply) => {
                let Some(link) = find(id) else { return };
                let one = links.links[link].introduction;
                if reply.private_data[..32] != one.expected {
                    links.complain(link, "REP came with other private data");
                }
                links.learn(link, reply.remote_qpn, reply.starting_psn, None, host);
                host.open(now, one.end);
                if self.manager.ready(id, RtuData::default()).is_ok() {
                    links.up(link, host);
                }
            }
            Event::Established(id, _) => {
                if let Some(link) = find(id) {
                    links.up(link, host);
                }
            }
            Event::DisconnectRequest(id, _) => {
                let _ = self.manager.confirm_disconnect(now, id, DrepData::default());
            }
            Event::Rejected(id, _) | Event::Failed(id, _) => {
                find(id).into_iter().for_each(|link| links.down(link, true, host));
            }
            Event::Disconnected(id, how) => {
                let confirmed = how != Disconnection::Unconfirmed;
                find(id).into_iter().for_each(|link| links.down(link, confirmed, host));
            }
            _ => {}
        }
    }
}
