//! How a device is opened.

use std::path::PathBuf;

use ferroce_proto::congestion::Congestion;
use ferroce_sys::environment;

use crate::faults::Faults;

/// Choices that are made when a device is opened. The default is right for most.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// Which features of sockets to use, and their buffers.
    pub sockets: ferroce_sys::Options,
    /// The UDP port, 4791 for all the world. Devices with another one reach only each other: for tests that must not
    /// meet the traffic of others.
    pub port: u16,
    /// What bounds how much a queue pair has under way; `None` takes what the receive buffer that the system gave us
    /// holds, for the peer's is likely to be the same.
    pub congestion: Option<Congestion>,
    /// A file to write all packets to, in pcapng; `%p` in its name is the process's number. Devices of one process
    /// share it. See [`crate::Context::capture_status`].
    pub capture: Option<PathBuf>,
    /// A network that fails on purpose.
    pub faults: Option<Faults>,
}

impl Default for Options {
    /// `FERROCE_CAPTURE` names a file to write all packets to, `FERROCE_FAULTS` the faults of the network, as [`Faults`]
    /// are written. Faults that are not understood are none: commands look at the variable themselves, and say so. A
    /// set-user-ID program ignores both.
    fn default() -> Self {
        let faults = environment::var_os("FERROCE_FAULTS");
        let faults = faults.and_then(|text| text.to_str()?.parse().ok());
        let capture = environment::var_os("FERROCE_CAPTURE").filter(|path| !path.is_empty());
        Self {
            sockets: ferroce_sys::Options::default(),
            port: ferroce_sys::ROCE_PORT,
            congestion: None,
            capture: capture.map(PathBuf::from),
            faults,
        }
    }
}
