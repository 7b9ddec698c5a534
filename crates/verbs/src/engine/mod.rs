//! The engine of a device: receives and sends packets and runs timers.
//!
//! | file | role |
//! |---|---|
//! | `adapter` | an open device, or a shard of it: its identity and its parts |
//! | `shards` | the shards of a device, for processes that use more than one core |
//! | `port` | opens its addresses with their sockets; its multicast groups |
//! | `port_state` | whether its interface is up, and the async events about that |
//! | `groups` | multicast groups |
//! | `queue_pair` | a QP as the engine sees it |
//! | `host` | what the device core needs: memory, QPs, CQs, events, routes, rings |
//! | `embedder` | what the links need: addresses, counters, captures |
//! | `driver` | what drives the device: passes, and which thread makes them |
//! | `rx` | which sockets and rings a pass reads; captures of what was received |
//! | `refusals` | what becomes of packets that are dropped |
//! | `outbox` | packets that belong to no QP |
//! | `destroy` | destroying objects between two passes |
//! | `forwarding` | counts packets that are forwarded to another process |
//! | `mad` | what management needs: addresses, sending, forwarding |
//! | `management` | management datagrams: the connection manager and the set-up exchange |
//! | `unreachable` | peers whose UDP port is closed |
//! | `thread` | the device thread: progress while no program polls |
//! | `watches` | the descriptors that the device thread waits for |
//! | `wait` | waiting for packets in the thread that waits for their completions |
//! | `pause` | halting the device thread, to count instructions |
//! | `counters` | the counters of a device, published for other processes |
//! | `qp_stats` | what a QP publishes |
//! | `hw_counters` | the same counters in the files that `ferroce run` provides |

mod adapter;
mod counters;
mod destroy;
mod driver;
mod embedder;
mod forwarding;
mod groups;
mod host;
mod hw_counters;
mod mad;
mod management;
mod outbox;
mod pause;
mod port;
mod port_state;
mod qp_stats;
mod queue_pair;
mod refusals;
mod rx;
mod shards;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;
mod thread;
mod unreachable;
mod wait;
mod watches;

pub(crate) use adapter::Adapter;
pub(crate) use counters::Counters;
pub use counters::Statistics;
pub(crate) use management::{
    CmEventHandler, Connections, LEDGER_RECORD_LEN, MANAGEMENT, MadTransport, Manager, QUEUE_KEY,
    parse_ledger_record,
};
pub use pause::PausedThread;
pub(crate) use qp_stats::{Belongs, QpStats};
pub(crate) use queue_pair::{Core, Inner, RecvQueue};
pub(crate) use shards::{Handle, ShardSet};
pub use wait::Leading;
