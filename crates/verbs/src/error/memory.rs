//! Memory regions and windows.

use ferroce_memory::{DeregisterError, RegisterError, ReregisterError, WindowError};
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
