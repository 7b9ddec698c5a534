//! The connections of a rank to all others: by RDMA, or by TCP for comparison.
//!
//! Both carry out the same requests on the same memory. Over RDMA the device of the peer executes WRITE, READ and atomics;
//! over TCP the peer's process does, whenever it waits, because a socket reaches a program only.

mod frame;
mod rdma;
mod tcp;

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ferroce::{LKey, ProtectionDomain};
use serde::{Deserialize, Serialize};

use super::fault::Fault;
pub(super) use rdma::{RECEIVES, RdmaLink};
pub(super) use tcp::TcpLink;

/// The most requests in flight to one peer.
pub(super) const DEPTH: usize = 64;

/// A request to a peer. Offsets are in the memory of the two ranks, whose layout is the same.
#[derive(Clone, Copy, Debug)]
pub(super) enum Request {
    /// RDMA WRITE, with an immediate if there is one.
    Write { local: usize, remote: usize, length: usize, immediate: Option<u32>, lkey: Option<LKey> },
    /// RDMA READ.
    Read { local: usize, remote: usize, length: usize },
    /// SEND.
    Send { local: usize, length: usize },
    /// Atomic compare-and-swap; the original value is stored at `local`.
    CompareSwap { local: usize, remote: usize, compare: u64, swap: u64 },
    /// Atomic fetch-and-add; the original value is stored at `local`.
    FetchAdd { local: usize, remote: usize, add: u64 },
}

/// What happened on a link.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Event {
    /// A request of this rank is complete: its data is in the memory of the peer, or the peer's is here.
    Done { ticket: u64 },
    /// A WRITE_WITH_IMM of the peer: its data is in our memory.
    Immediate { peer: usize, value: u32 },
    /// A SEND of the peer.
    Message { peer: usize, bytes: Vec<u8> },
}

/// What the other ranks need to know of a rank to connect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Endpoint {
    /// The address of the device, a QPN for each peer, and the memory.
    Rdma { ip: IpAddr, qpns: Vec<u32>, address: u64, rkey: u32 },
    /// Where it listens.
    Tcp { listen: SocketAddr },
}

/// Connections to all other ranks.
pub(super) trait Link {
    /// The address for the others.
    fn endpoint(&self) -> Result<Endpoint, Fault>;
    /// Connects to all others.
    fn connect(&mut self, peers: &[Endpoint]) -> Result<(), Fault>;
    /// Whether all packets go through shared memory.
    fn shares_memory(&self) -> bool;
    /// Posts a request; [`Event::Done`] with the ticket follows. At most [`DEPTH`] may be in flight to a peer.
    fn post(&mut self, peer: usize, ticket: u64, request: Request) -> Result<(), Fault>;
    /// Waits for the next event; `None` at the deadline.
    fn wait(&mut self, deadline: Instant) -> Result<Option<Event>, Fault>;
    /// The PD to register memory in; `None` for TCP, which needs no registration.
    fn pd(&self) -> Option<&ProtectionDomain>;
}
