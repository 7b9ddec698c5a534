//! What can go wrong, one type for each operation, and the `errno` that verbs report for it.

use std::fmt;

use ferroce_proto::memory::Denied;

macro_rules! errors {
    ($( $(#[$meta:meta])+ pub enum $name:ident { $( $(#[doc = $doc:literal])+ $variant:ident => $errno:ident, $text:literal; )+ } )+) => {$(
        $(#[$meta])+
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum $name { $( $(#[doc = $doc])+ $variant, )+ }

        impl $name {
            /// The error number that verbs report.
            pub const fn errno(self) -> i32 {
                match self { $( Self::$variant => libc::$errno, )+ }
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
    /// Why memory was not registered.
    pub enum RegisterError {
        /// Peers may write, but the owner may not; or a flag that nobody knows.
        Access => EINVAL, "this combination of access flags is not allowed";
        /// Peers may flush to persistence, but the memory is not known to be persistent.
        Persistence => EOPNOTSUPP, "the memory is not persistent: register it without FLUSH_PERSISTENT";
        /// The range, or the addresses it is to have, goes beyond the last address.
        Range => EINVAL, "the range does not fit into the address space";
        /// Not all of the range is mapped, readable, and writable if it is to be written.
        Fault => EFAULT, "not all of the range is mapped and accessible";
        /// No key is left.
        Full => ENOMEM, "no memory key is left";
        /// The kernel does not offer, or forbids, what this kind of region needs.
        Unsupported => EOPNOTSUPP, "the system does not let a process examine its memory";
    }

    /// Why a region stays registered.
    pub enum DeregisterError {
        /// There is no such region, or none any more.
        Key => EINVAL, "no region has this key";
        /// A window is bound to it (IBA 10.6.7.2.5).
        Busy => EBUSY, "a memory window is bound to the region";
    }

    /// Why a window was not allocated or freed.
    pub enum WindowError {
        /// There is no such window, or none any more.
        Key => EINVAL, "no window has this key";
        /// No key is left.
        Full => ENOMEM, "no memory key is left";
    }
}

/// Why a region stays as it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ReregisterError {
    /// It could not be registered so.
    Register(RegisterError),
    /// It could not be deregistered either.
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

/// Why a SGE cannot be handed to the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PinError {
    /// It may not be used so.
    Denied(Denied),
    /// It may, but has no address that is sure to stay: copy it, by way of [`ferroce_proto::memory::Memory`].
    Copy,
}

impl From<Denied> for PinError {
    fn from(denied: Denied) -> Self {
        Self::Denied(denied)
    }
}
