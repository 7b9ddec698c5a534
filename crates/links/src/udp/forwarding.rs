//! Forwarding packets that reached this process but belong to another one: through its mailbox, or queued in the
//! [backlog](ferroce_device::forwarding) until the mailbox has space.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_device::forwarding::{self, Backlog, Busy, Cost};
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

/// What became of a packet for another process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forwarded {
    /// Its mailbox has the packet.
    Sent,
    /// The packet is queued until the mailbox has space.
    Queued,
    /// The packet is lost.
    Failed,
    /// The packet is lost: no process has this slot or service.
    NoOwner,
}

/// What became of queued packets.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Retried {
    /// The packets that mailboxes have now.
    pub sent: u64,
    /// The packets that are lost.
    pub failed: u64,
}

impl Forwarding {
    /// Whether no packets are queued.
    pub fn is_empty(&self) -> bool {
        !self.some.load(Ordering::Acquire)
    }

    /// Forwards packets that arrived at the address `local` to their owner, now or later.
    pub fn forward(
        &self,
        addresses: &Addresses,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        data: &[u8],
    ) -> Forwarded {
        let mut backlog = self.backlog.lock();
        let send = || or_busy(send(addresses, local, to, info, data));
        let packet = || ForwardedPacket { local, info: *info, data: data.into() };
        match backlog.forward(to, send, packet) {
            forwarding::Forwarded::Sent(Ok(())) => Forwarded::Sent,
            forwarding::Forwarded::Sent(Err(Error::NoOwner)) => Forwarded::NoOwner,
            forwarding::Forwarded::Sent(Err(_)) | forwarding::Forwarded::Dropped => {
                Forwarded::Failed
            }
            forwarding::Forwarded::Queued => {
                self.some.store(true, Ordering::Release);
                Forwarded::Queued
            }
        }
    }

    /// Retries the queued packets.
    pub fn retry(&self, addresses: &Addresses) -> Retried {
        let mut retried = Retried::default();
        if self.is_empty() {
            return retried;
        }
        let _guard = Uncancellable::new();
        let mut backlog = self.backlog.lock();
        backlog.retry(|to, packet| {
            match or_busy(send(addresses, packet.local, to, &packet.info, &packet.data))? {
                Ok(()) => retried.sent += 1,
                Err(_) => retried.failed += 1,
            }
            Ok(())
        });
        self.some.store(!backlog.is_empty(), Ordering::Release);
        retried
    }
}

/// Separates an owner that is busy, for which a packet waits, from one that has answered.
fn or_busy(sent: Result<(), Error>) -> Result<Result<(), Error>, Busy> {
    match sent {
        Err(Error::OwnerBusy) => Err(Busy),
        answered => Ok(answered),
    }
}

fn send(
    addresses: &Addresses,
    local: SocketAddr,
    to: Recipient,
    info: &RxInfo,
    data: &[u8],
) -> Result<(), Error> {
    let own = addresses.iter().find(|own| own.address == local).ok_or(Error::NoOwner)?;
    own.slot.forward(to, info, data)
}
