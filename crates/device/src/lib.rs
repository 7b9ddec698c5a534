//! The device core: which queue pair is served next, whether it may send, its turns and its timers.
//!
//! The crate never waits, spawns a thread or reads a clock: time is an argument, and the order of everything follows
//! from the calls alone. The engine of the library drives it, and so does the simulator, so a seed of the simulator
//! repeats what the engine does (ADR 27). It is `no_std` and forbids unsafe code, so the compiler enforces most of this.
//!
//! It is generic over its embedder ([`Host`]), which has a shared object for each queue pair ([`Object`], reached by a
//! [`Handle`]) and embeds in it what this crate knows of it ([`Marks`] and [`QueuePair`]), and over the ways out of the device
//! (ADR 29): a [`Link`], which may lose packets, and a [`TransmitQueue`], which does not.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod arrival;
mod completions;
pub mod credit;
mod device;
mod fast_path;
pub mod forwarding;
mod handle;
mod host;
mod link;
#[cfg(any(test, feature = "memory-queue"))]
pub mod memory_queue;
mod numbers;
mod queue_pair;
mod receive;
mod receiver;
pub mod schedule;
mod tables;
#[cfg(test)]
mod testing;
pub mod tuning;

pub use arrival::{Arrival, Refusal, destination};
pub use completions::publish;
pub use device::{Device, TurnEnd};
pub use fast_path::receive_fast;
pub use handle::{Handle, Marks, Membership, Schedulable};
pub use host::{Host, Loss, Published};
pub use link::{Committed, Link, Outgoing, QueueTurn, Room, TransmitQueue, Tx};
pub use queue_pair::{Object, QueuePair, ReceiveSource};
pub use receive::{Burst, admit};
pub use tables::{Objects, Tables};
