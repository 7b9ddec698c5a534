//! One address of a device, with its sockets.

use std::net::SocketAddr;

use ferroce_sys::{Slot, Socket};

use super::senders::Senders;

/// An address of a device, with its sockets.
#[derive(Debug)]
pub struct Address {
    /// The address at which peers reach us.
    pub address: SocketAddr,
    /// The socket that receives.
    pub receiver: Socket,
    /// The sockets that send.
    pub senders: Senders,
    /// This process's share of the QPN space of the address, with its mailbox.
    pub slot: Slot,
}
