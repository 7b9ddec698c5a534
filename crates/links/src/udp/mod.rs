//! UDP sockets.
//!
//! | module | role |
//! |---|---|
//! | `address` | one address of a device, with its sockets |
//! | `addresses` | all addresses of a device, and what is looked up in them |
//! | `senders` | the send sockets of an address, and the source port of a QP |
//! | `batch` | a batch of packets under construction, and sending it |
//! | `rx` | receiving datagrams: integrity, faults, packets of other processes |
//! | `forwarding` | packets that reached this process but belong to another one |
//! | `steering` | when to update the kernel's table of which process receives which packet |
//! | `reports` | reports of ICMP that a peer's UDP port is closed |
//! | `histories` | the IPv4 identifications that a host has used |

mod address;
pub(crate) mod addresses;
mod batch;
mod forwarding;
mod histories;
mod reports;
mod rx;
mod senders;
mod steering;
#[cfg(test)]
mod testing;

pub use address::Address;
pub use addresses::Addresses;
pub use batch::TxBatch;
pub use forwarding::{Forwarded, Forwarding, Retried};
pub use rx::DatagramReceiver;
pub use senders::{Senders, first_port};
pub use steering::Steering;
