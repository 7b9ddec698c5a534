//! Connections that programs request one by one while they run, by the connection manager.

use std::collections::{BTreeMap, VecDeque};
use std::net::{IpAddr, Ipv4Addr};

use ferroce_proto::cm::{
    AcceptParameters, Config, ConnectParameters, ConnectionId, ConnectionManager, DrepData, Event,
    Owner, RejData, Rejection, RtuData, roce_path,
};
use ferroce_proto::time::Instant;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{PathMtu, ResponseTimeout, ServiceId, Transport};
use ferroce_wire::number::{Guid, QKey, Qpn};

use super::{ConnectionState, OutgoingDatagram, QpControl};
use crate::rdma::frame::ReceivedPacket;
use crate::rdma::host::QpConfig;
use crate::rdma::workload::Service;

/// 1 ms, so that an attempt does not take longer than the requests of others.
const RESPONSE_TIMEOUT: ResponseTimeout = ResponseTimeout(8);

/// An attempt to connect an endpoint, which succeeds or not.
#[derive(Clone, Debug)]
pub(in crate::rdma) struct Attempt {
    /// The service that the passive side listens to. No two attempts have the same.
    pub(in crate::rdma) service: u64,
    pub(in crate::rdma) endpoint: usize,
    pub(in crate::rdma) number: Qpn,
    pub(in crate::rdma) peer: Ipv4Addr,
    pub(in crate::rdma) config: QpConfig,
    pub(in crate::rdma) kind: Service,
}

/// An attempt, and how far it is.
#[derive(Debug)]
struct Running {
    attempt: Attempt,
    is_active: bool,
    id: Option<ConnectionId>,
    state: ConnectionState,
    /// The program has given it up: its queue pair is reset, destroyed, or of another attempt.
    is_abandoned: bool,
}

/// The attempts of a host.
#[derive(Debug)]
pub(super) struct Attempts {
    manager: ConnectionManager,
    /// By their services.
    list: BTreeMap<u64, Running>,
}

fn gid(address: Ipv4Addr) -> Gid {
    Gid::from_ip(address.into())
}

impl Attempts {
    /// `slot`: that of the process, if it shares an address with others.
    pub(super) fn new(host: u64, seed: u64, slot: Option<u8>) -> Self {
        let config = Config { slot, ..Config::new(Guid(0x0200_00ff_fe00_0000 + host), seed) };
        Self { manager: ConnectionManager::new(config), list: BTreeMap::new() }
    }

    /// Waits for the peer's request, or sends it. Returns whether that was possible.
    pub(super) fn begin(
        &mut self,
        now: Instant,
        attempt: Attempt,
        is_active: bool,
        host: &dyn QpControl,
    ) -> bool {
        let service = ServiceId(attempt.service);
        let mut id = None;
        if is_active {
            let path = roce_path(gid(host.address()), gid(attempt.peer), 0);
            let psn = attempt.config.attributes.send_psn.unwrap_or_default();
            let parameters = ConnectParameters {
                transport: match attempt.kind {
                    Service::Unreliable => Transport::Uc,
                    Service::Extended => Transport::Xrc,
                    _ => Transport::Rc,
                },
                path_mtu: attempt.config.attributes.path_mtu.unwrap_or(PathMtu::MTU_1024),
                responder_resources: 8,
                initiator_depth: 8,
                local_response_timeout: RESPONSE_TIMEOUT,
                remote_response_timeout: RESPONSE_TIMEOUT,
                ..ConnectParameters::new(service, attempt.number, psn, path)
            };
            id = self.manager.connect(now, &parameters).ok();
            if id.is_none() {
                return false;
            }
        } else if self.manager.listen(service, 1).is_err() {
            return false;
        }
        let state = ConnectionState::Pending;
        let running = Running { attempt, is_active, id, state, is_abandoned: false };
        self.list.insert(service.0, running);
        true
    }

    /// Gives an attempt up, or disconnects, in whatever state it is. The queue pair is not touched any more if `abandons`.
    pub(super) fn end(
        &mut self,
        now: Instant,
        service: u64,
        abandons: bool,
        host: &mut dyn QpControl,
    ) {
        self.manager.unlisten(ServiceId(service));
        let Some(running) = self.list.get_mut(&service) else { return };
        running.is_abandoned |= abandons;
        if let Some(id) = running.id {
            // An error means that it has ended.
            let _ = self.manager.close(now, id);
        }
        if running.state == ConnectionState::Pending {
            // No event follows.
            running.close(host);
        }
    }

    pub(super) fn state(&self, service: u64) -> Option<ConnectionState> {
        self.list.get(&service).map(|running| running.state)
    }

    /// Which process of the machine a datagram belongs to.
    pub(super) fn owner(
        &self,
        received: &ReceivedPacket<'_>,
        is_served: impl FnOnce(ServiceId) -> bool,
    ) -> Owner {
        let from = gid(Ipv4Addr::from(received.ip.source.0));
        self.manager.owner(from, received.packet.payload, false, is_served)
    }

    pub(super) fn handle(&mut self, now: Instant, received: &ReceivedPacket<'_>) {
        let deth = received.packet.extensions.deth;
        if deth.is_some_and(|deth| deth.queue_key == QKey::GENERAL_SERVICES) {
            let from = gid(Ipv4Addr::from(received.ip.source.0));
            // Errors are late or duplicate messages, which are ignored.
            let _ = self.manager.handle_mad(now, from, received.packet.payload);
        }
    }

    /// A packet has arrived at an endpoint for the first time.
    pub(super) fn data_received(&mut self, endpoint: usize) {
        let of_it = |running: &&Running| running.attempt.endpoint == endpoint && !running.is_active;
        if let Some(id) = self.list.values().rfind(of_it).and_then(|running| running.id) {
            // An error means that the connection is already established.
            let _ = self.manager.handle_data_received(id);
        }
    }

    pub(super) fn handle_timeout(&mut self, now: Instant) {
        if self.manager.poll_timeout().is_some_and(|time| time <= now) {
            self.manager.handle_timeout(now);
        }
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.manager.poll_timeout()
    }

    pub(super) fn drain(
        &mut self,
        now: Instant,
        host: &mut dyn QpControl,
        outgoing: &mut VecDeque<OutgoingDatagram>,
    ) {
        while let Some(event) = self.manager.poll_event() {
            self.consume(now, event, host);
        }
        while let Some(transmit) = self.manager.poll_transmit() {
            let IpAddr::V4(to) = transmit.destination.to_ip() else { continue };
            outgoing.push_back(OutgoingDatagram {
                to,
                destination: Qpn::GENERAL_SERVICES,
                source: Qpn::GENERAL_SERVICES,
                queue_key: QKey::GENERAL_SERVICES,
                payload: transmit.to_mad().to_vec(),
            });
        }
    }

    fn consume(&mut self, now: Instant, event: Event, host: &mut dyn QpControl) {
        let Self { manager, list } = self;
        let rejection = Rejection::by_consumer(RejData::default());
        match event {
            Event::Request(id, request) => {
                let running = list.get_mut(&request.service_id.0);
                let waits = |running: &&mut Running| {
                    running.state == ConnectionState::Pending
                        && running.id.is_none()
                        && !running.is_abandoned
                };
                let Some(running) = running.filter(waits) else {
                    let _ = manager.reject(now, id, &rejection);
                    return;
                };
                running.id = Some(id);
                let (number, psn) = (request.remote_qpn, request.starting_psn);
                // The QP is ready before the REP is sent, as in Linux: the first packet may overtake the RTU.
                if !running.connect(number, psn, host) {
                    running.state = ConnectionState::Failed;
                    let _ = manager.reject(now, id, &rejection);
                    return;
                }
                let psn = running.attempt.config.attributes.send_psn.unwrap_or_default();
                let parameters = AcceptParameters {
                    responder_resources: 8,
                    initiator_depth: 8,
                    ..AcceptParameters::new(running.attempt.number, psn)
                };
                let _ = manager.accept(now, id, &parameters);
            }
            Event::Reply(id, reply) => {
                let Some(running) = find(list, id) else { return };
                let (number, psn) = (reply.remote_qpn, reply.starting_psn);
                let is_connected = !running.is_abandoned && running.connect(number, psn, host);
                if is_connected && manager.ready(id, RtuData::default()).is_ok() {
                    running.state = ConnectionState::Established;
                } else {
                    running.state = ConnectionState::Failed;
                    let _ = manager.reject(now, id, &rejection);
                }
            }
            Event::Established(id, _) => {
                if let Some(running) = find(list, id) {
                    running.state = ConnectionState::Established;
                }
            }
            Event::DisconnectRequest(id, _) => {
                let _ = manager.confirm_disconnect(now, id, DrepData::default());
            }
            Event::Rejected(id, _) | Event::Failed(id, _) | Event::Disconnected(id, _) => {
                if let Some(running) = find(list, id) {
                    manager.unlisten(ServiceId(running.attempt.service));
                    running.close(host);
                }
            }
            Event::TimeWaitEnded(id) => {
                let ended = |running: &Running| {
                    running.id == Some(id) && running.state != ConnectionState::Pending
                };
                list.retain(|_, running| !ended(running) || !running.is_abandoned);
            }
            _ => {}
        }
    }
}

fn find(list: &mut BTreeMap<u64, Running>, id: ConnectionId) -> Option<&mut Running> {
    list.values_mut().find(|running| running.id == Some(id))
}

impl Running {
    /// Connects the QP. Returns false if the program has changed its state meanwhile.
    fn connect(
        &mut self,
        number: Qpn,
        psn: ferroce_wire::number::Psn,
        host: &mut dyn QpControl,
    ) -> bool {
        let Attempt { endpoint, peer, config, .. } = &mut self.attempt;
        let mtu = config.settings.port_mtu;
        config.set_peer(number, psn, mtu);
        host.connect(*endpoint, *peer, config)
    }

    /// It has failed, or the connection has ended: then nothing may be sent any more.
    fn close(&mut self, host: &mut dyn QpControl) {
        self.state = match self.state {
            ConnectionState::Pending | ConnectionState::Failed => ConnectionState::Failed,
            _ => ConnectionState::Disconnected,
        };
        if !self.is_abandoned {
            host.close(self.attempt.endpoint);
        }
    }
}
