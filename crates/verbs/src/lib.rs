//! RDMA over Converged Ethernet in user space: the verbs, as a safe library.
//!
//! A [`Device`] is a network interface with an address. Opened, it is a [`Context`], from which all else is made:
//! [`ProtectionDomain`]s with [`MemoryRegion`]s and [`QueuePair`]s in them, [`CompletionQueue`]s, shared receive
//! queues. No privilege is needed, no kernel module, and no RDMA hardware; on the wire are the packets that these would
//! send.
//!
//! Everything is a handle: it can be cloned, sent to other threads, and dropped at any time, with work in flight too.
//! What is wrong is a compile error or an [`Error`].
#![forbid(unsafe_code)]

// The helpers in tests/support serve unit tests too, and name the crate as users do.
#[cfg(test)]
extern crate self as ferroce;
// Unit tests open sockets too.
#[cfg(test)]
use ferroce_test_support as _;

mod address;
pub mod cm;
mod completion;
mod context;
mod device;
mod engine;
mod error;
mod event;
mod event_queue;
#[doc(hidden)]
pub mod exit;
mod faults;
#[cfg(feature = "tokio")]
mod future;
mod headers;
pub mod identity;
mod limits;
mod log;
mod options;
mod orphans;
mod pd;
mod queue_pair;
mod region;
pub mod setup;
mod shared_receive;
mod sync;
mod tap;
mod time;
mod xrc;

pub use address::AddressHandle;
pub use completion::{CompletionChannel, CompletionQueue, WorkCompletion};
pub use context::Context;
pub use device::{Device, GidEntry, Names, NotNames, devices};
pub use engine::Statistics;
pub use error::{
    CreateError, EnvironmentError, Error, MemoryError, ModifyError, MulticastError, OpenError,
    PostError, ResizeError, RouteError, SystemError, WaitError,
};
pub use event::{AsyncEvent, EventKind, Source};
pub use faults::{BadFaults, Faults};
#[cfg(feature = "tokio")]
pub use future::AsyncCompletionQueue;
pub use limits::Limits;
pub use log::{BadLogLevel, log_to_stderr};
pub use options::Options;
#[doc(hidden)]
pub use orphans::disconnect_orphans;
pub use pd::ProtectionDomain;
pub use queue_pair::{Posted, QueuePair, QueuePairOptions, UdSendRequest};
pub use region::{DeregisterFailure, MemoryRegion, MemoryWindow};
pub use shared_receive::SharedReceiveQueue;
pub use tap::{CaptureStatus, captures};
pub use time::Timestamp;
pub use xrc::XrcDomain;

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
pub use ferroce_proto::work::{
    Completion, CompletionKind, Data, Operation, ReceiveRequest, RemoteAddress, SendRequest,
    SgList, Status, WorkId,
};
pub use ferroce_sys::Options as SocketOptions;
#[doc(hidden)]
pub use ferroce_sys::clock;
pub use ferroce_wire::address::Gid;
pub use ferroce_wire::number::{Immediate, LKey, Psn, QKey, Qpn, RKey, VirtualAddress};
pub use ferroce_wire::transport::{FlushPlacement, FlushSelectivity};
