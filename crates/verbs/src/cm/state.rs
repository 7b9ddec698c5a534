//! The state of a cm_id.

use std::net::SocketAddr;

use ferroce_proto::cm::{ConnectionId, QueryId, ResolutionId};
use ferroce_proto::qp::{PathMtu, QueuePairAttributes, ServiceType};
use ferroce_wire::address::Gid;
use ferroce_wire::cm::{ServiceId, SidrStatus};

use super::attributes;
use super::link::LocalLink;
use super::parameters::Route;
use crate::error::CmError as Error;
use crate::queue_pair::QueuePair;

/// The state of a cm_id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Stage {
    #[default]
    Idle,
    Bound,
    Listening,
    /// Waits for the neighbour entry of the next hop.
    Resolving,
    AddressResolved,
    RouteResolved,
    /// REQ or SIDR_REQ was sent.
    Connecting,
    /// REP was received, and the program modifies its own QP.
    Responded,
    /// A request of the peer is pending.
    Requested,
    /// REP was sent.
    Accepting,
    Connected,
    Disconnecting,
    /// The connection failed or has ended.
    Over,
}

/// The CM exchange of a cm_id with its peer.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Exchange {
    #[default]
    Nothing,
    Connection(ConnectionId),
    Resolution(ResolutionId),
    Query(QueryId),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) stage: Stage,
    /// The program has dropped the cm_id.
    pub(super) closed: bool,
    /// The links on which the port is claimed, or will be when the cm_id listens.
    pub(super) bound: Vec<LocalLink>,
    /// The port is claimed.
    pub(super) claimed: bool,
    /// The port is shared with other cm_ids until one of them listens (`RDMA_OPTION_ID_REUSEADDR`).
    pub(super) shares_port: bool,
    /// The unspecified IPv6 address does not cover IPv4 (`RDMA_OPTION_ID_AFONLY`).
    pub(super) one_family: bool,
    /// The service ID of the port.
    pub(super) service_id: ServiceId,
    /// The device and local address.
    pub(super) local_link: Option<LocalLink>,
    pub(super) local: Option<SocketAddr>,
    pub(super) peer: Option<SocketAddr>,
    pub(super) traffic_class: u8,
    pub(super) path_mtu: PathMtu,
    /// The route that the program has set.
    pub(super) route: Option<Route>,
    pub(super) queue_pair: Option<QueuePair>,
    /// The service of the QP, once it is known.
    pub(super) service: Option<ServiceType>,
    pub(super) exchange: Exchange,
    /// The attributes of the QP that the peers have agreed on so far.
    pub(super) negotiated: QueuePairAttributes,
    pub(super) groups: Vec<Gid>,
}

impl State {
    pub(super) fn expect(&self, stages: &[Stage], otherwise: &'static str) -> Result<(), Error> {
        match stages.contains(&self.stage) {
            true => Ok(()),
            false => Err(Error::WrongState { reason: otherwise }),
        }
    }

    pub(super) fn connection(&self, otherwise: &'static str) -> Result<ConnectionId, Error> {
        match self.exchange {
            Exchange::Connection(connection) => Ok(connection),
            _ => Err(Error::WrongState { reason: otherwise }),
        }
    }

    /// Returns the service of the connection.
    pub(super) fn service(&self) -> ServiceType {
        let made = self.queue_pair.as_ref().map(QueuePair::service);
        made.or(self.service).unwrap_or(ServiceType::ReliableConnection)
    }

    pub(super) fn local_link(&self) -> Result<LocalLink, Error> {
        self.local_link.clone().ok_or(Error::NoDevice)
    }

    /// Ends the exchange with the peer, and releases the port.
    pub(super) fn end(self) {
        if let Some(queue_pair) = &self.queue_pair {
            for group in &self.groups {
                queue_pair.detach(*group);
            }
        }
        let active = matches!(
            self.stage,
            Stage::Connecting | Stage::Responded | Stage::Accepting | Stage::Connected
        );
        if let (Exchange::Connection(_), true) = (self.exchange, active) {
            attributes::fail(self.queue_pair.as_ref());
        }
        if let Some(local_link) = &self.local_link {
            let unanswered = self.stage == Stage::Requested;
            local_link.act(|manager, now| match self.exchange {
                Exchange::Connection(connection) => manager.drop_connection(now, connection),
                Exchange::Resolution(resolution) => {
                    manager.resolutions.remove(&resolution);
                    manager.cm.cancel_resolution(resolution);
                }
                Exchange::Query(query) if unanswered => {
                    manager.drop_query(query, SidrStatus::REJECTED);
                }
                Exchange::Nothing | Exchange::Query(_) => {}
            });
        }
        self.release();
    }

    /// Releases the port.
    pub(super) fn release(&self) {
        for local_link in &self.bound {
            // Both under the manager's lock, so that a request finds either the listener or none.
            local_link.act(|manager, _| {
                if self.stage == Stage::Listening {
                    manager.cm.unlisten(self.service_id);
                    manager.cm.unlisten_datagrams(self.service_id);
                    manager.listeners.remove(&self.service_id.0);
                }
                if self.claimed {
                    local_link.release(self.service_id);
                }
            });
        }
    }
}
