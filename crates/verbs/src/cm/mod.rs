//! Connections: who listens where, who connects to whom, as librdmacm has it.
//!
//! An [`Id`] is one end of a connection, or a listener. What happens to it is told by its [`EventChannel`]:
//!
//! | active side | event | passive side | event |
//! |---|---|---|---|
//! | [`Id::resolve_address`] | [`What::AddressResolved`] | [`Id::bind`] | |
//! | [`Id::resolve_route`] | [`What::RouteResolved`] | [`Id::listen`] | |
//! | [`Id::create_queue_pair`], [`Id::connect`] | | | [`What::ConnectRequest`] |
//! | | | [`Id::create_queue_pair`] and [`Id::accept`] of the new id | |
//! | | [`What::Established`] | | [`What::Established`] |
//! | [`Id::disconnect`], on either side | [`What::Disconnected`] | | [`What::Disconnected`] |
//! | | [`What::TimewaitExit`] | | [`What::TimewaitExit`] |
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
    DatagramPeer, Established, Event, Group, IdName, PeerParameters, Request, UserEvent, What,
};
pub use id::Id;
pub use parameters::{ConnectParameters, Route};

pub use ferroce_proto::cm::Enhancements;
pub use ferroce_wire::cm::{RejectReason, ResponseTimeout, SidrStatus, VendorId};
pub use ferroce_wire::rdmacm::PortSpace;

pub(crate) use id::Shared;
pub(crate) use news::tell;

/// The key of RDMA-CM's datagram queue pairs and groups (Linux: `RDMA_UDP_QKEY`).
pub const DATAGRAM_QUEUE_KEY: crate::QKey = crate::QKey(0x0123_4567);
