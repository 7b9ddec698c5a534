//! The engine of a device: receives and sends packets and runs timers.
//!
//! `data_path` has what packets need; `adapter` adds which thread drives it. Each file uses only files above it in the table.
//!
//! | file | role |
//! |---|---|
//! | `counters` | the counters of a device, published for other processes |
//! | `hw_counters` | the same counters in the files that `ferroce run` provides |
//! | `qp_stats` | what a QP publishes |
//! | `queue_pair` | a QP as the engine sees it |
//! | `port` | opens its addresses with their sockets; multicast groups; whether its interface is up, and the async events about that |
//! | `management` | management datagrams: the connection manager and the set-up exchange |
//! | `data_path` | what the packets of a device, or of a shard of it, need |
//! | `routes` | where packets go: routes, and forwarding to other processes |
//! | `host` | what the device core needs: memory, QPs, CQs, events, routes, rings; what becomes of packets that are dropped |
//! | `embedder` | what the links need: addresses, counters, captures |
//! | `driver` | what only the owner of a device uses: the device core, the state of its links; which sockets and rings a pass reads |
//! | `adapter` | an open device, or a shard of it: its data path, and which thread drives it |
//! | `pass` | what a pass does, and which thread makes it |
//! | `destroy` | destroying objects between two passes |
//! | `mad_send` | management datagrams of threads that need not own the device |
//! | `watches` | the descriptors that the device thread waits for, or a thread that waits for completions |
//! | `thread` | the device thread: progress while no program polls; peers whose UDP port is closed |
//! | `shards` | the open devices of the process with their shards and threads; halting these threads |

mod adapter;
mod counters;
mod data_path;
mod destroy;
mod driver;
mod embedder;
mod host;
mod hw_counters;
mod mad_send;
mod management;
mod pass;
mod port;
mod qp_stats;
mod queue_pair;
mod routes;
mod shards;
#[cfg(test)]
#[path = "../../tests/support/mod.rs"]
mod support;
mod thread;
mod watches;

pub(crate) use adapter::Adapter;
pub(crate) use counters::Counters;
pub use counters::Statistics;
pub(crate) use management::{
    CmEventHandler, CmLink, LEDGER_RECORD_LEN, Machine, Manager, parse_ledger_record,
};
pub(crate) use qp_stats::QpStats;
pub(crate) use queue_pair::{Core, Inner, RecvQueue};
pub(crate) use shards::Handle;
pub use shards::{PausedThread, shut_down};
pub use watches::Leading;
