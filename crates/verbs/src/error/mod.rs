//! Errors: one type per family of operations, and [`Error`], which holds any of them.
//!
//! Each type has `errno()`, the number that a verbs program finds in `errno`.

mod connections;
mod device;
mod resources;

pub use connections::{CmError, SetupExchangeError};
pub use device::{EnvironmentError, OpenError};
pub use resources::{
    CopyError, CreateError, MemoryError, ModifyError, MulticastError, PostError, ResizeError,
    RouteError, WaitError,
};

pub use ferroce_sys::Error as SystemError;

/// Any error of this library, for applications that pass errors on with `?`.
///
/// The operations return narrower types; each of them converts into this one. A call that fails has changed nothing.
///
/// ```
/// use ferroce::{Device, Error, OpenError};
///
/// fn open() -> Result<(), Error> {
///     Device::named("no_such_device")?;
///     Ok(())
/// }
///
/// let error = open().unwrap_err();
/// assert!(matches!(error, Error::Open(OpenError::NoDevice { .. })));
/// assert_eq!(error.errno(), 19); // ENODEV
/// ```
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
#[non_exhaustive]
pub enum Error {
    /// A value of the environment is invalid.
    Environment(#[from] EnvironmentError),
    /// A device was not found or not opened.
    Open(#[from] OpenError),
    /// Memory was not registered, changed or deregistered.
    Memory(#[from] MemoryError),
    /// A queue pair, completion queue, shared receive queue or address handle was not created.
    Create(#[from] CreateError),
    /// A queue was not resized.
    Resize(#[from] ResizeError),
    /// A queue pair was not modified.
    Modify(#[from] ModifyError),
    /// A work request was not posted.
    Post(#[from] PostError),
    /// A queue pair was not attached to a multicast group.
    Multicast(#[from] MulticastError),
    /// There is no route for an address vector.
    Route(#[from] RouteError),
    /// Waiting for a completion or an event failed.
    Wait(#[from] WaitError),
    /// The connection manager refused a call.
    Cm(#[from] CmError),
    /// A set-up exchange failed.
    Setup(#[from] SetupExchangeError),
    /// The operating system refused a call.
    System(#[from] SystemError),
}

impl Error {
    /// Returns the cause if it is an invalid environment variable.
    pub fn environment(&self) -> Option<&EnvironmentError> {
        match self {
            Self::Environment(error)
            | Self::Open(OpenError::Environment(error))
            | Self::Cm(CmError::Open(OpenError::Environment(error))) => Some(error),
            _ => None,
        }
    }

    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Environment(error) => error.errno(),
            Self::Open(error) => error.errno(),
            Self::Memory(error) => error.errno(),
            Self::Create(error) => error.errno(),
            Self::Resize(error) => error.errno(),
            Self::Modify(error) => error.errno(),
            Self::Post(error) => error.errno(),
            Self::Multicast(error) => error.errno(),
            Self::Route(error) => error.errno(),
            Self::Wait(error) => error.errno(),
            Self::Cm(error) => error.errno(),
            Self::Setup(error) => error.errno(),
            Self::System(error) => error.errno(),
        }
    }
}

#[cfg(test)]
mod tests {
    use ferroce_sys::errno::{EBUSY, EINVAL, ENODEV, ENOMEM};

    use super::*;

    #[test]
    fn error_numbers_pass_through_the_umbrella() {
        let cases: [(Error, i32); 5] = [
            (OpenError::NoDevice { name: "x".into() }.into(), ENODEV),
            (CreateError::AboveLimit { what: "SGEs", given: 33, max: 32 }.into(), EINVAL),
            (PostError::SendQueueFull.into(), ENOMEM),
            (CmError::from(CreateError::NoQueueNumbers).into(), ENOMEM),
            (CmError::HasQueuePair.into(), EBUSY),
        ];
        for (error, number) in cases {
            assert_eq!(error.errno(), number, "{error}");
        }
    }

    #[test]
    fn messages_name_the_value_and_its_limit() {
        let error = Error::from(PostError::TooManySges { given: 3, max: 2 });
        assert_eq!(error.to_string(), "the work request has 3 SGEs; the queue was created for 2");
    }
}
