//! Forwarding packets that reached this process but belong to another one: through its mailbox, or queued until the
//! mailbox has space.
//!
//! A mailbox holds few messages, whatever their size, and its owner may be waiting for a processor. Without the queue,
//! a host with more processes than cores would lose packets of one process because of another.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_sys::{Error, Recipient, RxInfo, Uncancellable};

use super::adapter::Adapter;
use super::counters::count;
use crate::sync::lock;

/// The maximum number of queued bytes.
const MAX_BACKLOG_BYTES: usize = 8 << 20;

#[derive(Debug)]
struct ForwardedPacket {
    local: SocketAddr,
    to: Recipient,
    info: RxInfo,
    data: Box<[u8]>,
}

#[derive(Debug, Default)]
pub(crate) struct Forwarding {
    backlog: Mutex<Backlog>,
    /// Packets are queued. Spares a pass the lock.
    some: AtomicBool,
}

#[derive(Debug, Default)]
struct Backlog {
    waiting: VecDeque<ForwardedPacket>,
    bytes: usize,
}

impl Forwarding {
    pub(crate) fn is_empty(&self) -> bool {
        !self.some.load(Ordering::Acquire)
    }
}

impl Adapter {
    /// Forwards packets to their owner, now or later. Returns whether an owner exists.
    pub(crate) fn forward(
        &self,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        data: &[u8],
    ) -> bool {
        let mut backlog = lock(&self.forwarding.backlog);
        // In order: later packets must not overtake queued ones.
        let behind = backlog.waiting.iter().any(|packet| packet.to == to);
        let sent =
            if behind { Err(Error::OwnerBusy) } else { self.forward_now(local, to, info, data) };
        match sent {
            Ok(()) => count(self.counters.forwarded_out()),
            Err(Error::OwnerBusy) if backlog.bytes + data.len() <= MAX_BACKLOG_BYTES => {
                backlog.bytes += data.len();
                backlog.waiting.push_back(ForwardedPacket {
                    local,
                    to,
                    info: *info,
                    data: data.into(),
                });
                self.forwarding.some.store(true, Ordering::Release);
            }
            Err(Error::NoOwner) => {
                count(self.counters.forward_failed());
                return false;
            }
            Err(_) => count(self.counters.forward_failed()),
        }
        true
    }

    fn forward_now(
        &self,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        data: &[u8],
    ) -> Result<(), Error> {
        let link =
            self.port.links.iter().find(|link| link.address == local).ok_or(Error::NoOwner)?;
        link.slot.forward(to, info, data)
    }

    /// Retries the queued packets.
    pub(crate) fn retry_forwarding(&self) {
        if self.forwarding.is_empty() {
            return;
        }
        let _guard = Uncancellable::new();
        let mut backlog = lock(&self.forwarding.backlog);
        let mut busy: Vec<Recipient> = Vec::new();
        let waiting = std::mem::take(&mut backlog.waiting);
        for packet in waiting {
            let sent = if busy.contains(&packet.to) {
                Err(Error::OwnerBusy)
            } else {
                self.forward_now(packet.local, packet.to, &packet.info, &packet.data)
            };
            match sent {
                Err(Error::OwnerBusy) => {
                    busy.push(packet.to);
                    backlog.waiting.push_back(packet);
                    continue;
                }
                Ok(()) => count(self.counters.forwarded_out()),
                Err(_) => count(self.counters.forward_failed()),
            }
            backlog.bytes -= packet.data.len();
        }
        self.forwarding.some.store(!backlog.waiting.is_empty(), Ordering::Release);
    }
}
