//! A deterministic network simulator: virtual time and a seeded fabric for hosts that send and receive frames.
//!
//! This crate knows hosts as state machines that take frames and time and return frames and deadlines ([`Host`]), links
//! that delay, lose, corrupt and mark frames ([`LinkConfig`]), a switch between them, and a schedule of failures
//! ([`FaultPlan`]). It does not know which protocol the hosts speak: a frame is a byte string, of which the switch
//! reads the destination address and the ECN bits.
//!
//! There is no clock, no thread, and no order that depends on an address or a hash: **the same seed, settings and hosts
//! give the same run, byte for byte**. [`Fabric::hash`] is a cheap check of that, [`Capture`] writes a run as pcapng,
//! and [`Replay`] is the command line that repeats a failing seed.
//!
//! ```
//! use ferroce_proto::time::Instant;
//! use ferroce_sim::{Destination, Fabric, Host, HostId, Outcome, Scenario};
//!
//! /// Sends one frame to the other host, and counts the frames it receives.
//! struct Greeter { to: Option<HostId>, greeted: u32 }
//!
//! impl Host for Greeter {
//!     fn handle_frame(&mut self, _now: Instant, _frame: &[u8]) {
//!         self.greeted += 1;
//!     }
//!     fn handle_timeout(&mut self, _now: Instant) {}
//!     fn poll_transmit(&mut self, _now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
//!         let to = self.to.take()?;
//!         frame.extend_from_slice(b"hello");
//!         Some(Destination::Host(to))
//!     }
//!     fn poll_timeout(&mut self) -> Option<Instant> {
//!         None
//!     }
//! }
//!
//! let seed = 7;
//! let mut fabric = Fabric::new(seed, Scenario::Clean.settings(seed, 2));
//! let receiver = fabric.add_host(Greeter { to: None, greeted: 0 }, &[])?;
//! fabric.add_host(Greeter { to: Some(receiver), greeted: 0 }, &[])?;
//! assert!(matches!(fabric.run(), Outcome::Idle));
//! assert_eq!(fabric.host(receiver).map(|host| host.greeted), Some(1));
//! # Ok::<(), ferroce_sim::AddressInUse>(())
//! ```
#![forbid(unsafe_code)]

mod capture;
mod event;
mod event_log;
mod fabric;
mod fault;
mod flight;
mod hash;
mod header;
mod host;
mod limit;
mod link;
mod probability;
mod random;
pub mod rdma;
mod scenario;
mod settings;
mod statistics;
mod topology;

#[cfg(test)]
mod tests;

pub use capture::{Capture, Vantage};
pub use event_log::{EventLog, Faults, FrameEvent, FrameRecord};
pub use fabric::{AddressInUse, Fabric};
pub use fault::{Crash, Directions, FaultPlan, Partition, Pause, WhilePaused};
pub use hash::RunHash;
pub use host::{Destination, Host, HostId};
pub use limit::{Activity, EventKind, Limit, Limits, Outcome, RecentEvent};
pub use probability::{NotAProbability, Probability};
pub use random::Random;
pub use rdma::{Replay, ReplayParseError};
pub use scenario::{Scenario, UnknownScenario};
pub use settings::{Bandwidth, BurstLoss, Corruption, LinkConfig, Marking, Reordering, Settings};
pub use statistics::{DropCause, Drops, HostStatistics, LinkStatistics, Totals};
pub use topology::{LeafSpine, Topology, TrunkId};
