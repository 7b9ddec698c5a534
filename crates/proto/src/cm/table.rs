//! All connections of a manager, and the ways to find one.

use alloc::collections::BTreeMap;

use ferroce_wire::address::Gid;
use ferroce_wire::cm::{CommId, ServiceId};
use ferroce_wire::number::{Guid, Qpn};

use super::connection::Connection;
use super::event::CallError;
use super::state::{State, Trigger};
use super::timer::Timers;

/// A name that a peer gave: its address and device make it unique. The address alone would do for honest peers, and
/// the device alone would let a stranger pass for one.
type RemoteName = (Gid, u64, u32);

#[derive(Debug, Default)]
pub(super) struct Table {
    connections: BTreeMap<u32, Connection>,
    by_remote_id: BTreeMap<RemoteName, CommId>,
    by_remote_qpn: BTreeMap<RemoteName, CommId>,
    half_open: usize,
    /// Unanswered requests of each service that has any.
    waiting: BTreeMap<u64, usize>,
}

impl Table {
    pub(super) fn len(&self) -> usize {
        self.connections.len()
    }

    pub(super) fn half_open(&self) -> usize {
        self.half_open
    }

    /// Requests that the service's consumer has not answered.
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

    /// Those that have asked for their end and have no answer.
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
    pub(super) fn insert(&mut self, connection: Connection, trigger: Trigger) {
        let id = connection.id;
        self.connections.insert(id.0, connection);
        self.index(id);
        // The table has a way out of Idle for both triggers that make connections.
        let _ = self.step(id, trigger);
    }

    /// Makes the connection findable by what the peer calls it, once that is known.
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

    /// Moves a connection by the table of transitions. One that becomes idle is to be removed.
    pub(super) fn step(
        &mut self,
        id: CommId,
        trigger: Trigger,
    ) -> Result<&mut Connection, CallError> {
        let connection = self.connections.get_mut(&id.0).ok_or(CallError::Gone)?;
        let from = connection.state;
        let to = from.next(trigger).ok_or(CallError::State(from))?;
        connection.state = to;
        self.half_open =
            self.half_open + usize::from(to.is_half_open()) - usize::from(from.is_half_open());
        let service = connection.service.0;
        match (from.awaits_consumer(), to.awaits_consumer()) {
            (false, true) => *self.waiting.entry(service).or_default() += 1,
            (true, false) => leave(&mut self.waiting, service),
            _ => {}
        }
        Ok(connection)
    }

    /// Forgets a connection.
    pub(super) fn remove(&mut self, id: CommId, timers: &mut Timers) {
        let Some(mut connection) = self.connections.remove(&id.0) else { return };
        connection.arm(timers, None);
        self.half_open -= usize::from(connection.state.is_half_open());
        if connection.state.awaits_consumer() {
            leave(&mut self.waiting, connection.service.0);
        }
        let (peer, guid) = (connection.peer, connection.remote_guid.0);
        let remote = connection.remote_id.map(|remote| (peer, guid, remote.0));
        let qpn = connection.remote_qpn.map(|qpn| (peer, guid, qpn.0));
        // Another connection may have taken the entry over; then it is not ours to remove.
        for (index, name) in [(&mut self.by_remote_id, remote), (&mut self.by_remote_qpn, qpn)] {
            let Some(name) = name else { continue };
            if index.get(&name) == Some(&id) {
                index.remove(&name);
            }
        }
    }

    /// Sizes of the indices and of the count of unanswered requests: nothing may stay in them.
    #[cfg(test)]
    pub(super) fn index_sizes(&self) -> (usize, usize, usize) {
        (self.by_remote_id.len(), self.by_remote_qpn.len(), self.waiting.len())
    }

    /// Whether this connection became idle.
    pub(super) fn is_over(&self, id: CommId) -> bool {
        self.get(id).is_some_and(|connection| connection.state == State::Idle)
    }
}

/// One unanswered request of the service less.
fn leave(waiting: &mut BTreeMap<u64, usize>, service: u64) {
    let Some(count) = waiting.get_mut(&service) else { return };
    *count -= 1;
    if *count == 0 {
        waiting.remove(&service);
    }
}
