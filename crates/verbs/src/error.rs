//! What can go wrong when something is asked for.

use std::fmt;
use std::io;
use std::path::PathBuf;

use ferroce_memory::{DeregisterError, RegisterError, ReregisterError, WindowError};
use ferroce_proto::endpoint::PostError;
use ferroce_proto::qp::ModifyError;
use ferroce_proto::setup::SetupError;

/// Why a call was refused. Nothing has changed then.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// The operating system refused: the message says what to do.
    Network(ferroce_sys::Error),
    /// A set-up exchange failed.
    Setup(SetupError),
    /// The file for the capture cannot be written.
    Capture {
        /// Its name.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// There is no device of this name.
    NoDevice(String),
    /// The device has no address, so nobody could reach it.
    NoAddress(String),
    /// The MTU of the interface is too small for RoCE's smallest packets.
    MtuTooSmall {
        /// The interface.
        interface: String,
        /// Its MTU.
        mtu: u32,
    },
    /// No memory region of this kind.
    Register(RegisterError),
    /// The region cannot be changed so.
    Reregister(ReregisterError),
    /// The region cannot go.
    Deregister(DeregisterError),
    /// The window cannot be used so.
    Window(WindowError),
    /// The queue pair cannot be changed so.
    QueuePairAttributes(ModifyError),
    /// The work request was not taken.
    Post(PostError),
    /// The receive queue is full.
    ReceiveQueueFull,
    /// Something else still uses it: destroy that first.
    Busy(&'static str),
    /// More than the device has, or allows.
    Limit(&'static str),
    /// A value that has no meaning here.
    Invalid(&'static str),
    /// The device was closed, or the process is a child that has to open it anew.
    Closed,
}

impl Error {
    /// The number that a verbs program finds in `errno`.
    pub fn errno(&self) -> i32 {
        use ferroce_sys::errno::*;
        match self {
            Self::Network(error) => error.errno(),
            Self::Capture { source, .. } => source.raw_os_error().unwrap_or(EIO),
            Self::Setup(SetupError::NoAnswer { .. }) => ETIMEDOUT,
            Self::Setup(_) => ECONNREFUSED,
            Self::NoDevice(_) | Self::NoAddress(_) | Self::Closed => ENODEV,
            Self::MtuTooSmall { .. } | Self::Invalid(_) | Self::QueuePairAttributes(_) => EINVAL,
            Self::Register(error) => error.errno(),
            Self::Reregister(error) => error.errno(),
            Self::Deregister(error) => error.errno(),
            Self::Window(error) => error.errno(),
            Self::Post(PostError::Full) | Self::ReceiveQueueFull | Self::Limit(_) => ENOMEM,
            Self::Post(_) => EINVAL,
            Self::Busy(_) => EBUSY,
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Network(error) => error.fmt(f),
            Self::Setup(error) => error.fmt(f),
            Self::Capture { path, source } => {
                write!(f, "cannot write the capture {}: {source}", path.display())
            }
            Self::NoDevice(name) => {
                write!(f, "there is no device {name}: `ferroce devices` lists those that there are")
            }
            Self::NoAddress(name) => write!(
                f,
                "{name} has no address: give it one, for example `ip address add 192.0.2.1/24 dev {name}`"
            ),
            Self::MtuTooSmall { interface, mtu } => write!(
                f,
                "the MTU of {interface} is {mtu}, and RoCE's smallest packets need 328: \
                 `ip link set {interface} mtu 1500`"
            ),
            Self::Register(error) => error.fmt(f),
            Self::Reregister(error) => error.fmt(f),
            Self::Deregister(error) => error.fmt(f),
            Self::Window(error) => error.fmt(f),
            Self::QueuePairAttributes(error) => error.fmt(f),
            Self::Post(error) => f.write_str(match error {
                PostError::State => "the queue pair's state takes no sends",
                PostError::Full => "the send queue is full: poll its completions first",
                PostError::Length => "the message is too long for the service, or not 8 bytes",
                PostError::Operation => "the service has no such operation",
                PostError::Address => {
                    "datagrams need an address, XRC a shared receive queue, and others neither"
                }
            }),
            Self::ReceiveQueueFull => {
                f.write_str("the receive queue is full: poll its completions first")
            }
            Self::Busy(by) => write!(f, "still in use by {by}"),
            Self::Limit(what) => write!(f, "the device allows no more {what}"),
            Self::Invalid(what) => f.write_str(what),
            Self::Closed => f.write_str("the device is closed"),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Network(error) => Some(error),
            Self::Capture { source, .. } => Some(source),
            _ => None,
        }
    }
}

macro_rules! from {
    ($($type:ty => $variant:ident),+ $(,)?) => {$(
        impl From<$type> for Error {
            fn from(error: $type) -> Self {
                Self::$variant(error)
            }
        }
    )+};
}

from! {
    ferroce_sys::Error => Network,
    RegisterError => Register,
    ReregisterError => Reregister,
    DeregisterError => Deregister,
    WindowError => Window,
    ModifyError => QueuePairAttributes,
    PostError => Post,
    SetupError => Setup,
}
