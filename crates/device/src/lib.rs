//! The device core: which queue pair is served next, and later all that a device decides about its queue pairs.
//!
//! The crate never waits, spawns a thread or reads a clock: time is an argument, and the order of everything follows
//! from the calls alone. The engine of the library drives it, and so does the simulator, so a seed of the simulator
//! repeats what the engine does (ADR 27). It is `no_std` and forbids unsafe code, so the compiler enforces most of this.
//!
//! It is generic over the handle of a queue pair ([`Handle`]): each embedder has its own shared object, which holds its
//! transport, locks and routes, and embeds what this crate remembers about it ([`Marks`] and [`Membership`]).
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod credit;
mod device;
mod handle;
mod host;
mod link;
mod queue_pair;
mod receiver;
pub mod schedule;
#[cfg(test)]
mod testing;

pub use device::{Device, TURN, TurnEnd};
pub use handle::{Handle, Marks, Membership, Schedulable};
pub use host::{Host, Loss, Published};
pub use link::{Committed, Link, Outgoing, QueueTurn, Room, TransmitQueue, Tx};
pub use queue_pair::{Object, QueuePair, State};
