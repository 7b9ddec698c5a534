//! The connections of a manager, with indices.

use alloc::collections::BTreeMap;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, ServiceId};
use ferroce_wire::number::{Guid, Qpn};

use super::connection::Connection;
use super::event::CallError;
use super::state::{State, Trigger};
use super::timer::Timers;

/// Source address, CA GUID, and a communication ID or QPN of the peer. The address would suffice for legitimate
/// peers; the GUID alone could be forged.
type RemoteName = (Gid, u64, u32);

#[derive(Debug, Default)]
pub(super) struct Table {
    connections: BTreeMap<u32, Connection>,
    by_remote_id: BTreeMap<RemoteName, CommId>,
    by_remote_qpn: BTreeMap<RemoteName, CommId>,
    half_open: usize,
    /// Half-open connections by source address.
    half_open_from: BTreeMap<Gid, usize>,
    /// Connections that wait for an RTU, oldest first.
    awaiting_rtu: BTreeMap<u64, CommId>,
    /// Number of connections ever inserted.
    inserted: u64,
    /// Unanswered requests by service.
    waiting: BTreeMap<u64, usize>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    /// Half-open connections from this address.
    pub(super) fn half_open_from(&self, source: Gid) -> usize {
        self.half_open_from.get(&source).copied().unwrap_or(0)
    }

    /// The oldest connection that waits for an RTU.
    pub(super) fn oldest_awaiting_rtu(&self) -> Option<CommId> {
        self.awaiting_rtu.first_key_value().map(|(_, &id)| id)
    }

    /// The connections that wait for an RTU, newest first.
    pub(super) fn newest_awaiting_rtu(&self) -> impl Iterator<Item = &Connection> {
        self.awaiting_rtu.values().rev().filter_map(|id| self.get(*id))
    }

    /// Established connections.
    pub(super) fn established(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values().filter(|connection| connection.state == State::Established)
    }

    /// Requests that the consumer of the service has not answered.
    pub(super) fn waiting(&self, service: ServiceId) -> usize {
        self.waiting.get(&service.0).copied().unwrap_or(0)
    }

    pub(super) fn contains(&self, id: CommId) -> bool {
        self.connections.contains_key(&id.0)
    }

    pub(super) fn get(&self, id: CommId) -> Option<&Connection> {
        self.connections.get(&id.0)
    }

    pub(super) fn get_mut(&mut self, id: CommId) -> Option<&mut Connection> {
        self.connections.get_mut(&id.0)
    }

    /// Connections that wait for a DREP.
    pub(super) fn disconnecting(&self) -> impl Iterator<Item = &Connection> {
        self.connections.values().filter(|connection| connection.state == State::DreqSent)
    }

    pub(super) fn by_remote_id(&self, from: Gid, guid: Guid, id: CommId) -> Option<CommId> {
        self.by_remote_id.get(&(from, guid.0, id.0)).copied()
    }

    pub(super) fn by_remote_qpn(&self, from: Gid, guid: Guid, qpn: Qpn) -> Option<CommId> {
        self.by_remote_qpn.get(&(from, guid.0, qpn.0)).copied()
    }

    /// Adds a new connection and moves it out of [`State::Idle`].
    pub(super) fn insert(&mut self, mut connection: Connection, trigger: Trigger) {
        let id = connection.id;
        self.inserted += 1;
        connection.serial = self.inserted;
        self.connections.insert(id.0, connection);
        self.index(id);
        // `TRANSITIONS` leads out of Idle for both triggers that create connections.
        let _ = self.step(id, trigger);
    }

    /// Indexes the connection by the peer's IDs, once known.
    pub(super) fn index(&mut self, id: CommId) {
        let Some(connection) = self.connections.get(&id.0) else { return };
        let (peer, guid) = (connection.peer, connection.remote_guid.0);
        if let Some(remote) = connection.remote_id {
            self.by_remote_id.insert((peer, guid, remote.0), id);
        }
        if let Some(qpn) = connection.remote_qpn {
            self.by_remote_qpn.insert((peer, guid, qpn.0), id);
        }
    }

    /// Changes the state of a connection. The caller removes one that becomes idle.
    pub(super) fn step(
        &mut self,
        id: CommId,
        trigger: Trigger,
    ) -> Result<&mut Connection, CallError> {
        let connection = self.connections.get_mut(&id.0).ok_or(CallError::Gone)?;
        let from = connection.state;
        let to = from.next(trigger).ok_or(CallError::State(from))?;
        connection.state = to;
        let (peer, service, serial) = (connection.peer, connection.service.0, connection.serial);
        self.count(id, from, to, (peer, service, serial));
        self.connections.get_mut(&id.0).ok_or(CallError::Gone)
    }

    /// Updates the counts after a state change.
    fn count(
        &mut self,
        id: CommId,
        from: State,
        to: State,
        (peer, service, serial): (Gid, u64, u64),
    ) {
        match (from.is_half_open(), to.is_half_open()) {
            (false, true) => {
                self.half_open += 1;
                *self.half_open_from.entry(peer).or_default() += 1;
            }
            (true, false) => {
                self.half_open -= 1;
                decrement(&mut self.half_open_from, peer);
            }
            _ => {}
        }
        match (from.awaits_consumer(), to.awaits_consumer()) {
            (false, true) => *self.waiting.entry(service).or_default() += 1,
            (true, false) => decrement(&mut self.waiting, service),
            _ => {}
        }
        match (from.awaits_rtu(), to.awaits_rtu()) {
            (false, true) => drop(self.awaiting_rtu.insert(serial, id)),
            (true, false) => drop(self.awaiting_rtu.remove(&serial)),
            _ => {}
        }
    }

    /// Removes a connection.
    pub(super) fn remove(&mut self, id: CommId, timers: &mut Timers) {
        let Some(mut connection) = self.connections.remove(&id.0) else { return };
        connection.arm(timers, None);
        let facts = (connection.peer, connection.service.0, connection.serial);
        self.count(id, connection.state, State::Idle, facts);
        let (peer, guid) = (connection.peer, connection.remote_guid.0);
        let remote = connection.remote_id.map(|remote| (peer, guid, remote.0));
        let qpn = connection.remote_qpn.map(|qpn| (peer, guid, qpn.0));
        // Another connection may have taken over the entry.
        for (index, name) in [(&mut self.by_remote_id, remote), (&mut self.by_remote_qpn, qpn)] {
            let Some(name) = name else { continue };
            if index.get(&name) == Some(&id) {
                index.remove(&name);
            }
        }
    }

    /// Sizes of the indices and of the count of unanswered requests, for leak checks.
    #[cfg(test)]
    pub(super) fn index_sizes(&self) -> (usize, usize, usize) {
        assert_eq!(self.half_open_from.values().sum::<usize>(), self.half_open);
        assert!(self.awaiting_rtu.len() <= self.half_open);
        (self.by_remote_id.len(), self.by_remote_qpn.len(), self.waiting.len())
    }

    /// Whether the connection became idle.
    pub(super) fn is_over(&self, id: CommId) -> bool {
        self.get(id).is_some_and(|connection| connection.state == State::Idle)
    }
}

/// Decrements a count.
fn decrement<K: Ord>(counts: &mut BTreeMap<K, usize>, key: K) {
    let Some(count) = counts.get_mut(&key) else { return };
    *count -= 1;
    if *count == 0 {
        counts.remove(&key);
    }
}
