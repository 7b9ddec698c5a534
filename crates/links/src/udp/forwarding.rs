//! Forwarding packets that reached this process but belong to another one: through its mailbox, or queued until the
//! mailbox has space.
//!
//! A mailbox holds few messages, whatever their size, and its owner may be waiting for a processor. Without the queue,
//! a host with more processes than cores would lose packets of one process because of another.

#[cfg(test)]
mod tests;

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

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

impl ForwardedPacket {
    /// The memory that it takes. The allocator adds about two words.
    fn cost(&self) -> usize {
        self.data.len() + size_of::<Self>() + 2 * size_of::<usize>()
    }
}

/// The packets for other processes that are busy.
#[derive(Debug, Default)]
pub struct Forwarding {
    backlog: Mutex<Backlog>,
    /// Packets are queued. Spares a pass the lock.
    some: AtomicBool,
}

/// The packets of each owner that is busy, in order. A queue is not empty.
#[derive(Debug, Default)]
struct Backlog {
    queues: HashMap<Recipient, VecDeque<ForwardedPacket>>,
    bytes: usize,
}

impl Backlog {
    /// Queues a packet. Returns false if there is too much already.
    fn push(&mut self, to: Recipient, packet: ForwardedPacket) -> bool {
        let bytes = self.bytes + packet.cost();
        if bytes > MAX_BACKLOG_BYTES {
            return false;
        }
        self.bytes = bytes;
        self.queues.entry(to).or_default().push_back(packet);
        true
    }

    /// Calls `send` with the packets of each owner, in order, until it is busy.
    fn retry(&mut self, mut send: impl FnMut(Recipient, &ForwardedPacket) -> Result<(), Error>) {
        let bytes = &mut self.bytes;
        self.queues.retain(|&to, queue| {
            while let Some(packet) = queue.front() {
                if matches!(send(to, packet), Err(Error::OwnerBusy)) {
                    return true;
                }
                *bytes -= packet.cost();
                queue.pop_front();
            }
            false
        });
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
        // In order: later packets must not overtake queued ones.
        let behind = backlog.queues.contains_key(&to);
        let sent =
            if behind { Err(Error::OwnerBusy) } else { send(addresses, local, to, info, data) };
        match sent {
            Ok(()) => Forwarded::Sent,
            Err(Error::OwnerBusy) => {
                let packet = ForwardedPacket { local, info: *info, data: data.into() };
                if !backlog.push(to, packet) {
                    return Forwarded::Failed;
                }
                self.some.store(true, Ordering::Release);
                Forwarded::Queued
            }
            Err(Error::NoOwner) => Forwarded::NoOwner,
            Err(_) => Forwarded::Failed,
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
            let sent = send(addresses, packet.local, to, &packet.info, &packet.data);
            match &sent {
                Ok(()) => retried.sent += 1,
                Err(Error::OwnerBusy) => {}
                Err(_) => retried.failed += 1,
            }
            sent
        });
        self.some.store(!backlog.queues.is_empty(), Ordering::Release);
        retried
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
