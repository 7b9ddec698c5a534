//! Facts about this host, as plain values: the checks decide from these alone, so that tests can inject any host.

mod devices;
mod kernel;
mod port;
mod sockets;

use std::collections::BTreeMap;

pub(super) use devices::{Carrier, InterfaceFacts};
pub(super) use kernel::{Kernel, Limit, NET_RAW};
pub(super) use port::{Firewall, Holder, PortFacts};
pub(super) use sockets::SocketFacts;

/// What is known about this host and this process.
#[derive(Clone, Debug, Default)]
pub(super) struct System {
    pub(super) interfaces: Vec<InterfaceFacts>,
    /// The names of the devices and their interfaces in the order in which programs see them.
    pub(super) devices: Vec<(String, String)>,
    /// Why the devices cannot be listed.
    pub(super) device_error: Option<String>,
    pub(super) port: PortFacts,
    pub(super) sockets: Option<Result<SocketFacts, String>>,
    /// Why memory cannot be shared between processes, if it cannot.
    pub(super) sharing_error: Option<String>,
    pub(super) kernel: Kernel,
    pub(super) environment: BTreeMap<String, String>,
    /// The folder of the libraries for `ferroce run`, or why they are missing.
    pub(super) libraries: Option<Result<String, String>>,
}

/// The environment variables of this process.
pub(super) fn environment() -> BTreeMap<String, String> {
    let text = |text: std::ffi::OsString| text.to_string_lossy().into_owned();
    std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
}

impl System {
    /// Reads the facts of this host.
    pub(super) fn read() -> Self {
        let (devices, device_error) = match ferroce::devices() {
            Ok(found) => (found, None),
            Err(error) => (Vec::new(), Some(error.to_string())),
        };
        let kernel = Kernel::read();
        Self {
            interfaces: devices::interfaces(),
            sockets: devices
                .first()
                .and_then(|device| device.gids().first().copied())
                .map(|entry| sockets::probe(entry.address)),
            devices: devices
                .iter()
                .map(|device| (device.name().to_owned(), device.interface().name.clone()))
                .collect(),
            device_error,
            port: port::read(&kernel),
            sharing_error: ferroce_sys::Hub::new().err().map(|error| error.to_string()),
            kernel,
            environment: environment(),
            libraries: Some(crate::environment::library_folder()),
        }
    }

    /// The value of an environment variable that is set and not empty.
    pub(super) fn variable(&self, name: &str) -> Option<&str> {
        self.environment.get(name).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The interface of a device.
    pub(super) fn interface(&self, name: &str) -> Option<&InterfaceFacts> {
        self.interfaces.iter().find(|interface| interface.name == name)
    }
}
