//! The exchanges of a server, up to its limit, by ID and by handle, each with one timer.

use alloc::collections::{BTreeMap, BTreeSet};

use ferroce_wire::setup::ExchangeId;

use super::exchange::Exchange;
use crate::setup::Peer;
use crate::time::Instant;

#[derive(Debug)]
pub(super) struct Table {
    limit: usize,
    next_serial: u64,
    exchanges: BTreeMap<u64, Entry>,
    /// By client and exchange ID.
    names: BTreeMap<(Peer, u32), u64>,
    timers: BTreeSet<(Instant, u64)>,
    /// Exchanges that only did discovery, oldest first. They hold no resources, so they can be evicted.
    evictable: BTreeSet<u64>,
}

#[derive(Debug)]
struct Entry {
    exchange: Exchange,
    timer: Option<Instant>,
    /// Events not polled yet. They keep the entry, so that the number of entries bounds them.
    events: usize,
    /// Remove the entry when the last event is polled.
    removed: bool,
}

impl Table {
    pub(super) fn new(limit: usize) -> Self {
        Self {
            limit,
            next_serial: 0,
            exchanges: BTreeMap::new(),
            names: BTreeMap::new(),
            timers: BTreeSet::new(),
            evictable: BTreeSet::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.exchanges.len()
    }

    pub(super) fn find(&self, peer: Peer, id: ExchangeId) -> Option<u64> {
        self.names.get(&(peer, id.0)).copied()
    }

    pub(super) fn get(&self, serial: u64) -> Option<&Exchange> {
        self.exchanges.get(&serial).filter(|entry| !entry.removed).map(|entry| &entry.exchange)
    }

    pub(super) fn get_mut(&mut self, serial: u64) -> Option<&mut Exchange> {
        let entry = self.exchanges.get_mut(&serial).filter(|entry| !entry.removed)?;
        Some(&mut entry.exchange)
    }

    /// Adds an exchange, evicting one without resources if needed; `None` when the table is full.
    pub(super) fn open(&mut self, exchange: Exchange) -> Option<u64> {
        if self.exchanges.len() >= self.limit {
            let oldest = *self.evictable.first()?;
            self.remove(oldest);
            if self.exchanges.len() >= self.limit {
                return None;
            }
        }
        let serial = self.next_serial;
        self.next_serial += 1;
        self.names.insert((exchange.peer, exchange.id.0), serial);
        self.evictable.insert(serial);
        let entry = Entry { exchange, timer: None, events: 0, removed: false };
        self.exchanges.insert(serial, entry);
        Some(serial)
    }

    /// The exchange holds resources: it can no longer be evicted.
    pub(super) fn retain(&mut self, serial: u64) {
        self.evictable.remove(&serial);
    }

    pub(super) fn set_timer(&mut self, serial: u64, at: Option<Instant>) {
        let Some(entry) = self.exchanges.get_mut(&serial) else { return };
        if let Some(before) = core::mem::replace(&mut entry.timer, at) {
            self.timers.remove(&(before, serial));
        }
        if let Some(at) = at {
            self.timers.insert((at, serial));
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        self.timers.first().map(|&(at, _)| at)
    }

    /// Returns an exchange with an expired timer, and stops the timer.
    pub(super) fn pop_expired(&mut self, now: Instant) -> Option<u64> {
        let &(at, serial) = self.timers.first()?;
        if at > now {
            return None;
        }
        self.set_timer(serial, None);
        Some(serial)
    }

    pub(super) fn remove(&mut self, serial: u64) {
        self.set_timer(serial, None);
        self.evictable.remove(&serial);
        let Some(entry) = self.exchanges.get_mut(&serial) else { return };
        entry.removed = true;
        let name = (entry.exchange.peer, entry.exchange.id.0);
        let unused = entry.events == 0;
        // The ID may belong to a later exchange now.
        if self.names.get(&name) == Some(&serial) {
            self.names.remove(&name);
        }
        if unused {
            self.exchanges.remove(&serial);
        }
    }

    /// An event of this exchange was queued.
    pub(super) fn event_queued(&mut self, serial: u64) {
        if let Some(entry) = self.exchanges.get_mut(&serial) {
            entry.events += 1;
        }
    }

    pub(super) fn event_polled(&mut self, serial: u64) {
        let Some(entry) = self.exchanges.get_mut(&serial) else { return };
        entry.events = entry.events.saturating_sub(1);
        if entry.removed && entry.events == 0 {
            self.exchanges.remove(&serial);
        }
    }
}
