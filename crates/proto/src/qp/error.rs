//! Errors of Modify QP.

use core::fmt;

use super::attribute::AttributeMask;
use super::service::ServiceType;
use super::state::State;

/// Why Modify QP failed. Nothing has changed then (IBA 11.2.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// The current state differs from the assumed one.
    WrongCurrentState {
        /// The assumed state.
        assumed: State,
        /// The current state.
        actual: State,
    },
    /// There is no such transition.
    NoSuchTransition {
        /// The service.
        service: ServiceType,
        /// The current state.
        from: State,
        /// The requested state.
        to: State,
    },
    /// Required attributes are missing.
    Missing {
        /// The service.
        service: ServiceType,
        /// The current state.
        from: State,
        /// The requested state.
        to: State,
        /// The missing attributes.
        attributes: AttributeMask,
    },
    /// Attributes are given that the transition does not accept.
    NotAllowed {
        /// The service.
        service: ServiceType,
        /// The current state.
        from: State,
        /// The requested state.
        to: State,
        /// The attributes that are not accepted.
        attributes: AttributeMask,
    },
    /// Values are out of range.
    OutOfRange {
        /// The attributes with values out of range.
        attributes: AttributeMask,
    },
    /// The send queue is not drained yet: wait for the event, or go to RESET or ERR.
    StillDraining,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongCurrentState { assumed, actual } => {
                write!(f, "the queue pair is in {actual}, not in {assumed} as the change assumes")
            }
            Self::NoSuchTransition { service, from, to } if from == to => {
                write!(f, "{service} in {from} accepts no change without leaving that state")
            }
            Self::NoSuchTransition { service, from, to } => {
                write!(f, "{service} cannot go from {from} to {to}")
            }
            Self::Missing { service, from, to, attributes } => {
                write!(f, "{service} from {from} to {to} also requires: {attributes}")
            }
            Self::NotAllowed { service, from, to, attributes } => {
                write!(f, "{service} from {from} to {to} does not accept: {attributes}")
            }
            Self::OutOfRange { attributes } => {
                f.write_str("out of range:")?;
                for (position, attribute) in attributes.iter().enumerate() {
                    let separator = if position == 0 { "" } else { ";" };
                    write!(f, "{separator} {attribute} (valid: {})", attribute.range())?;
                }
                Ok(())
            }
            Self::StillDraining => f.write_str(
                "the send queue is still draining: wait for the drain event, or go to RESET or ERR",
            ),
        }
    }
}

impl core::error::Error for ModifyError {}
