//! Why a change is refused.

use core::fmt;

use super::attribute::AttributeMask;
use super::service::ServiceType;
use super::state::State;

/// Why a queue pair does not accept a change. Nothing has changed then (IBA 11.2.5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ModifyError {
    /// The queue pair is not in the state that the change was made for.
    WrongCurrentState {
        /// The state that the change names.
        assumed: State,
        /// The state it is in.
        actual: State,
    },
    /// No change leads from one state to the other.
    NoSuchTransition {
        /// The service.
        service: ServiceType,
        /// The present state.
        from: State,
        /// The state asked for.
        to: State,
    },
    /// The transition needs attributes that are not given.
    Missing {
        /// The service.
        service: ServiceType,
        /// The present state.
        from: State,
        /// The state asked for.
        to: State,
        /// All that are missing.
        attributes: AttributeMask,
    },
    /// Attributes are given that the transition does not take.
    NotAllowed {
        /// The service.
        service: ServiceType,
        /// The present state.
        from: State,
        /// The state asked for.
        to: State,
        /// All that are too many.
        attributes: AttributeMask,
    },
    /// Values are given that the attributes cannot have.
    OutOfRange {
        /// All that are out of their range.
        attributes: AttributeMask,
    },
    /// The send queue is not drained yet: wait for the notice, or go to RESET or ERR.
    StillDraining,
}

impl fmt::Display for ModifyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::WrongCurrentState { assumed, actual } => {
                write!(f, "the queue pair is in {actual}, not in {assumed} as the change assumes")
            }
            Self::NoSuchTransition { service, from, to } if from == to => {
                write!(f, "{service} in {from} cannot be changed without leaving that state")
            }
            Self::NoSuchTransition { service, from, to } => {
                write!(f, "{service} cannot go from {from} to {to}")
            }
            Self::Missing { service, from, to, attributes } => {
                write!(f, "{service} from {from} to {to} also needs: {attributes}")
            }
            Self::NotAllowed { service, from, to, attributes } => {
                write!(f, "{service} from {from} to {to} does not take: {attributes}")
            }
            Self::OutOfRange { attributes } => {
                f.write_str("out of range:")?;
                for (position, attribute) in attributes.iter().enumerate() {
                    let separator = if position == 0 { "" } else { ";" };
                    write!(f, "{separator} {attribute} (it is {})", attribute.range())?;
                }
                Ok(())
            }
            Self::StillDraining => f.write_str(
                "the send queue is still draining: wait for the notice, or go to RESET or ERR",
            ),
        }
    }
}

impl core::error::Error for ModifyError {}
