//! The services this process listens for, on all addresses of a device.

use std::net::SocketAddr;
use std::sync::Mutex;

use ferroce_sys::{Event, Service};

use crate::error::SystemError;
use crate::sync::lock;

#[derive(Debug)]
pub(crate) struct Services {
    pub(super) slot: u8,
    claimed: Mutex<Vec<Service>>,
    /// Signalled when a service is bound or released; the device thread watches it to update the steering table. `None` if
    /// the process had no free descriptor.
    pub(crate) changed: Option<Event>,
}

impl Services {
    pub(crate) fn new(slot: u8) -> Self {
        Self { slot, claimed: Mutex::default(), changed: Event::new().ok() }
    }

    /// Claims a service on an address: nobody else has it then, in this process or another.
    pub(crate) fn claim(&self, address: SocketAddr, id: u64) -> Result<(), SystemError> {
        let service = Service::claim(address, id, self.slot)?;
        lock(&self.claimed).push(service);
        self.signal();
        Ok(())
    }

    pub(crate) fn release(&self, address: SocketAddr, id: u64) {
        let mut claimed = lock(&self.claimed);
        let found = claimed.iter().position(|one| one.id() == id && one.address() == address);
        if let Some(index) = found {
            claimed.swap_remove(index);
            self.signal();
        }
    }

    pub(crate) fn has(&self, address: SocketAddr, id: u64) -> bool {
        lock(&self.claimed).iter().any(|one| one.id() == id && one.address() == address)
    }

    fn signal(&self) {
        if let Some(changed) = &self.changed {
            let _ = changed.signal();
        }
    }
}
