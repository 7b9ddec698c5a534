//! Finding and opening devices.

use std::ffi::OsString;
use std::io;

use ferroce_sys::Error as SystemError;
use ferroce_sys::errno::{EINVAL, EIO, ENODEV, ENOMEM};
use ferroce_tap::CaptureError;

/// A `FERROCE_*` environment variable has an invalid value.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{variable}={value:?} is invalid: {expected}")]
#[non_exhaustive]
pub struct EnvironmentError {
    /// The name of the variable.
    pub variable: &'static str,
    /// Its value.
    pub value: OsString,
    /// The values that are allowed.
    pub expected: String,
}

impl EnvironmentError {
    pub(crate) fn new(
        variable: &'static str,
        value: OsString,
        expected: impl std::fmt::Display,
    ) -> Self {
        Self { variable, value, expected: expected.to_string() }
    }

    /// Returns the `errno` of a verbs program: `EINVAL`.
    pub fn errno(&self) -> i32 {
        EINVAL
    }
}

/// Why a device was not found or not opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// No device or interface has this name.
    #[error("there is no device {name}; `ferroce devices` lists the devices of this host")]
    NoDevice {
        /// The name.
        name: String,
    },
    /// The interface has no IP address.
    #[error(
        "{interface} has no IP address; add one, for example `ip address add 192.0.2.1/24 dev {interface}`"
    )]
    NoAddress {
        /// The interface.
        interface: String,
    },
    /// The MTU of the interface is too small for RoCE's smallest packets.
    #[error(
        "the MTU of {interface} is {mtu}, but RoCE needs at least 328; `ip link set {interface} mtu 1500`"
    )]
    MtuTooSmall {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
    },
    /// The capture file cannot be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// The device thread could not be started.
    #[error("cannot start the device thread: {0}")]
    Thread(#[source] io::Error),
    /// An environment variable that selects or names devices is invalid.
    #[error(transparent)]
    Environment(#[from] EnvironmentError),
    /// The operating system refused a call.
    #[error(transparent)]
    System(#[from] SystemError),
}

impl OpenError {
    /// Returns the number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        match self {
            Self::NoDevice { .. } | Self::NoAddress { .. } => ENODEV,
            Self::MtuTooSmall { .. } => EINVAL,
            Self::Capture(error) => error.source.raw_os_error().unwrap_or(EIO),
            Self::Thread(_) => ENOMEM,
            Self::Environment(error) => error.errno(),
            Self::System(error) => error.errno(),
        }
    }
}
