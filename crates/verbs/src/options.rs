//! Options for opening a device.

use std::ffi::OsString;
use std::fmt::Display;
use std::path::PathBuf;
use std::time::Duration;

use ferroce_proto::congestion::Congestion;
use ferroce_sys::environment;
use ferroce_tap::CapturePolicy;

use crate::error::EnvironmentError;
use ferroce_links::faults::Faults;

/// Options for opening a device.
///
/// [`Options::default`] suits most programs and reads no environment variable; [`Options::from_env`] lets the user of a
/// program capture its packets or inject faults.
///
/// ```
/// use ferroce::{Faults, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let faults: Faults = "loss=1%,seed=7".parse()?;
/// let options = Options { port: 9000, faults: Some(faults), ..Options::default() };
/// # assert_eq!(options.port, 9000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Socket features to use, and buffer sizes.
    pub sockets: ferroce_sys::Options,
    /// UDP port, 4791 by default. Devices with another port reach only each other: useful for tests that must not see
    /// other traffic.
    pub port: u16,
    /// Congestion control of the queue pairs. `None` limits the data in flight to what the receive buffer holds, because
    /// the peer's is likely to be as large.
    pub congestion: Option<Congestion>,
    /// A pcapng file to write all packets to; `%p` in its name is the process ID. Devices of a process share it. See
    /// [`Context::capture_status`](crate::Context::capture_status).
    pub capture: Option<PathBuf>,
    /// What happens when packets come faster than they can be written to that file.
    pub capture_policy: CapturePolicy,
    /// Faults to inject into the received packets.
    pub faults: Option<Faults>,
    /// The number of shards, each with sockets and a thread of its own, so that threads with different CQs can use different
    /// cores; at most [`MAX_SHARDS`]. Queue pairs that share a CQ or a channel are in the same shard. `None` is one.
    pub shards: Option<u8>,
    /// How packets reach processes of the same user on this host.
    pub local: Local,
    /// How long the peer of an idle RC queue pair may be silent before it is asked whether it is still there. If it does
    /// not answer within the ACK timeout and its retries, the queue pair enters ERR, with the event
    /// [`QueuePairFatal`](crate::EventKind::QueuePairFatal). `None` never asks, as on hardware. Through shared memory the
    /// end of a peer is noticed at once.
    pub keepalive: Option<Duration>,
}

/// How packets reach processes of the same user on the same host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Local {
    /// Those of connected queue pairs through memory that both processes share, if both choose this.
    #[default]
    Memory,
    /// Through sockets, as to other hosts, so that packet sniffers see them.
    Sockets,
}

/// The maximum of [`Options::shards`].
pub const MAX_SHARDS: u8 = 16;

impl Default for Options {
    fn default() -> Self {
        Self {
            sockets: ferroce_sys::Options::default(),
            port: ferroce_sys::ROCE_PORT,
            congestion: None,
            capture: None,
            capture_policy: CapturePolicy::default(),
            faults: None,
            shards: None,
            local: Local::default(),
            keepalive: None,
        }
    }
}

impl Options {
    /// The number of shards.
    pub(crate) fn shard_count(&self) -> usize {
        usize::from(self.shards.unwrap_or(1).clamp(1, MAX_SHARDS))
    }

    /// Returns the default options with those that the environment sets.
    ///
    /// | variable | option | value |
    /// |---|---|---|
    /// | `FERROCE_CAPTURE` | [`capture`](Self::capture) | a path |
    /// | `FERROCE_CAPTURE_POLICY` | [`capture_policy`](Self::capture_policy) | `block` or `drop` |
    /// | `FERROCE_FAULTS` | [`faults`](Self::faults) | see [`Faults`] |
    /// | `FERROCE_SHARDS` | [`shards`](Self::shards) | 1 to 16 |
    /// | `FERROCE_LOCAL` | [`local`](Self::local) | `memory` or `sockets` |
    /// | `FERROCE_KEEPALIVE` | [`keepalive`](Self::keepalive) | seconds, from 1 to 86400 |
    ///
    /// An empty value is the same as none. A set-user-ID program ignores all of them.
    ///
    /// # Errors
    ///
    /// When a value is invalid.
    pub fn from_env() -> Result<Self, EnvironmentError> {
        Self::from_variables(|name| environment::var_os(name).filter(|value| !value.is_empty()))
    }

    fn from_variables(value: impl Fn(&str) -> Option<OsString>) -> Result<Self, EnvironmentError> {
        let faults = |text: &str| text.parse().ok();
        let shards =
            |text: &str| text.parse().ok().filter(|number| (1..=MAX_SHARDS).contains(number));
        let keepalive = |text: &str| {
            let seconds = text.parse().ok().filter(|seconds| (1..=86_400).contains(seconds));
            seconds.map(Duration::from_secs)
        };
        let local = |text: &str| match text {
            "sockets" => Some(Local::Sockets),
            "memory" => Some(Local::Memory),
            _ => None,
        };
        let policy = |text: &str| match text {
            "block" => Some(CapturePolicy::Block),
            "drop" => Some(CapturePolicy::Drop),
            _ => None,
        };
        Ok(Self {
            capture: value("FERROCE_CAPTURE").map(PathBuf::from),
            faults: parse(&value, "FERROCE_FAULTS", Faults::SYNTAX, faults)?,
            shards: parse(&value, "FERROCE_SHARDS", "a number from 1 to 16", shards)?,
            keepalive: parse(&value, "FERROCE_KEEPALIVE", "seconds, from 1 to 86400", keepalive)?,
            local: parse(&value, "FERROCE_LOCAL", "memory or sockets", local)?.unwrap_or_default(),
            capture_policy: parse(&value, "FERROCE_CAPTURE_POLICY", "block or drop", policy)?
                .unwrap_or_default(),
            ..Self::default()
        })
    }
}

/// Returns what the value of a variable means, or `None` without one.
pub(crate) fn parse<T>(
    value: impl Fn(&str) -> Option<OsString>,
    name: &'static str,
    expected: impl Display,
    meaning: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, EnvironmentError> {
    let Some(value) = value(name) else { return Ok(None) };
    let known = value.to_str().and_then(meaning);
    known.map(Some).ok_or_else(|| EnvironmentError::new(name, value, expected))
}

#[cfg(test)]
mod tests;
