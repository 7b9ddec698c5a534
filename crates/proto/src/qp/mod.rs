//! The QP state machine: transitions, their attributes, and what each state permits.
//!
//! Everything here is a table (IBA 10.3.1, 11.2.5.2; A14 for XRC), and the tables generate their documentation:
//! [`markdown`] writes `docs/queue-pair-states.md`, and a test keeps it identical.
//!
//! - `QueuePairAttributes` is a requested change: optional values, one for each [`Attribute`].
//! - [`modify`] checks whether a service in a state accepts it; [`ModifyError`] names what to correct.
//! - [`react`] returns the state that an [`Incident`] leads to.
//! - [`State::permits`] and [`ServiceType::permits`] return what is permitted, and what happens to the rest.
//! - [`Machine`] holds the state of one QP, with the two phases of SQD.
//!
//! Device limits are for the owner to check: the number of ports, P_Keys and outstanding READs, and whether paths can
//! migrate.

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
