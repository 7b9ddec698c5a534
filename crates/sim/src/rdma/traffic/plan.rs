//! Flows, and the gates that order them.

use std::collections::BTreeMap;

/// A flow to add: one WRITE or READ.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewFlow {
    /// The host that posts it.
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) bytes: u32,
    pub(super) read: bool,
    /// A gate of `from` that must open before it is posted.
    pub(super) after: Option<u32>,
    /// A gate of `from` that is signaled when it has completed.
    pub(super) done: Option<u32>,
    /// A gate of `to` that is signaled when a WRITE has arrived.
    pub(super) notify: Option<u32>,
}

impl NewFlow {
    pub(super) const fn write(from: u32, to: u32, bytes: u32) -> Self {
        Self { from, to, bytes, read: false, after: None, done: None, notify: None }
    }
}

/// A flow of a host.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedFlow {
    pub(super) to: u32,
    /// The index of the connection at this host.
    pub(super) connection: usize,
    pub(super) bytes: u32,
    pub(super) read: bool,
    pub(super) done: Option<u32>,
    pub(super) notify: Option<u32>,
}

/// Opens after this many signals, and then starts flows of its host.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) signals: u32,
    pub(super) flows: Vec<usize>,
}

/// One end of a connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct PlannedConnection {
    pub(super) peer: u32,
    /// The index of the connection at the peer.
    pub(super) peer_index: usize,
    /// Flows that are posted at this end.
    pub(super) flows: usize,
}

/// The part of one host.
#[derive(Clone, Debug, Default)]
pub(super) struct HostPlan {
    pub(super) connections: Vec<PlannedConnection>,
    pub(super) flows: Vec<PlannedFlow>,
    pub(super) gates: Vec<Gate>,
    /// Flows that wait for no gate.
    pub(super) first: Vec<usize>,
}

/// All flows, with one connection between each two hosts that communicate.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) hosts: Vec<HostPlan>,
    /// The index of the connection at the first host, by the two hosts.
    pairs: BTreeMap<(u32, u32), usize>,
}

impl Plan {
    pub(super) fn new(hosts: u32) -> Self {
        Self { hosts: vec![HostPlan::default(); hosts as usize], pairs: BTreeMap::new() }
    }

    /// Adds a gate of a host that opens after this many signals.
    pub(super) fn gate(&mut self, host: u32, signals: u32) -> u32 {
        let gates = &mut self.hosts[host as usize].gates;
        gates.push(Gate { signals, flows: Vec::new() });
        gates.len() as u32 - 1
    }

    pub(super) fn add(&mut self, flow: NewFlow) {
        let NewFlow { from, to, bytes, read, after, done, notify } = flow;
        let connection = self.connection(from, to);
        let host = &mut self.hosts[from as usize];
        host.connections[connection].flows += 1;
        let index = host.flows.len();
        host.flows.push(PlannedFlow { to, connection, bytes, read, done, notify });
        match after {
            Some(gate) => host.gates[gate as usize].flows.push(index),
            None => host.first.push(index),
        }
    }

    /// Returns the index at `from` of its connection to `to`, which is created if there is none.
    fn connection(&mut self, from: u32, to: u32) -> usize {
        if let Some(&index) = self.pairs.get(&(from, to)) {
            return index;
        }
        let [here, there] = [from, to].map(|host| self.hosts[host as usize].connections.len());
        for (host, index, peer, peer_index) in [(from, here, to, there), (to, there, from, here)] {
            self.pairs.insert((host, peer), index);
            let connection = PlannedConnection { peer, peer_index, flows: 0 };
            self.hosts[host as usize].connections.push(connection);
        }
        here
    }

    pub(super) fn flows(&self) -> usize {
        self.hosts.iter().map(|host| host.flows.len()).sum()
    }
}
