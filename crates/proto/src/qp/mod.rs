//! The queue pair's states: which change may follow which, what each needs, and what each state permits.
//!
//! Everything here is a table (IBA 10.3.1, 11.2.5.2; A14 for XRC), and the tables print themselves: [`markdown`] writes
//! `docs/queue-pair-states.md`, which a test keeps identical to the code.
//!
//! - `QueuePairAttributes` is a change that the owner asks for: optional values, one for each [`Attribute`].
//! - [`modify`] says whether a service in a state accepts it; [`ModifyError`] names what to change if not.
//! - [`react`] says where an [`Incident`] takes a queue pair without being asked.
//! - [`State::permits`] and [`ServiceType::permits`] say what may be done, and what becomes of what may not.
//! - [`Machine`] holds the state of one queue pair, with the two halves of the drain state.
//!
//! This module knows no device: the number of ports, partitions and outstanding READs, and whether paths can migrate,
//! are for the owner to check.

mod attribute;
mod document;
mod error;
mod fault;
mod incident;
mod machine;
mod permission;
mod service;
mod state;
mod transition;
mod value;

#[cfg(test)]
mod tests;

pub use attribute::{Attribute, AttributeMask, QueuePairAttributes};
pub use document::markdown;
pub use error::ModifyError;
pub use fault::Fault;
pub use incident::{Incident, react};
pub use machine::{Event, Machine};
pub use permission::{Action, Permission};
pub use service::ServiceType;
pub use state::State;
pub use transition::{Rule, modify, rule};
pub use value::{AddressVector, AlternatePath, Capabilities, Migration};

pub use ferroce_wire::cm::{AckTimeout, PathMtu, RnrRetry};
pub use ferroce_wire::setup::AccessFlags;
pub use ferroce_wire::syndrome::RnrTimer;
