//! UDP sockets.
//!
//! | module | role |
//! |---|---|
//! | `addresses` | the addresses of a device with their sockets, what is looked up in them, and the ICMP reports of the sockets |
//! | `senders` | the send sockets of an address, and the source port of a QP |
//! | `batch` | a batch of packets under construction, and sending it |
//! | `rx` | receiving datagrams: integrity, faults, packets of other processes |
//! | `forwarding` | packets that reached this process but belong to another one |
//! | `steering` | when to update the kernel's table of which process receives which packet |
//! | `histories` | the IPv4 identifications that a host has used |

pub(crate) mod addresses;
mod batch;
mod forwarding;
mod histories;
mod rx;
mod senders;
mod steering;
#[cfg(test)]
mod testing;

pub use addresses::{Address, Addresses};
pub use batch::TxBatch;
pub use forwarding::Forwarding;
pub use rx::DatagramReceiver;
pub use senders::{Senders, first_port};
pub use steering::Steering;
