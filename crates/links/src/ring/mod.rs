//! Packets between processes of one user on one host, through shared memory.
//!
//! A ring replaces the sockets and their flow control: its space bounds what may be in flight. The layers above are
//! unchanged, from the transports to captures and faults. Once a QP is ready to receive, its packets go through a ring
//! if its peer is a process on this host that accepts rings ([`ferroce_sys::Hub`]), and through the sockets otherwise.
//! Packets from both paths are accepted.
//!
//! A record is a packet or an aggregate of packets (`aggregate`), preceded by the metadata that a socket would report. The ICRC is
//! computed only for captures and injected faults, because memory does not flip bits.
//!
//! | module | role |
//! |---|---|
//! | `rings` | the rings of a device: to which processes, from which, and which are full |
//! | `route` | a QP's path through a ring, and the size of a record |
//! | `aggregate` | consecutive packets of one message in one record |
//! | `tx` | transmitting packets through rings |
//! | `rx` | receiving packets from rings |
//! | `record` | the buffer into which records are copied out of their rings |
//! | `records` | the records of a ring, as the device core takes them |

mod aggregate;
mod record;
mod records;
pub(crate) mod rings;
pub(crate) mod route;
mod rx;
mod tx;

pub use rings::Rings;
pub use route::{MAX_RECORD, RingRoute, RingTo};
pub use rx::{Received, RingReceiver};
