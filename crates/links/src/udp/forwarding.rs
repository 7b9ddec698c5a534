//! Forwarding packets that reached this process but belong to another one: through its mailbox, or queued in the
//! [backlog](ferroce_device::forwarding) until the mailbox has space.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_device::forwarding::{Backlog, Busy, Cost, Forwarded};
use ferroce_device::tuning::forwarding::MAX_BACKLOG_BYTES;
use ferroce_sync::Mutex;
use ferroce_sys::{Error, Recipient, RxInfo, Uncancellable};

use super::addresses::Addresses;

#[derive(Debug)]
struct ForwardedPacket {
    local: SocketAddr,
    info: RxInfo,
    data: Box<[u8]>,
}

impl Cost for ForwardedPacket {
    /// The allocator adds about two words.
    fn cost(&self) -> usize {
        self.data.len() + size_of::<Self>() + 2 * size_of::<usize>()
    }
}

/// The packets for other processes that are busy.
#[derive(Debug)]
pub struct Forwarding {
    backlog: Mutex<Backlog<Recipient, ForwardedPacket>>,
    /// Packets are queued. Spares a pass the lock.
    some: AtomicBool,
}

impl Default for Forwarding {
    fn default() -> Self {
        Self { backlog: Mutex::new(Backlog::new(MAX_BACKLOG_BYTES)), some: AtomicBool::new(false) }
    }
}

impl Forwarding {
    /// Whether no packets are queued.
    pub fn is_empty(&self) -> bool {
        !self.some.load(Ordering::Acquire)
    }

    /// Forwards packets that arrived at the address `local` to their owner, now or when its mailbox has space. They are lost if it
    /// answers with an error: [`Error::NoOwner`] if no process has this slot or service.
    pub fn forward(
        &self,
        addresses: &Addresses,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        data: &[u8],
    ) -> Forwarded<Result<(), Error>> {
        let mut backlog = self.backlog.lock();
        let send = || send(addresses, local, to, info, data);
        let packet = || ForwardedPacket { local, info: *info, data: data.into() };
        let forwarded = backlog.forward(to, send, packet);
        if matches!(forwarded, Forwarded::Queued) {
            self.some.store(true, Ordering::Release);
        }
        forwarded
    }

    /// Retries the queued packets. Calls `each` with the answers of their owners.
    pub fn retry(&self, addresses: &Addresses, mut each: impl FnMut(Result<(), Error>)) {
        if self.is_empty() {
            return;
        }
        let _guard = Uncancellable::new();
        let mut backlog = self.backlog.lock();
        backlog.retry(|to, packet| {
            each(send(addresses, packet.local, to, &packet.info, &packet.data)?);
            Ok(())
        });
        self.some.store(!backlog.is_empty(), Ordering::Release);
    }
}

/// Sends packets to their owner, and returns its answer. They wait for an owner that is busy.
fn send(
    addresses: &Addresses,
    local: SocketAddr,
    to: Recipient,
    info: &RxInfo,
    data: &[u8],
) -> Result<Result<(), Error>, Busy> {
    let own = addresses.iter().find(|own| own.address == local).ok_or(Error::NoOwner);
    match own.and_then(|own| own.slot.forward(to, info, data)) {
        Err(Error::OwnerBusy) => Err(Busy),
        answer => Ok(answer),
    }
}
