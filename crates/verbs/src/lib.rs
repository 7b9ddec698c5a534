//! RDMA over Converged Ethernet (RoCEv2) in user space: the verbs as a safe library.
//!
//! No kernel module, RDMA hardware or privilege is needed. On the wire are the packets that RoCEv2 adapters and Linux's
//! `rdma_rxe` send, so that the peer may be one of these.
//!
//! # The model
//!
//! 1. A [`Device`] is a network interface with an IP address. [`Context::open`] opens it.
//! 2. A [`ProtectionDomain`] (PD) groups the resources that work together. In it are [`MemoryRegion`]s (MR), the memory
//!    that the device and peers access, and [`QueuePair`]s (QP), which send and receive.
//! 3. A [`CompletionQueue`] (CQ) reports the work requests that have completed.
//! 4. [`cm`] connects a QP to that of a peer, by IP address and port.
//! 5. [`QueuePair::post_send`] and [`QueuePair::post_receive`] post work requests. SEND consumes a receive request of the
//!    peer; WRITE, READ and atomics access the peer's memory directly, given its address and rkey.
//! 6. [`CompletionQueue::poll`] or [`CompletionQueue::wait`] returns the completions; with the feature `tokio`,
//!    `AsyncCompletionQueue` awaits them.
//!
//! Resources are handles: they can be cloned, sent to other threads, and dropped at any time, with requests in flight too.
//! Each family of operations has an error type to match on; all convert into [`Error`].
//!
//! # Example
//!
//! A client sends a message to a server. Both are in one process here; other hosts need only another address.
//!
//! ```
//! use ferroce::cm::{CmId, ConnectParameters, EventChannel, PortSpace};
//! use ferroce::*;
//! use std::net::SocketAddr;
//! use std::time::Duration;
//!
//! type Outcome<T> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;
//!
//! /// Creates a PD, MR, CQ and QP on the device of a connection.
//! fn resources(id: &CmId) -> Outcome<(MemoryRegion, CompletionQueue, QueuePair)> {
//!     let context = id.context().ok_or("no device")?;
//!     let pd = context.protection_domain();
//!     let mr = pd.allocate(4096, AccessFlags::LOCAL_WRITE)?;
//!     let cq = context.completion_queue(16, Some(&CompletionChannel::new()?))?;
//!     let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
//!     let qp = id.create_queue_pair(&pd, &options)?;
//!     Ok((mr, cq, qp))
//! }
//!
//! fn client(server: SocketAddr) -> Outcome<()> {
//!     let channel = EventChannel::new()?;
//!     let id = CmId::resolve(&channel, PortSpace::Tcp, server, Duration::from_secs(1))?;
//!     let (mr, cq, qp) = resources(&id)?;
//!     id.connect_blocking(&ConnectParameters::default(), None)?;
//!
//!     mr.write(0, b"hello")?;
//!     let data = Data::SgList(mr.sge(0, 5).into());
//!     qp.post_send(SendRequest::new(WorkId(1), Operation::SEND, data))?;
//!     assert_eq!(cq.wait()?.status, Status::Success);
//!     id.disconnect()?;
//!     Ok(())
//! }
//!
//! fn main() -> Outcome<()> {
//!     let channel = EventChannel::new()?;
//!     let listener = CmId::new(&channel, PortSpace::Tcp)?;
//!     listener.bind("127.0.0.1:0".parse()?)?;
//!     listener.listen(0)?;
//!     let address = listener.local_address().ok_or("not bound")?;
//!     let client = std::thread::spawn(move || client(address));
//!
//!     // The receive request is posted before the client can send.
//!     let request = channel.wait_request(None)?;
//!     let (mr, cq, qp) = resources(&request.id)?;
//!     qp.post_receive(ReceiveRequest { id: WorkId(2), sg_list: mr.sge(0, 4096).into() })?;
//!     request.id.accept(&ConnectParameters::default())?;
//!
//!     let done = cq.wait()?;
//!     assert_eq!((done.id, done.status, done.length), (WorkId(2), Status::Success, 5));
//!     let mut text = [0; 5];
//!     mr.read(0, &mut text)?;
//!     assert_eq!(&text, b"hello");
//!     client.join().unwrap()
//! }
//! ```
#![forbid(unsafe_code)]

// Unit tests share tests/support, which names the crate as users do.
#[cfg(test)]
extern crate self as ferroce;
// Isolates the unit tests that open sockets.
#[cfg(test)]
use ferroce_test_support as _;

pub mod cm;
mod completion;
mod context;
mod cq;
mod device;
mod drive;
mod engine;
mod error;
mod event;
mod event_queue;
#[doc(hidden)]
pub mod exit;
#[cfg(feature = "tokio")]
mod future;
pub mod identity;
mod log;
mod options;
mod orphans;
mod pd;
mod queue_pair;
mod region;
#[doc(hidden)]
pub mod report;
pub mod setup;
mod shared_receive;
mod sync;
mod time;

pub use completion::CompletionQueue;
pub use context::Context;
pub use cq::{CompletionChannel, WorkCompletion};
pub use device::{Device, GidEntry, Limits, Names, NotNames, devices};
#[doc(hidden)]
pub use engine::PausedThread;
pub use engine::{Leading, Statistics};
pub use error::{
    CopyError, CreateError, EnvironmentError, Error, MemoryError, ModifyError, MulticastError,
    OpenError, PostError, ResizeError, RouteError, SystemError, WaitError,
};
pub use event::{AsyncEvent, EventKind, Source};
pub use ferroce_links::faults::{BadFaults, Faults};
#[cfg(feature = "tokio")]
pub use future::AsyncCompletionQueue;
pub use log::{BadLogLevel, log_to_stderr};
pub use options::{Local, MAX_SHARDS, Options};
#[doc(hidden)]
pub use orphans::disconnect_orphans;
pub use pd::ProtectionDomain;
pub use queue_pair::{AddressHandle, Posted, QueuePair, QueuePairOptions, UdSendRequest};
pub use region::{DeregisterFailure, MemoryRegion, MemoryWindow};
pub use shared_receive::{SharedReceiveQueue, XrcDomain};
/// The protocol between a process and a collector of its packets, for `ferroce capture`.
#[doc(hidden)]
pub mod live {
    pub use ferroce_tap::{Comments, Message, RecordHeader};
}
pub use time::Timestamp;

pub use ferroce_memory::{
    AddressRange, Buffer, Change, DeregisterError, OutOfBounds, RegionInfo, RegisterError,
    ReregisterError, WindowError, WindowKind,
};
pub use ferroce_proto::congestion::{Congestion, DcqcnParameters};
pub use ferroce_proto::memory::{AccessFlags, Sge};
pub use ferroce_proto::qp::{
    AckTimeout, AddressVector, AlternatePath, Attribute, AttributeMask, Capabilities, Migration,
    ModifyError as AttributeError, PathMtu, QueuePairAttributes, RnrRetry, RnrTimer, Rule,
    ServiceType, State, rule,
};
pub use ferroce_proto::reason::{Entry as ReasonEntry, Reason, TABLE as REASONS};
pub use ferroce_proto::work::{
    Completion, CompletionKind, Data, Operation, ReceiveRequest, RemoteAddress, SendRequest,
    SgList, Status, WorkId,
};
pub use ferroce_sys::Options as SocketOptions;
#[doc(hidden)]
pub use ferroce_sys::{Uncancellable, clock};
pub use ferroce_tap::{CaptureError, CapturePolicy, CaptureStatus, captures};
pub use ferroce_wire::address::Gid;
pub use ferroce_wire::number::{Immediate, LKey, Psn, QKey, Qpn, RKey, VirtualAddress};
pub use ferroce_wire::transport::{FlushPlacement, FlushSelectivity};
