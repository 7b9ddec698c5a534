//! Options for opening a device.

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
/// let options = Options::default().with_port(9000).with_faults(faults);
/// assert_eq!(options.port, 9000);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
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

    fn from_variables(
        value: impl Fn(&str) -> Option<std::ffi::OsString>,
    ) -> Result<Self, EnvironmentError> {
        const FAULTS: &str = "FERROCE_FAULTS";
        const SHARDS: &str = "FERROCE_SHARDS";
        const LOCAL: &str = "FERROCE_LOCAL";
        const POLICY: &str = "FERROCE_CAPTURE_POLICY";
        const KEEPALIVE: &str = "FERROCE_KEEPALIVE";
        let capture = value("FERROCE_CAPTURE").map(PathBuf::from);
        let policy = value(POLICY).map(|value| match value.to_str() {
            Some("block") => Ok(CapturePolicy::Block),
            Some("drop") => Ok(CapturePolicy::Drop),
            _ => Err(EnvironmentError::new(POLICY, value, "block or drop")),
        });
        let faults = value(FAULTS).map(|value| match value.to_str().map(str::parse::<Faults>) {
            Some(Ok(faults)) => Ok(faults),
            _ => Err(EnvironmentError::new(FAULTS, value, Faults::SYNTAX)),
        });
        let shards = value(SHARDS).map(|value| {
            let number = value.to_str().and_then(|text| text.parse().ok());
            let valid = number.filter(|number| (1..=MAX_SHARDS).contains(number));
            valid.ok_or_else(|| EnvironmentError::new(SHARDS, value, "a number from 1 to 16"))
        });
        let local = value(LOCAL).map(|value| match value.to_str() {
            Some("sockets") => Ok(Local::Sockets),
            Some("memory") => Ok(Local::Memory),
            _ => Err(EnvironmentError::new(LOCAL, value, "memory or sockets")),
        });
        let keepalive = value(KEEPALIVE).map(|value| {
            let seconds = value.to_str().and_then(|text| text.parse().ok());
            let valid = seconds.filter(|seconds| (1..=86_400).contains(seconds));
            let time = valid.map(Duration::from_secs);
            time.ok_or_else(|| EnvironmentError::new(KEEPALIVE, value, "seconds, from 1 to 86400"))
        });
        let (faults, shards) = (faults.transpose()?, shards.transpose()?);
        let keepalive = keepalive.transpose()?;
        let local = local.transpose()?.unwrap_or_default();
        let capture_policy = policy.transpose()?.unwrap_or_default();
        Ok(Self { capture, capture_policy, faults, shards, local, keepalive, ..Self::default() })
    }

    /// Sets the socket features and buffer sizes.
    #[must_use]
    pub fn with_sockets(mut self, sockets: ferroce_sys::Options) -> Self {
        self.sockets = sockets;
        self
    }

    /// Sets the UDP port.
    #[must_use]
    pub fn with_port(mut self, port: u16) -> Self {
        self.port = port;
        self
    }

    /// Sets the congestion control.
    #[must_use]
    pub fn with_congestion(mut self, congestion: impl Into<Option<Congestion>>) -> Self {
        self.congestion = congestion.into();
        self
    }

    /// Sets the capture file.
    #[must_use]
    pub fn with_capture(mut self, capture: impl Into<Option<PathBuf>>) -> Self {
        self.capture = capture.into();
        self
    }

    /// Sets what happens when packets come faster than they can be written to the capture file.
    #[must_use]
    pub fn with_capture_policy(mut self, policy: CapturePolicy) -> Self {
        self.capture_policy = policy;
        self
    }

    /// Sets how many threads with sockets of their own may serve the queue pairs.
    #[must_use]
    pub fn with_shards(mut self, shards: impl Into<Option<u8>>) -> Self {
        self.shards = shards.into();
        self
    }

    /// Sets how packets reach processes of the same user on this host.
    #[must_use]
    pub fn with_local(mut self, local: Local) -> Self {
        self.local = local;
        self
    }

    /// Sets how long the peer of an idle RC queue pair may be silent before it is asked whether it is still there.
    #[must_use]
    pub fn with_keepalive(mut self, keepalive: impl Into<Option<Duration>>) -> Self {
        self.keepalive = keepalive.into();
        self
    }

    /// Sets the faults to inject.
    #[must_use]
    pub fn with_faults(mut self, faults: impl Into<Option<Faults>>) -> Self {
        self.faults = faults.into();
        self
    }
}

#[cfg(test)]
mod tests;
