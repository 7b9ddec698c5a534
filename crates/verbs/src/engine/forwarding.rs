//! Packets that reached this process and are another's: handed over by its mailbox, or kept until there is room in it.
//!
//! Few messages fit into a mailbox, whatever their size, and its owner may have to wait for a processor: so what finds
//! no room is kept for a while. Without that, a host with more processes than cores would lose packets of one process
//! because of another.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::sync::Mutex;

use ferroce_sys::{Error, Recipient, RxInfo};

use super::adapter::Adapter;
use super::counters::count;
use crate::sync::lock;

/// Bytes that are kept at most.
const MOST: usize = 8 << 20;

#[derive(Debug)]
struct Detour {
    local: SocketAddr,
    to: Recipient,
    info: RxInfo,
    data: Box<[u8]>,
}

#[derive(Debug, Default)]
pub(crate) struct Forwarding(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    waiting: VecDeque<Detour>,
    bytes: usize,
}

impl Forwarding {
    pub(crate) fn is_empty(&self) -> bool {
        lock(&self.0).waiting.is_empty()
    }
}

impl Adapter {
    /// Hands packets over to whom they belong, now or a little later. Says whether there is somebody.
    pub(crate) fn forward(
        &self,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        data: &[u8],
    ) -> bool {
        let mut kept = lock(&self.forwarding.0);
        // In order: what came later does not overtake.
        let behind = kept.waiting.iter().any(|detour| detour.to == to);
        let sent =
            if behind { Err(Error::OwnerBusy) } else { self.hand_over(local, to, info, data) };
        match sent {
            Ok(()) => count(&self.counters.forwarded_out),
            Err(Error::OwnerBusy) if kept.bytes + data.len() <= MOST => {
                kept.bytes += data.len();
                kept.waiting.push_back(Detour { local, to, info: *info, data: data.into() });
            }
            Err(Error::NoOwner) => {
                count(&self.counters.forward_failed);
                return false;
            }
            Err(_) => count(&self.counters.forward_failed),
        }
        true
    }

    fn hand_over(
        &self,
        local: SocketAddr,
        to: Recipient,
        info: &RxInfo,
        data: &[u8],
    ) -> Result<(), Error> {
        let link = self.links.iter().find(|link| link.address == local).ok_or(Error::NoOwner)?;
        link.slot.forward(to, info, data)
    }

    /// Tries again with what was kept.
    pub(crate) fn run_forwarding(&self) {
        let mut kept = lock(&self.forwarding.0);
        if kept.waiting.is_empty() {
            return;
        }
        let mut busy: Vec<Recipient> = Vec::new();
        let waiting = std::mem::take(&mut kept.waiting);
        for detour in waiting {
            let sent = if busy.contains(&detour.to) {
                Err(Error::OwnerBusy)
            } else {
                self.hand_over(detour.local, detour.to, &detour.info, &detour.data)
            };
            match sent {
                Err(Error::OwnerBusy) => {
                    busy.push(detour.to);
                    kept.waiting.push_back(detour);
                    continue;
                }
                Ok(()) => count(&self.counters.forwarded_out),
                Err(_) => count(&self.counters.forward_failed),
            }
            kept.bytes -= detour.data.len();
        }
    }
}
