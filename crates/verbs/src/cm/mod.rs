//! The connection manager (CM): connections by IP address and port, as librdmacm makes them.
//!
//! A [`CmId`] is an end of a connection, or a listener. An [`EventChannel`] delivers its events:
//!
//! | active side | event | passive side | event |
//! |---|---|---|---|
//! | [`CmId::resolve_address`] | [`EventKind::AddressResolved`] | [`CmId::bind`] | |
//! | [`CmId::resolve_route`] | [`EventKind::RouteResolved`] | [`CmId::listen`] | |
//! | [`CmId::create_queue_pair`], [`CmId::connect`] | | | [`EventKind::ConnectRequest`] |
//! | | | [`CmId::create_queue_pair`] and [`CmId::accept`] of the new cm_id | |
//! | | [`EventKind::Established`] | | [`EventKind::Established`] |
//! | [`CmId::disconnect`], on either side | [`EventKind::Disconnected`] | | [`EventKind::Disconnected`] |
//! | | [`EventKind::TimewaitExit`] | | [`EventKind::TimewaitExit`] |
//!
//! [`CmId::resolve`], [`CmId::connect_blocking`], [`EventChannel::wait_request`] and [`CmId::wait_disconnected`] wait for
//! these events, or until a deadline. Several threads may wait on one channel. Dropping a cm_id disconnects it.
//!
//! The messages on the wire are those of Linux's RDMA-CM: either side may be an rdma-core program.
//!
//! ```
//! use ferroce::cm::{CmId, ConnectParameters, EventChannel, PortSpace};
//! use ferroce::*;
//! use std::time::Duration;
//!
//! fn queue_pair(id: &CmId) -> Result<(QueuePair, CompletionQueue), Box<dyn std::error::Error>> {
//!     let context = id.context().ok_or("no device")?;
//!     let cq = context.completion_queue(16, Some(&CompletionChannel::new()?))?;
//!     let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
//!     let qp = id.create_queue_pair(&context.protection_domain(), &options)?;
//!     Ok((qp, cq))
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! // The passive side listens; port 0 is any free port.
//! let passive = EventChannel::new()?;
//! let listener = CmId::new(&passive, PortSpace::Tcp)?;
//! listener.bind("127.0.0.1:0".parse()?)?;
//! listener.listen(0)?;
//! let address = listener.local_address().ok_or("not bound")?;
//!
//! // The active side connects, here in a thread of its own.
//! let active = std::thread::spawn(move || -> Result<Vec<u8>, String> {
//!     let connect = || -> Result<Vec<u8>, Box<dyn std::error::Error>> {
//!         let channel = EventChannel::new()?;
//!         let id = CmId::resolve(&channel, PortSpace::Tcp, address, Duration::from_secs(1))?;
//!         let (_qp, _cq) = queue_pair(&id)?;
//!         let established = id.connect_blocking(&ConnectParameters::default(), None)?;
//!         id.disconnect()?;
//!         Ok(established.private_data)
//!     };
//!     connect().map_err(|error| error.to_string())
//! });
//!
//! // The request has a new cm_id, which accepts with a few bytes for the peer.
//! let request = passive.wait_request(None)?;
//! let (_qp, _cq) = queue_pair(&request.id)?;
//! let private_data = b"welcome".to_vec();
//! request.id.accept(&ConnectParameters { private_data, ..ConnectParameters::default() })?;
//! request.id.wait_disconnected(None)?;
//! assert!(active.join().unwrap()?.starts_with(b"welcome"));
//! # Ok(())
//! # }
//! ```

mod address;
mod attributes;
mod channel;
mod connect;
mod handler;
mod id;
mod link;
mod parameters;
mod queue_pair;
mod state;

pub use id::{CmId, Event, EventChannel, EventKind, IdName, Request, UserEvent};
pub use parameters::{
    ConnectParameters, DatagramPeer, DisconnectCause, Established, Group, PeerParameters, Route,
};

pub use crate::error::CmError as Error;
pub use ferroce_proto::cm::Enhancements;
pub use ferroce_wire::cm::{RejectReason, ResponseTimeout, SidrStatus, VendorId};
pub use ferroce_wire::rdmacm::PortSpace;

/// The queue key of RDMA-CM's UD queue pairs and multicast groups (Linux: `RDMA_UDP_QKEY`).
pub const DATAGRAM_QUEUE_KEY: crate::QKey = crate::QKey(0x0123_4567);
