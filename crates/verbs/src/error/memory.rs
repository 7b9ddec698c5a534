//! Memory regions and windows.

use ferroce_memory::{DeregisterError, OutOfBounds, RegisterError, ReregisterError, WindowError};
use ferroce_proto::memory::Denied;
use ferroce_sys::errno::ENOMEM;

/// Why a memory region (MR) or memory window (MW) was not registered, changed or deregistered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum MemoryError {
    /// The allocation failed.
    #[error("cannot allocate {length} bytes")]
    Allocate {
        /// The requested length.
        length: usize,
    },
    /// The region was not registered.
    #[error(transparent)]
    Register(#[from] RegisterError),
    /// The region was not changed.
    #[error(transparent)]
    Reregister(#[from] ReregisterError),
    /// The region is still registered.
    #[error(transparent)]
    Deregister(#[from] DeregisterError),
    /// The window was not allocated.
    #[error(transparent)]
    Window(#[from] WindowError),
}

impl MemoryError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::Allocate { .. } => ENOMEM,
            Self::Register(error) => error.errno(),
            Self::Reregister(error) => error.errno(),
            Self::Deregister(error) => error.errno(),
            Self::Window(error) => error.errno(),
        }
    }
}

/// Why bytes were not copied into or out of a memory region (MR).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CopyError {
    /// The part is not within the region.
    #[error("the part is not within the memory region")]
    OutOfBounds,
    /// The memory was registered by address, and not for writing.
    #[error("the memory was registered without LOCAL_WRITE")]
    ReadOnly,
    /// The program has unmapped the memory or changed its protection.
    #[error("the registered memory is not mapped any more, or not with these permissions")]
    Unmapped,
}

impl CopyError {
    /// The region exists and the part is within it.
    pub(crate) fn from_denied(denied: Denied) -> Self {
        match denied {
            Denied::Access => Self::ReadOnly,
            _ => Self::Unmapped,
        }
    }
}

impl From<OutOfBounds> for CopyError {
    fn from(_: OutOfBounds) -> Self {
        Self::OutOfBounds
    }
}
