//! Discovery: searching for servers, and responding to searches.

use std::net::{Ipv4Addr, Ipv6Addr};
use std::sync::Arc;
use std::time::Duration;

use ferroce_proto::qp::{QueuePairAttributes, ServiceType, State};
use ferroce_proto::setup::{
    Discovery, DiscoveryConfig, DiscoveryEvent, Responder, Server, ServerConfig,
};
use ferroce_wire::address::Gid;
use ferroce_wire::number::QKey;
use ferroce_wire::setup::{PeerId, TransactionId};

use super::{CAPABILITIES, Handle, present};
use crate::context::Context;
use crate::engine::Machine;
use crate::error::{SetupExchangeError as Error, SystemError, WaitError};
use crate::event_queue::EventQueue;
use crate::queue_pair::{QueuePair, QueuePairOptions};
use crate::time::now;
use ferroce_sys::random::number as random;

/// The IPv4 discovery group: site-local (RFC 2365), with RoCE's port in its last two bytes.
pub const GROUP_V4: Ipv4Addr = Ipv4Addr::new(239, 255, 0x12, 0xb7);

/// The IPv6 discovery group: link-local, "FeSU".
pub const GROUP_V6: Ipv6Addr = Ipv6Addr::new(0xff02, 0, 0, 0, 0, 0, 0x4665, 0x5355);

/// A search for servers.
#[derive(Debug)]
pub struct Search {
    handle: Handle,
    events: Arc<EventQueue<DiscoveryEvent>>,
}

impl Search {
    /// Queries the servers of these addresses, each from the GID of an index; without addresses, all servers on the
    /// networks of the device. The search ends after `duration`.
    ///
    /// # Errors
    ///
    /// When there is no route from a GID to its address.
    pub fn begin(
        context: &Context,
        targets: &[(u8, Gid)],
        duration: Duration,
    ) -> Result<Self, Error> {
        let adapter = context.adapter();
        let mut targets = targets.to_vec();
        if targets.is_empty() {
            let gids = context.device().gids();
            targets.extend(gids.iter().zip(0..).map(|(own, index)| (index, group(own.gid))));
        }
        for &(link, target) in &targets {
            adapter.mads().route_to(link, target)?;
        }
        let exchange = adapter.management.exchanges.new_exchange();
        let mut config = DiscoveryConfig {
            id: PeerId(std::process::id()),
            capabilities: CAPABILITIES,
            duration,
            ..DiscoveryConfig::new(exchange, TransactionId(random() as u32))
        };
        // All copies are sent in the first half, so that the last can be answered.
        config.retry.first = config.retry.first.min(duration / 4);
        let discovery = Discovery::new(config, now());
        let queue = Arc::new(EventQueue::new()?);
        let events = Arc::clone(&queue);
        let machine = Machine::Search { exchange, discovery, targets, events };
        Ok(Self { handle: Handle::new(context, machine)?, events: queue })
    }

    /// Waits for the next responder; returns `None` at the end of the search.
    ///
    /// # Errors
    ///
    /// When the wait fails.
    pub fn wait(&self) -> Result<Option<Responder>, WaitError> {
        self.handle.context.adapter().signals.stop_polling();
        match self.events.wait(None)? {
            Some(DiscoveryEvent::Found(responder)) => Ok(Some(responder)),
            Some(DiscoveryEvent::Finished) | None => Ok(None),
        }
    }
}

fn group(own: Gid) -> Gid {
    Gid::from_ip(if own.to_ip().is_ipv4() { GROUP_V4.into() } else { GROUP_V6.into() })
}

/// Responds to searches on all addresses of a device, until it is dropped. On addresses with a [`Server`](super::Server),
/// that responds.
#[derive(Debug)]
pub struct Presence {
    /// The addresses that it responds on.
    served: Vec<Handle>,
    /// A member of the discovery groups, so that this process receives their packets.
    _listener: Option<QueuePair>,
}

impl Presence {
    /// Starts to respond.
    ///
    /// # Errors
    ///
    /// When the system refuses a socket. Without multicast, only searches by address are possible.
    pub fn new(context: &Context) -> Result<Self, SystemError> {
        let mut presence = Self { served: Vec::new(), _listener: listener(context) };
        for link in 0..context.adapter().port.links.len() as u8 {
            let server = Server::new(ServerConfig::new(present(context)));
            match Handle::new(context, Machine::Server { link, server, events: None }) {
                Ok(handle) => presence.served.push(handle),
                Err(SystemError::ServiceTaken { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(presence)
    }

    /// Returns the number of addresses it responds on.
    pub fn addresses(&self) -> usize {
        self.served.len()
    }
}

/// Creates a QP in the discovery groups, if the network has multicast.
pub(super) fn listener(context: &Context) -> Option<QueuePair> {
    let pd = context.protection_domain();
    let completions = context.completion_queue(1, None).ok()?;
    let options = QueuePairOptions::new(ServiceType::UnreliableDatagram, &completions);
    let queue_pair = pd.queue_pair(&options).ok()?;
    let all = QueuePairAttributes {
        partition: Some(0),
        port: Some(1),
        queue_key: Some(QKey(random() as u32 & 0x7fff_ffff)),
        ..QueuePairAttributes::default()
    };
    queue_pair.enter(State::Init, &all).ok()?;
    let mut groups: Vec<_> = context.device().gids().iter().map(|own| group(own.gid)).collect();
    groups.sort_unstable();
    groups.dedup();
    // One address family may have no multicast.
    let joined = groups.into_iter().map(|group| queue_pair.attach(group)).filter(Result::is_ok);
    (joined.count() > 0).then_some(queue_pair)
}
