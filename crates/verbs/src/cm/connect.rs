//! Listening, connecting, accepting, rejecting and disconnecting.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferroce_proto::cm::{
    self as proto, AcceptParameters, DreqData, Rejection, Resolution, ResolveParameters, RtuData,
    private_data, rdmacm_private_data, roce_path,
};
use ferroce_proto::qp::{QueuePairAttributes, ServiceType};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{RejectReason, SidrStatus, Transport};
use ferroce_wire::number::{Hex8, Qpn};
use ferroce_wire::rdmacm::{self, IpHeader, PortSpace};

use super::address::claim;
use super::attributes;
use super::id::CmId;
use super::link::LocalLink;
use super::parameters::ConnectParameters;
use super::state::{Exchange, Stage, State};
use crate::error::{CmError as Error, RouteError};

/// The backlog that 0 selects, as in Linux.
const DEFAULT_BACKLOG: usize = 1024;

/// Returns the RDMA-CM header with the addresses of both sides.
fn ip_header(local: SocketAddr, peer: SocketAddr) -> Result<IpHeader, Error> {
    match (local.ip(), peer.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok(IpHeader::v4(local.port(), from, to)),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ok(IpHeader::v6(local.port(), from, to)),
        _ => Err(RouteError::AddressFamily.into()),
    }
}

/// Returns the flow label that Linux derives from the ports; switches use it for ECMP.
fn flow_label(local: u16, peer: u16) -> u32 {
    (u32::from(local) * 31 + u32::from(peer)) & 0x000f_ffff
}

/// Returns QPN, service and use of an SRQ of the connection's QP.
fn queue_pair_of(
    state: &State,
    parameters: &ConnectParameters,
) -> Result<(Qpn, ServiceType, bool), Error> {
    if let Some(made) = &state.queue_pair {
        return Ok((made.number(), made.service(), made.has_shared_receives()));
    }
    let number = parameters.queue_pair.ok_or(Error::NoQueuePair)?;
    Ok((number, parameters.service, parameters.shared_receives))
}

impl CmId {
    /// Runs a call that sends CM messages in one of these states, and flushes them.
    fn send_in(
        &self,
        stages: &[Stage],
        otherwise: &'static str,
        call: impl FnOnce(&mut State, &LocalLink) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(stages, otherwise)?;
        let local_link = state.local_link()?;
        let result = call(&mut state, &local_link);
        drop(state);
        local_link.adapter().flush();
        result
    }

    /// Listens for requests: [`ConnectRequest`](super::EventKind::ConnectRequest) events follow. Requests beyond the backlog
    /// are dropped, and peers repeat them; 0 selects 1024. An unbound cm_id is bound to all addresses at any free port.
    ///
    /// # Errors
    ///
    /// When the cm_id cannot listen, or its port is taken.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::Idle, Stage::Bound], "only a bound cm_id can listen")?;
        if state.stage == Stage::Idle {
            self.bind_state(&mut state, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        let backlog = if backlog == 0 { DEFAULT_BACKLOG } else { backlog };
        let service = state.service_id;
        if !state.claimed {
            claim(&state.bound, service)?;
            state.claimed = true;
        }
        // The port is claimed, so there is no other listener.
        for local_link in &state.bound {
            local_link.act(|manager, _| {
                if self.port_space() != PortSpace::Udp {
                    let _ = manager.cm.listen(service, backlog);
                }
                if self.port_space() != PortSpace::Tcp {
                    let _ = manager.cm.listen_datagrams(service);
                }
                manager.listeners.insert(service.0, self.shared().handler());
            });
        }
        state.stage = Stage::Listening;
        Ok(())
    }

    /// Requests a connection, or the peer's UD queue pair. [`Established`](super::EventKind::Established),
    /// [`Rejected`](super::EventKind::Rejected), [`Unreachable`](super::EventKind::Unreachable) or
    /// [`ConnectError`](super::EventKind::ConnectError) follows.
    ///
    /// # Errors
    ///
    /// When the route is not resolved, there is no queue pair, or more private data than fits.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, requested: &ConnectParameters) -> Result<(), Error> {
        self.send_in(&[Stage::RouteResolved], "resolve a route first", |state, local_link| {
            let (Some(local), Some(peer)) = (state.local, state.peer) else {
                return Err(Error::NoDevice);
            };
            if self.shared().is_datagram(state) {
                self.request_datagram(state, local_link, [local, peer], requested)?;
            } else {
                self.request_connection(state, local_link, [local, peer], requested)?;
            }
            state.stage = Stage::Connecting;
            Ok(())
        })
    }

    /// Sends a SIDR_REQ for the peer's UD queue pair.
    fn request_datagram(
        &self,
        state: &mut State,
        local_link: &LocalLink,
        [local, peer]: [SocketAddr; 2],
        requested: &ConnectParameters,
    ) -> Result<(), Error> {
        let service = rdmacm::service_id(self.port_space(), peer.port());
        let parameters = ResolveParameters {
            traffic_class: state.traffic_class,
            response_timeout: requested.response_timeout,
            max_retries: requested.max_retries,
            private_data: rdmacm_private_data(&ip_header(local, peer)?, &requested.private_data)?,
            ..ResolveParameters::new(Gid::from_ip(peer.ip()), service)
        };
        let resolution = local_link.act(|manager, now| {
            let resolution = manager.cm.resolve(now, &parameters).ok()?;
            manager.resolutions.insert(resolution, self.shared().handler());
            Some(resolution)
        });
        let resolution = resolution.ok_or(Error::TooMany { what: "SIDR requests" })?;
        state.exchange = Exchange::Resolution(resolution);
        Ok(())
    }

    /// Sends a REQ.
    fn request_connection(
        &self,
        state: &mut State,
        local_link: &LocalLink,
        [local, peer]: [SocketAddr; 2],
        requested: &ConnectParameters,
    ) -> Result<(), Error> {
        let private_data = rdmacm_private_data(&ip_header(local, peer)?, &requested.private_data)?;
        let (number, service, shared_receive_queue) = queue_pair_of(state, requested)?;
        let transport = match service {
            ServiceType::ReliableConnection => Transport::Rc,
            ServiceType::UnreliableConnection => Transport::Uc,
            ServiceType::XrcInitiator => Transport::Xrc,
            _ => return Err(Error::Service { space: self.port_space() }),
        };
        let [from, to] = [local, peer].map(|address| Gid::from_ip(address.ip()));
        let mut path = roce_path(from, to, flow_label(local.port(), peer.port()));
        path.traffic_class = Hex8(state.traffic_class);
        if let Some(route) = state.route {
            (path.flow_label, path.hop_limit) = (route.flow_label, route.hop_limit);
        }
        // IBA 12.7.34: the round-trip time, and our ACK delay.
        path.ack_timeout = attributes::ack_timeout(requested.ack_timeout, proto::Config::ACK_DELAY);
        let max = local_link.context.limits().max_rd_atomic;
        let responder_resources = requested.responder_resources.min(max);
        let initiator_depth = requested.initiator_depth.min(max);
        let receive_psn = attributes::random_psn();
        state.negotiated = QueuePairAttributes {
            receive_psn: Some(receive_psn),
            path: Some(attributes::vector(local_link.source_index(), &path)),
            path_mtu: Some(state.path_mtu),
            max_dest_rd_atomic: Some(responder_resources),
            max_rd_atomic: Some(initiator_depth),
            timeout: Some(requested.ack_timeout),
            retry_count: Some(requested.retry_count),
            min_rnr_timer: Some(requested.min_rnr_timer),
            ..QueuePairAttributes::default()
        };
        let id = rdmacm::service_id(self.port_space(), peer.port());
        let parameters = proto::ConnectParameters {
            transport,
            path_mtu: state.path_mtu,
            responder_resources,
            initiator_depth,
            retry_count: requested.retry_count,
            rnr_retry_count: requested.rnr_retry,
            end_to_end_flow_control: requested.flow_control,
            shared_receive_queue,
            local_response_timeout: requested.response_timeout,
            remote_response_timeout: requested.response_timeout,
            max_cm_retries: requested.max_retries,
            private_data,
            enhancements: requested.enhancements,
            ..proto::ConnectParameters::new(id, number, receive_psn, path)
        };
        let connection = local_link.act(|manager, now| {
            let connection = manager.cm.connect(now, &parameters).ok()?;
            manager.connections.insert(connection, self.shared().handler());
            Some(connection)
        });
        let connection = connection.ok_or(Error::TooMany { what: "connections" })?;
        (state.service, state.exchange) = (Some(service), Exchange::Connection(connection));
        Ok(())
    }

    /// Accepts a request. The QP is in RTS before the REP is sent; [`Established`](super::EventKind::Established) follows on
    /// the peer's RTU. For UD no event follows.
    ///
    /// # Errors
    ///
    /// When there is no pending request or no QP, or the private data is too long.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, response: &ConnectParameters) -> Result<(), Error> {
        let reason = "there is no request to accept";
        self.send_in(&[Stage::Requested], reason, |state, local_link| {
            let (number, service, shared_receive_queue) = queue_pair_of(state, response)?;
            match state.exchange {
                Exchange::Query(query) => {
                    let key = state.queue_pair.as_ref().map(|made| {
                        made.attributes().queue_key.unwrap_or(super::DATAGRAM_QUEUE_KEY)
                    });
                    let data = private_data(&response.private_data)?;
                    let valid = Resolution::valid(number, key.unwrap_or(response.queue_key), data);
                    let answered = local_link.act(|manager, _| manager.cm.answer(query, &valid));
                    answered.map_err(|_| Error::PeerGaveUp)?;
                    state.stage = Stage::Connected;
                }
                Exchange::Connection(connection) => {
                    let max = local_link.context.limits().max_rd_atomic;
                    let negotiated = &mut state.negotiated;
                    attributes::limit(
                        negotiated,
                        response.responder_resources.min(max),
                        response.initiator_depth.min(max),
                    );
                    negotiated.min_rnr_timer = Some(response.min_rnr_timer);
                    let parameters = AcceptParameters {
                        responder_resources: negotiated.max_dest_rd_atomic.unwrap_or(0),
                        initiator_depth: negotiated.max_rd_atomic.unwrap_or(0),
                        end_to_end_flow_control: response.flow_control,
                        rnr_retry_count: response.rnr_retry,
                        shared_receive_queue,
                        private_data: private_data(&response.private_data)?,
                        enhancements: response.enhancements,
                        ..AcceptParameters::new(number, negotiated.receive_psn.unwrap_or_default())
                    };
                    state.service = Some(service);
                    if let Some(queue_pair) = &state.queue_pair {
                        attributes::bring_up(&state.negotiated, queue_pair)?;
                    }
                    let accepted = local_link
                        .act(|manager, now| manager.cm.accept(now, connection, &parameters));
                    if accepted.is_err() {
                        attributes::fail(state.queue_pair.as_ref());
                        return Err(Error::PeerGaveUp);
                    }
                    state.stage = Stage::Accepting;
                }
                _ => return Err(Error::WrongState { reason }),
            }
            Ok(())
        })
    }

    /// Rejects a request, with up to 148 bytes of private data, 136 for UD.
    ///
    /// # Errors
    ///
    /// When there is no pending request, or the private data is too long.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, data: &[u8]) -> Result<(), Error> {
        self.reject_for(RejectReason::CONSUMER_REJECT, data)
    }

    /// Rejects a request for a given reason, such as unsupported ECE options. UD has one reason only.
    ///
    /// # Errors
    ///
    /// As [`CmId::reject`].
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_for(&self, reason: RejectReason, data: &[u8]) -> Result<(), Error> {
        let stages = [Stage::Requested, Stage::Responded];
        self.send_in(&stages, "there is no request to reject", |state, local_link| {
            let done = match state.exchange {
                Exchange::Query(query) => {
                    let private_data = private_data(data)?;
                    let refused = Resolution::refused(SidrStatus::REJECTED);
                    let refused = Resolution { private_data, ..refused };
                    local_link.act(|manager, _| manager.cm.answer(query, &refused))
                }
                Exchange::Connection(connection) => {
                    let private_data = private_data(data)?;
                    let rejection = Rejection { private_data, ..Rejection::new(reason) };
                    local_link.act(|manager, now| manager.cm.reject(now, connection, &rejection))
                }
                _ => return Err(Error::WrongState { reason: "there is no request to reject" }),
            };
            state.stage = Stage::Over;
            done.map_err(|_| Error::PeerGaveUp)
        })
    }

    /// Confirms that a QP which the cm_id did not create is in RTS, after
    /// [`ConnectResponse`](super::EventKind::ConnectResponse): sends the RTU.
    ///
    /// # Errors
    ///
    /// When there is no response, or the peer has given up.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        let otherwise = "the peer has not accepted";
        self.send_in(&[Stage::Responded], otherwise, |state, local_link| {
            let connection = state.connection(otherwise)?;
            let ready =
                local_link.act(|manager, _| manager.cm.ready(connection, RtuData::default()));
            ready.map_err(|_| Error::PeerGaveUp)?;
            state.stage = Stage::Connected;
            local_link.manager().watch_peer(connection);
            Ok(())
        })
    }

    /// Reports that data arrived before the peer's RTU: the connection is established, and
    /// [`Established`](super::EventKind::Established) follows.
    ///
    /// # Errors
    ///
    /// When no connection waits for an RTU.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<(), Error> {
        let reason = "no connection waits for the peer's RTU";
        let state = self.state();
        state.expect(&[Stage::Accepting], reason)?;
        let (connection, local_link) = (state.connection(reason)?, state.local_link()?);
        local_link
            .act(|manager, _| manager.cm.handle_data_received(connection))
            .map_err(|_| Error::WrongState { reason })?;
        drop(state);
        let link = local_link.manager();
        link.connections.deliver_events(link.transport);
        Ok(())
    }

    /// Disconnects. The QP is in the error state afterwards; [`Disconnected`](super::EventKind::Disconnected) follows when the
    /// peer has confirmed or timed out. On a connection that has ended it does nothing.
    ///
    /// # Errors
    ///
    /// When there is no connection.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        // The peer's RTU may be late or lost: a program that has received its data need not wait for it.
        if self.state().stage == Stage::Accepting {
            let _ = self.notify_established();
        }
        let stages = [Stage::Connected, Stage::Disconnecting, Stage::Over];
        self.send_in(&stages, "the cm_id is not connected", |state, local_link| {
            if state.stage != Stage::Connected {
                return Ok(());
            }
            let connection = state.connection("UD has no connections")?;
            attributes::fail(state.queue_pair.as_ref());
            // If the peer has just disconnected, its event is pending.
            let _ = local_link
                .act(|manager, now| manager.cm.disconnect(now, connection, DreqData::default()));
            state.stage = Stage::Disconnecting;
            Ok(())
        })
    }

    /// Whether a request of a peer is pending.
    pub fn is_requested(&self) -> bool {
        self.state().stage == Stage::Requested
    }

    /// Whether the connection is established.
    pub fn is_connected(&self) -> bool {
        self.state().stage == Stage::Connected
    }
}

#[cfg(test)]
mod tests {
    use super::flow_label;

    /// From a captured REQ of rping.
    #[test]
    fn the_flow_label_equals_that_of_linux() {
        assert_eq!(flow_label(38831, 7174), 0x2_7a37);
    }
}
