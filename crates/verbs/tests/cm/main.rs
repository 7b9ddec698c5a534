//! Connections over real sockets: listeners and clients of one and of two processes, IPv4 and IPv6. Every wait is for an
//! event, and every test has its own UDP port, so that tests can run in parallel.

#[macro_use]
mod ends;

use ferroce_test_support as _;

mod channels;
mod connections;
mod corners;
mod datagrams;
mod deaths;
mod forged;
mod independence;
#[path = "../support/interfaces.rs"]
mod interfaces;
mod one_device;
mod other;
mod processes;
mod waiters;
mod waiting;
