//! RoCE wire formats: parsing and emitting of packets.
//!
//! This crate knows packet formats only: no sockets, no clock, no memory except borrowed bytes, no state between
//! packets. It does not allocate, does not panic on any input and has no unsafe code.
#![no_std]
#![forbid(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod access;
pub mod address;
pub mod cm;
pub mod ethernet;
pub mod field;
pub mod frame;
pub mod icrc;
pub mod infiniband;
pub mod ip;
pub mod mad;
pub mod malformed;
pub mod number;
pub mod opcode;
pub mod packet;
pub mod rdmacm;
pub mod setup;
pub mod syndrome;
pub mod transport;
pub mod udp_headers;

#[cfg(test)]
mod tests;
