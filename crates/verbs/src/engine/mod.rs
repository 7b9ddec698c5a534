//! The engine of a device: receives and sends packets and runs timers.
//!
//! | file | role |
//! |---|---|
//! | `ownership` | which thread drives the device |
//! | `adapter` | the state that all handles of one device share |
//! | `link` | one address of a device and its sockets; routes |
//! | `numbers` | QPN allocation |
//! | `groups` | multicast groups |
//! | `queue_pair` | a QP as the engine sees it; publishes its completions |
//! | `progress` | one pass: receive, run timers, transmit (retransmission timeouts are here) |
//! | `rx` | receiving packets: ICRC, demultiplexing, delivery |
//! | `tx` | sending packets in batches |
//! | `senders` | the send sockets of an address, and the source port of a QP |
//! | `local_flow` | flow control for UC and UD between local processes |
//! | `destroy` | destroying objects between two passes |
//! | `forwarding` | forwarding packets that belong to another process |
//! | `management` | management datagrams: the connection manager and the set-up exchange |
//! | `steering` | updating the kernel's table of which process receives which packet |
//! | `port` | the state of the port and its async events |
//! | `unreachable` | peers whose UDP port is closed |
//! | `thread` | the device thread: wakeups and progress while no program polls |
//! | `counters` | the counters of a device |
//! | `hw_counters` | the same counters in the files that `ferroce run` provides |

mod adapter;
mod counters;
mod destroy;
mod forwarding;
mod groups;
mod hw_counters;
mod link;
mod local_flow;
mod management;
mod numbers;
mod ownership;
mod port;
mod progress;
mod queue_pair;
mod rx;
mod senders;
mod steering;
mod thread;
mod tx;
mod unreachable;

pub(crate) use adapter::{Adapter, Handle, now};
pub use counters::Statistics;
pub(crate) use link::{Route, receive_share};
pub(crate) use management::{
    CmEventHandler, Connections, LEDGER_RECORD_LEN, MANAGEMENT, Manager, QUEUE_KEY,
    parse_ledger_record,
};
pub(crate) use queue_pair::{Core, Inner, RecvQueue};
pub(crate) use rx::ReceivedPacket;
