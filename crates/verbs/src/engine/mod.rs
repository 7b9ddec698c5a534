//! What makes a device go: packets in, packets out, timers.
//!
//! | file | role |
//! |---|---|
//! | `ownership` | which thread drives the device |
//! | `adapter` | all that the handles of one device share |
//! | `link` | one address: its sockets, and the headers that packets over it have |
//! | `numbers` | queue pair numbers |
//! | `groups` | multicast groups |
//! | `queue_pair` | a queue pair, and what the engine needs to know about it |
//! | `progress` | a round: receive, timers, transmit |
//! | `arrivals` | packets in: ICRC, whose they are, what they do |
//! | `departures` | packets out: batches |
//! | `senders` | the sockets of an address, and which source port a queue pair gets |
//! | `echoes` | no more under way to a socket of this machine than it holds, where nobody acknowledges |
//! | `destroy` | destroying objects between two passes |
//! | `detours` | packets that are another process's |
//! | `steering` | when the kernel is told which process gets which packet |
//! | `unreachable` | peers whose port is closed |
//! | `thread` | progress while the application does something else |
//! | `counters` | what was counted |
//! | `hw_counters` | the same, in the files that `ferroce run` shows |

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
