//! The transports, the connection manager and the set-up exchange as pure state machines.
//!
//! Nothing here has a socket, a clock, a thread or a pointer: the crate has no std and no unsafe code, so the compiler
//! proves it. Time, randomness and memory are arguments. Correctness is the InfiniBand Architecture Specification's,
//! whose clause stands at the line that implements it.
//!
//! Every machine has the same shape, and one rule:
//!
//! - what happens to it goes in by `handle_*` methods, with the time at which it happens;
//! - what it wants comes out by `poll_*` methods: packets to send (`poll_transmit`), news for its owner (`poll_event`,
//!   `poll_completion`), and the time at which it must be woken if nothing happens before (`poll_timeout`);
//! - **drain rule**: after any `handle_*`, call `poll_transmit` and `poll_event` until they return `None`, then
//!   `poll_timeout` once. A machine that is not drained does not break, it only waits.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod cm;
pub mod congestion;
pub mod counters;
pub mod endpoint;
pub mod memory;
pub mod qp;
pub mod rc;
pub mod receive;
pub mod setup;
#[cfg(test)]
mod testing;
pub mod time;
pub mod transmit;
pub mod uc;
pub mod ud;
mod unacknowledged;
pub mod work;
