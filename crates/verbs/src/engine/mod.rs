//! The engine of a device: receives and sends packets and runs timers.
//!
//! `data_path` has what packets need; `adapter` adds which thread drives it. Each file uses only files above it in the table.
//!
//! | file | role |
//! |---|---|
//! | `counters` | the counters of a device, published for other processes |
//! | `hw_counters` | the same counters in the files that `ferroce run` provides |
//! | `qp_stats` | what a QP publishes |
//! | `shard_set` | the shards of the QPs that use a CQ or a channel |
//! | `outbox` | packets that belong to no QP |
//! | `pause` | where the device thread halts |
//! | `port_state` | whether its interface is up, and the async events about that |
//! | `queue_pair` | a QP as the engine sees it |
//! | `groups` | multicast groups |
//! | `port` | opens its addresses with their sockets; its multicast groups |
//! | `management` | management datagrams: the connection manager and the set-up exchange |
//! | `data_path` | what the packets of a device, or of a shard of it, need |
//! | `routes` | the routes of packets |
//! | `forwarding` | counts packets that are forwarded to another process |
//! | `refusals` | what becomes of packets that are dropped |
//! | `mad` | what management needs: addresses, queueing, forwarding |
//! | `host` | what the device core needs: memory, QPs, CQs, events, routes, rings |
//! | `embedder` | what the links need: addresses, counters, captures |
//! | `driver` | what only the owner of a device uses: the device core, the state of its links |
//! | `rx` | which sockets and rings a pass reads |
//! | `adapter` | an open device, or a shard of it: its data path, and which thread drives it |
//! | `pass` | what a pass does, and which thread makes it |
//! | `destroy` | destroying objects between two passes |
//! | `mad_send` | management datagrams of threads that need not own the device |
//! | `unreachable` | peers whose UDP port is closed |
//! | `wait` | waiting for packets in the thread that waits for their completions |
//! | `watches` | the descriptors that the device thread waits for |
//! | `thread` | the device thread: progress while no program polls |
//! | `shards` | the open devices of the process with their shards and threads |
//! | `paused_thread` | halting the device thread, to count instructions |

mod adapter;
mod counters;
mod data_path;
mod destroy;
mod driver;
mod embedder;
mod forwarding;
mod groups;
mod host;
mod hw_counters;
mod mad;
mod mad_send;
mod management;
mod outbox;
mod pass;
mod pause;
mod paused_thread;
mod port;
mod port_state;
mod qp_stats;
mod queue_pair;
mod refusals;
mod routes;
mod rx;
mod shard_set;
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
pub use paused_thread::PausedThread;
pub(crate) use qp_stats::{Belongs, QpStats};
pub(crate) use queue_pair::{Core, Inner, RecvQueue};
pub(crate) use shard_set::ShardSet;
pub(crate) use shards::{Handle, shut_down_all};
pub use wait::Leading;
