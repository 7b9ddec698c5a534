//! RDMA transports, connection manager and set-up exchange as pure state machines.
//!
//! The crate has no socket, clock, thread or pointer: it is `no_std` and forbids unsafe code, so the compiler
//! enforces this. Time, randomness and memory are arguments. The reference is the InfiniBand Architecture
//! Specification ("IBA"), cited at the line that implements a rule. Where no clause is known for certain, the comment
//! names rdma_rxe's behaviour instead.
//!
//! All state machines have the same interface and one rule:
//!
//! - inputs go in through `handle_*` methods, with the time at which they happen;
//! - outputs come out of `poll_*` methods: packets to send (`poll_transmit`), events and completions (`poll_event`,
//!   `poll_completion`), and the time of the next timeout (`poll_timeout`);
//! - **drain rule**: after any `handle_*`, call `poll_transmit` and `poll_event` until they return `None`, then
//!   `poll_timeout` once. A machine that is not drained makes no progress, but stays consistent.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;
#[cfg(test)]
extern crate std;

pub mod budget;
pub mod cm;
pub mod congestion;
pub mod counters;
pub mod doorbell;
pub mod endpoint;
pub mod held;
mod inline_data;
pub mod memory;
pub mod qp;
pub mod rc;
pub mod reason;
pub mod receive;
mod sequence;
pub mod setup;
mod staging;
#[cfg(test)]
mod testing;
pub mod time;
pub mod transmit;
pub mod uc;
pub mod ud;
mod unacknowledged;
mod withheld;
pub mod work;
