//! Connections made, answered and ended.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use ferroce_proto::cm::{
    self as proto, AcceptParameters, DreqData, Rejection, Resolution, ResolveParameters, RtuData,
    private_data, rdmacm_private_data, roce_path,
};
use ferroce_proto::qp::ServiceType;
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{RejectReason, SidrStatus, Transport};
use ferroce_wire::number::{Hex8, Psn, Qpn};
use ferroce_wire::rdmacm::{self, IpHeader, PortSpace};

use super::address::claim;
use super::attributes::{self, Facts};
use super::id::{CmId, Exchange, Place, Stage, State};
use super::parameters::ConnectParameters;
use crate::error::CmError as Error;
use crate::queue_pair::QueuePair;
use ferroce_sys::random::number as random;

/// What a backlog of 0 stands for, as in Linux.
const BACKLOG: usize = 1024;

/// A first PSN that a stranger cannot guess.
pub(super) fn random_psn() -> Psn {
    Psn(random() as u32 & 0x00ff_ffff)
}

/// The header that tells the peer our addresses.
fn ip_header(local: SocketAddr, peer: SocketAddr) -> Result<IpHeader, Error> {
    match (local.ip(), peer.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => Ok(IpHeader::v4(local.port(), from, to)),
        (IpAddr::V6(from), IpAddr::V6(to)) => Ok(IpHeader::v6(local.port(), from, to)),
        _ => Err(Error::AddressFamily),
    }
}

/// The flow label that Linux makes of the ports, from which switches choose among equal paths.
fn flow_label(local: u16, peer: u16) -> u32 {
    (u32::from(local) * 31 + u32::from(peer)) & 0x000f_ffff
}

/// The queue pair that the messages name: its number, its service, and whether it receives from a shared queue.
fn named(state: &State, parameters: &ConnectParameters) -> Result<(Qpn, ServiceType, bool), Error> {
    if let Some(made) = &state.queue_pair {
        return Ok((made.number(), made.service(), made.has_shared_receives()));
    }
    let number = parameters.queue_pair.ok_or(Error::NoQueuePair)?;
    Ok((number, parameters.service, parameters.shared_receives))
}

impl CmId {
    /// Says something to the peer. It has been said when this returns.
    fn say(&self, call: impl FnOnce(&mut State) -> Result<(), Error>) -> Result<(), Error> {
        let (said, place) = {
            let mut state = self.state();
            (call(&mut state), state.place.clone())
        };
        if let Some(place) = place {
            place.adapter().flush_outbox();
        }
        said
    }

    /// Takes requests for its port: [`ConnectRequest`](super::EventKind::ConnectRequest)s follow. When as many as the
    /// backlog are not answered, peers have to ask again; 0 stands for 1024. An id without address is bound to all of
    /// them, at any port.
    ///
    /// # Errors
    ///
    /// When the id is none that could listen, or its port cannot be had.
    #[doc(alias = "rdma_listen")]
    pub fn listen(&self, backlog: usize) -> Result<(), Error> {
        let mut state = self.state();
        state.expect(&[Stage::Idle, Stage::Bound], "only an id that is bound can listen")?;
        if state.stage == Stage::Idle {
            self.bind_state(&mut state, SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0))?;
        }
        let backlog = if backlog == 0 { BACKLOG } else { backlog };
        let service = state.service_id;
        if !state.claimed {
            claim(&state.bound, service)?;
            state.claimed = true;
        }
        let connections = self.port_space() != PortSpace::Udp;
        let datagrams = self.port_space() != PortSpace::Tcp;
        // The port is claimed, so nobody listens there but us.
        for place in &state.bound {
            place.act(|manager, _| {
                if connections {
                    let _ = manager.cm.listen(service, backlog);
                }
                if datagrams {
                    let _ = manager.cm.listen_datagrams(service);
                }
                manager.listeners.insert(service.0, self.shared().handler());
            })?;
        }
        state.stage = Stage::Listening;
        Ok(())
    }

    /// Asks the peer for a connection, or for its datagram queue pair. [`Established`](super::EventKind::Established),
    /// [`Rejected`](super::EventKind::Rejected), [`Unreachable`](super::EventKind::Unreachable) or
    /// [`ConnectError`](super::EventKind::ConnectError) follows.
    ///
    /// # Errors
    ///
    /// When the route is not resolved, there is no queue pair, or more private data than fits.
    #[doc(alias = "rdma_connect")]
    pub fn connect(&self, wish: &ConnectParameters) -> Result<(), Error> {
        self.say(|state| self.connect_now(state, wish))
    }

    fn connect_now(&self, state: &mut State, wish: &ConnectParameters) -> Result<(), Error> {
        state.expect(&[Stage::RouteResolved], "resolve a route first")?;
        let place = state.place()?;
        let (Some(local), Some(peer)) = (state.local, state.peer) else {
            return Err(Error::NoDevice);
        };
        let header = ip_header(local, peer)?;
        if self.shared().is_datagram(state) {
            self.ask(state, &place, peer, &header, wish)?;
        } else {
            self.request(state, &place, (local, peer), &header, wish)?;
        }
        state.stage = Stage::Connecting;
        Ok(())
    }

    /// Asks for a datagram queue pair.
    fn ask(
        &self,
        state: &mut State,
        place: &Place,
        peer: SocketAddr,
        header: &IpHeader,
        wish: &ConnectParameters,
    ) -> Result<(), Error> {
        let service = rdmacm::service_id(self.port_space(), peer.port());
        let parameters = ResolveParameters {
            traffic_class: state.traffic_class,
            response_timeout: wish.response_timeout,
            max_retries: wish.max_retries,
            private_data: rdmacm_private_data(header, &wish.private_data)?,
            ..ResolveParameters::new(Gid::from_ip(peer.ip()), service)
        };
        let question = place.act(|manager, now| {
            let question = manager.cm.resolve(now, &parameters).ok()?;
            manager.resolutions.insert(question, self.shared().handler());
            Some(question)
        })?;
        let question = question.ok_or(Error::TooMany { what: "SIDR requests" })?;
        state.exchange = Exchange::Question(question);
        Ok(())
    }

    /// Asks for a connection.
    fn request(
        &self,
        state: &mut State,
        place: &Place,
        (local, peer): (SocketAddr, SocketAddr),
        header: &IpHeader,
        wish: &ConnectParameters,
    ) -> Result<(), Error> {
        let (number, service, shared_receive_queue) = named(state, wish)?;
        let transport = match service {
            ServiceType::ReliableConnection => Transport::Rc,
            ServiceType::UnreliableConnection => Transport::Uc,
            ServiceType::XrcInitiator => Transport::Xrc,
            _ => return Err(Error::Service { space: self.port_space() }),
        };
        let [from, to] = [local, peer].map(|one| Gid::from_ip(one.ip()));
        let mut path = roce_path(from, to, flow_label(local.port(), peer.port()));
        path.traffic_class = Hex8(state.traffic_class);
        if let Some(route) = state.route {
            (path.flow_label, path.hop_limit) = (route.flow_label, route.hop_limit);
        }
        // IBA 12.7.34: the way there and back, and what our side takes to acknowledge.
        path.ack_timeout = attributes::ack_timeout(wish.ack_timeout, proto::Config::ACK_DELAY);
        let most = place.context.limits().max_rd_atomic;
        let mut facts =
            Facts::of_wish(attributes::vector(place.source_index(), &path), state.path_mtu, wish);
        facts.receive_psn = random_psn();
        facts.responder_resources = facts.responder_resources.min(most);
        facts.initiator_depth = facts.initiator_depth.min(most);
        let id = rdmacm::service_id(self.port_space(), peer.port());
        let parameters = proto::ConnectParameters {
            transport,
            path_mtu: state.path_mtu,
            responder_resources: facts.responder_resources,
            initiator_depth: facts.initiator_depth,
            retry_count: wish.retry_count,
            rnr_retry_count: wish.rnr_retry,
            end_to_end_flow_control: wish.flow_control,
            shared_receive_queue,
            local_response_timeout: wish.response_timeout,
            remote_response_timeout: wish.response_timeout,
            max_cm_retries: wish.max_retries,
            private_data: rdmacm_private_data(header, &wish.private_data)?,
            enhancements: wish.enhancements,
            ..proto::ConnectParameters::new(id, number, facts.receive_psn, path)
        };
        let connection = place.act(|manager, now| {
            let connection = manager.cm.connect(now, &parameters).ok()?;
            manager.connections.insert(connection, self.shared().handler());
            Some(connection)
        })?;
        let connection = connection.ok_or(Error::TooMany { what: "connections" })?;
        (state.facts, state.service) = (facts, Some(service));
        state.exchange = Exchange::Connection(connection);
        Ok(())
    }

    /// Accepts a peer's request. The queue pair is brought up before the answer leaves;
    /// [`Established`](super::EventKind::Established) follows when the peer is ready. With datagrams nothing follows.
    ///
    /// # Errors
    ///
    /// When there is no request, or none any more; when there is no queue pair, or more private data than fits.
    #[doc(alias = "rdma_accept")]
    pub fn accept(&self, answer: &ConnectParameters) -> Result<(), Error> {
        self.say(|state| self.accept_now(state, answer))
    }

    fn accept_now(&self, state: &mut State, answer: &ConnectParameters) -> Result<(), Error> {
        state.expect(&[Stage::Requested], "there is no request to accept")?;
        let place = state.place()?;
        let (number, service, shared_receive_queue) = named(state, answer)?;
        match state.exchange {
            Exchange::Query(query) => {
                let key = state.queue_pair.as_ref().map(attributes::queue_key);
                let data = private_data(&answer.private_data)?;
                let valid = Resolution::valid(number, key.unwrap_or(answer.queue_key), data);
                place
                    .act(|manager, _| manager.cm.answer(query, &valid))?
                    .map_err(|_| Error::PeerGaveUp)?;
                state.stage = Stage::Connected;
            }
            Exchange::Connection(connection) => {
                let most = place.context.limits().max_rd_atomic;
                let facts = &mut state.facts;
                for (agreed, wanted) in [
                    (&mut facts.responder_resources, answer.responder_resources),
                    (&mut facts.initiator_depth, answer.initiator_depth),
                ] {
                    *agreed = (*agreed).min(wanted).min(most);
                }
                facts.min_rnr_timer = answer.min_rnr_timer;
                let facts = state.facts;
                let parameters = AcceptParameters {
                    responder_resources: facts.responder_resources,
                    initiator_depth: facts.initiator_depth,
                    end_to_end_flow_control: answer.flow_control,
                    rnr_retry_count: answer.rnr_retry,
                    shared_receive_queue,
                    private_data: private_data(&answer.private_data)?,
                    enhancements: answer.enhancements,
                    ..AcceptParameters::new(number, facts.receive_psn)
                };
                state.service = Some(service);
                if let Some(queue_pair) = &state.queue_pair {
                    facts.bring_up(queue_pair)?;
                }
                let accepted =
                    place.act(|manager, now| manager.cm.accept(now, connection, &parameters))?;
                if accepted.is_err() {
                    attributes::fail(state.queue_pair.as_ref());
                    return Err(Error::PeerGaveUp);
                }
                state.stage = Stage::Accepting;
            }
            _ => return Err(Error::WrongState { reason: "there is no request to accept" }),
        }
        Ok(())
    }

    /// Says no to a peer's request, with up to 148 bytes for its program, 136 for datagrams.
    ///
    /// # Errors
    ///
    /// When there is no request, or none any more, or more private data than fits.
    #[doc(alias = "rdma_reject")]
    pub fn reject(&self, data: &[u8]) -> Result<(), Error> {
        self.reject_for(RejectReason::CONSUMER_REJECT, data)
    }

    /// The same, for another reason than the program's own: a vendor's enhancements that it cannot do. Datagrams have
    /// one reason only.
    ///
    /// # Errors
    ///
    /// As [`CmId::reject`].
    #[doc(alias = "rdma_reject_ece")]
    pub fn reject_for(&self, reason: RejectReason, data: &[u8]) -> Result<(), Error> {
        self.say(|state| self.reject_for_now(state, reason, data))
    }

    fn reject_for_now(
        &self,
        state: &mut State,
        reason: RejectReason,
        data: &[u8],
    ) -> Result<(), Error> {
        let stages = [Stage::Requested, Stage::Responded];
        state.expect(&stages, "there is no request to reject")?;
        let place = state.place()?;
        let done = match state.exchange {
            Exchange::Query(query) => {
                let private_data = private_data(data)?;
                let refused = Resolution::refused(SidrStatus::REJECTED);
                let refused = Resolution { private_data, ..refused };
                place.act(|manager, _| manager.cm.answer(query, &refused))?
            }
            Exchange::Connection(connection) => {
                let private_data = private_data(data)?;
                let rejection = Rejection { private_data, ..Rejection::new(reason) };
                place.act(|manager, now| manager.cm.reject(now, connection, &rejection))?
            }
            _ => return Err(Error::WrongState { reason: "there is no request to reject" }),
        };
        state.stage = Stage::Over;
        done.map_err(|_| Error::PeerGaveUp)
    }

    /// Says that a queue pair of the program's own is up, after [`ConnectResponse`](super::EventKind::ConnectResponse).
    ///
    /// # Errors
    ///
    /// When there is no response, or the peer has given up.
    #[doc(alias = "rdma_establish")]
    pub fn establish(&self) -> Result<(), Error> {
        self.say(|state| self.establish_now(state))
    }

    fn establish_now(&self, state: &mut State) -> Result<(), Error> {
        state.expect(&[Stage::Responded], "the peer has not accepted")?;
        let Exchange::Connection(connection) = state.exchange else {
            return Err(Error::WrongState { reason: "the peer has not accepted" });
        };
        let ready = |manager: &mut crate::engine::Manager, _| {
            manager.cm.ready(connection, RtuData::default())
        };
        let place = state.place()?;
        place.act(ready)?.map_err(|_| Error::PeerGaveUp)?;
        state.stage = Stage::Connected;
        place.connections().watch_peer(place.adapter(), place.link, connection);
        Ok(())
    }

    /// Says that data came from a peer whose "ready" did not: the connection is up, and
    /// [`Established`](super::EventKind::Established) follows.
    ///
    /// # Errors
    ///
    /// When no connection waits for it.
    #[doc(alias = "rdma_notify")]
    pub fn notify_established(&self) -> Result<(), Error> {
        let place = {
            let state = self.state();
            state.expect(&[Stage::Accepting], "no connection waits for its peer")?;
            let Exchange::Connection(connection) = state.exchange else {
                return Err(Error::WrongState { reason: "no connection waits for its peer" });
            };
            let place = state.place()?;
            place
                .act(|manager, _| manager.cm.handle_data_received(connection))?
                .map_err(|_| Error::WrongState { reason: "no connection waits for its peer" })?;
            place
        };
        place.connections().deliver_events(place.adapter());
        Ok(())
    }

    /// Ends the connection. The queue pair is in error when this returns; [`Disconnected`](super::EventKind::Disconnected)
    /// follows when the peer knows, or does not answer. A connection that is over stays so.
    ///
    /// # Errors
    ///
    /// When there is no connection.
    #[doc(alias = "rdma_disconnect")]
    pub fn disconnect(&self) -> Result<(), Error> {
        // The peer's "ready" may be late, or lost: who has its data, and is through with it, need not wait for that.
        if self.state().stage == Stage::Accepting {
            let _ = self.notify_established();
        }
        self.say(Self::disconnect_now)
    }

    fn disconnect_now(state: &mut State) -> Result<(), Error> {
        if matches!(state.stage, Stage::Disconnecting | Stage::Over) {
            return Ok(());
        }
        state.expect(&[Stage::Connected], "the id is not connected")?;
        let Exchange::Connection(connection) = state.exchange else {
            return Err(Error::WrongState { reason: "datagrams have no connection" });
        };
        attributes::fail(state.queue_pair.as_ref());
        let place = state.place()?;
        // One that the peer has just ended is over, and its event is on the way.
        let _ = place
            .act(|manager, now| manager.cm.disconnect(now, connection, DreqData::default()))?;
        state.stage = Stage::Disconnecting;
        Ok(())
    }

    /// Whether a peer's request waits for an answer.
    pub fn is_requested(&self) -> bool {
        self.state().stage == Stage::Requested
    }

    /// Whether the connection is up.
    pub fn is_connected(&self) -> bool {
        self.state().stage == Stage::Connected
    }
}

/// Its queue pair is up, and the first packet is no news any more.
pub(super) fn set_established(queue_pair: Option<&QueuePair>) {
    if let Some(queue_pair) = queue_pair {
        queue_pair.set_established();
    }
}

#[cfg(test)]
mod tests {
    use super::flow_label;

    /// As in a REQ of rping's that was captured.
    #[test]
    fn the_flow_label_is_that_of_linux() {
        assert_eq!(flow_label(38831, 7174), 0x2_7a37);
    }
}
