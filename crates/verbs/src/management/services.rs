//! The services that this process listens for, on all addresses of a device: a claim of each, and a mailbox for what
//! other processes got.

use std::net::SocketAddr;
use std::sync::Mutex;

use ferroce_net::{ReceiveBatch, Service, Watch};

use crate::completion::lock;
use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Services {
    claimed: Mutex<Vec<Service>>,
    /// What the thread waits for. `None` when the process had no descriptor left.
    watch: Option<Watch>,
}

impl Services {
    pub(crate) fn new() -> Self {
        Self { claimed: Mutex::default(), watch: Watch::new().ok() }
    }

    /// A descriptor that is readable while a mailbox has something.
    pub(crate) fn watch(&self) -> Option<&Watch> {
        self.watch.as_ref()
    }

    /// Claims a service on an address: nobody else has it then, in this process or another.
    pub(crate) fn claim(&self, address: SocketAddr, id: u64) -> Result<(), Error> {
        let watch = self.watch.as_ref().ok_or(Error::Limit("descriptors to wait for"))?;
        let service = Service::claim(address, id)?;
        watch.add(&service)?;
        lock(&self.claimed).push(service);
        Ok(())
    }

    pub(crate) fn release(&self, address: SocketAddr, id: u64) {
        let mut claimed = lock(&self.claimed);
        let found = claimed.iter().position(|one| one.id() == id && one.address() == address);
        let Some(index) = found else { return };
        let service = claimed.swap_remove(index);
        if let Some(watch) = &self.watch {
            let _ = watch.remove(&service);
        }
    }

    pub(crate) fn has(&self, address: SocketAddr, id: u64) -> bool {
        lock(&self.claimed).iter().any(|one| one.id() == id && one.address() == address)
    }

    /// Takes messages out of the mailbox of this number, and says on which address it listens: `None` behind the last.
    /// What is done with them is done without our lock, for it may end a service.
    pub(crate) fn receive(
        &self,
        index: usize,
        batch: &mut ReceiveBatch,
    ) -> Option<(SocketAddr, usize)> {
        let claimed = lock(&self.claimed);
        let service = claimed.get(index)?;
        let count = service.receive(batch).unwrap_or(0);
        Some((service.address(), count))
    }
}
