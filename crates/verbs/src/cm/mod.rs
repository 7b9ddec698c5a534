//! Connections: who listens where, who connects to whom, as librdmacm has it.
//!
//! An [`CmId`] is one end of a connection, or a listener. What happens to it is told by its [`EventChannel`]:
//!
//! | active side | event | passive side | event |
//! |---|---|---|---|
//! | [`CmId::resolve_address`] | [`EventKind::AddressResolved`] | [`CmId::bind`] | |
//! | [`CmId::resolve_route`] | [`EventKind::RouteResolved`] | [`CmId::listen`] | |
//! | [`CmId::create_queue_pair`], [`CmId::connect`] | | | [`EventKind::ConnectRequest`] |
//! | | | [`CmId::create_queue_pair`] and [`CmId::accept`] of the new id | |
//! | | [`EventKind::Established`] | | [`EventKind::Established`] |
//! | [`CmId::disconnect`], on either side | [`EventKind::Disconnected`] | | [`EventKind::Disconnected`] |
//! | | [`EventKind::TimewaitExit`] | | [`EventKind::TimewaitExit`] |
//!
//! Addresses and ports are IP's; on the wire are the messages that Linux's RDMA-CM sends, so that either side may be
//! one of its programs. An id that is dropped tells its peer.

mod address;
mod attributes;
mod channel;
mod connect;
mod event;
mod group;
mod id;
mod news;
mod parameters;

pub use channel::EventChannel;
pub use event::{
    DatagramPeer, Established, Event, EventKind, Group, IdName, PeerParameters, Request, UserEvent,
};
pub use id::CmId;
pub use parameters::{ConnectParameters, Route};

pub use crate::error::CmError as Error;
pub use ferroce_proto::cm::Enhancements;
pub use ferroce_wire::cm::{RejectReason, ResponseTimeout, SidrStatus, VendorId};
pub use ferroce_wire::rdmacm::PortSpace;

/// The key of RDMA-CM's datagram queue pairs and groups (Linux: `RDMA_UDP_QKEY`).
pub const DATAGRAM_QUEUE_KEY: crate::QKey = crate::QKey(0x0123_4567);
