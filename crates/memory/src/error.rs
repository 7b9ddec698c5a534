//! Errors: one type per operation, with the `errno` that verbs report.

use std::fmt;

macro_rules! errors {
    ($( $(#[$meta:meta])+ pub enum $name:ident { $( $(#[doc = $doc:literal])+ $variant:ident => $errno:ident, $text:literal; )+ } )+) => {$(
        $(#[$meta])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[doc = $doc])+ $variant, )+ }

        impl $name {
            /// The error number that verbs report.
            pub const fn errno(self) -> i32 {
                match self { $( Self::$variant => ferroce_sys::errno::$errno, )+ }
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $( Self::$variant => $text, )+ })
            }
        }

        impl std::error::Error for $name {}
    )+};
}

errors! {
    /// Why registering memory failed.
    pub enum RegisterError {
        /// Remote write access without local write access, or an unknown flag.
        Access => EINVAL, "this combination of access flags is not allowed";
        /// Flush to persistence was requested for memory that is not known to be persistent.
        Persistence => EOPNOTSUPP, "the memory is not persistent: register it without FLUSH_PERSISTENT";
        /// The range, or its addresses for peers, exceeds the address space.
        Range => EINVAL, "the range does not fit into the address space";
        /// A part of the range is not mapped, not readable, or not writable as requested.
        Fault => EFAULT, "not all of the range is mapped and accessible";
        /// All keys are in use.
        Full => ENOMEM, "all memory keys are in use";
        /// The kernel does not support, or forbids, the system calls that this kind of region needs.
        Unsupported => EOPNOTSUPP, "the system forbids a process to examine its memory";
    }

    /// Why deregistering failed.
    pub enum DeregisterError {
        /// No region has this key.
        Key => EINVAL, "no region has this key";
        /// A window is bound to it (IBA 10.6.7.2.6).
        Busy => EBUSY, "a memory window is bound to the region";
    }

    /// Why allocating or deallocating a window failed.
    pub enum WindowError {
        /// No window has this key.
        Key => EINVAL, "no window has this key";
        /// All keys are in use.
        Full => ENOMEM, "all memory keys are in use";
    }
}

/// Why reregistering failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReregisterError {
    /// The new attributes are invalid.
    Register(RegisterError),
    /// The region does not exist, or windows are bound to it.
    Deregister(DeregisterError),
}

impl ReregisterError {
    /// The error number that verbs report.
    pub const fn errno(self) -> i32 {
        match self {
            Self::Register(error) => error.errno(),
            Self::Deregister(error) => error.errno(),
        }
    }
}

impl From<RegisterError> for ReregisterError {
    fn from(error: RegisterError) -> Self {
        Self::Register(error)
    }
}

impl From<DeregisterError> for ReregisterError {
    fn from(error: DeregisterError) -> Self {
        Self::Deregister(error)
    }
}

impl fmt::Display for ReregisterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Register(error) => error.fmt(f),
            Self::Deregister(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for ReregisterError {}
