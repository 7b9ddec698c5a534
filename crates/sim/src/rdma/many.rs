//! One host with very many connections, of which few are busy: measures memory per idle connection and time per
//! message.

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::qp::ServiceType;
use ferroce_proto::time::Instant;
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};
use ferroce_wire::number::{Psn, RKey, VirtualAddress};

use super::host::{EndpointRq, PendingSetup, QpConfig, RdmaHost, Work};
use super::layout::{address, qpn};
use super::management::QpControl;
use super::memory::{BASE, PD, Regions, local};
use crate::fabric::Fabric;
use crate::host::HostId;
use crate::scenario::Scenario;

/// The number of connections and their work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ManyConnections {
    /// RC connections of the host.
    pub connections: u32,
    /// Connections that send, spread evenly; the others have no peer.
    pub busy: u32,
    /// RDMA WRITEs on each busy connection.
    pub messages: u32,
    /// Bytes of each WRITE.
    pub length: u32,
}

/// The host and its peer, on a clean network.
#[derive(Debug)]
pub struct ManyConnectionsRun {
    fabric: Fabric<RdmaHost>,
    many: ManyConnections,
}

impl ManyConnections {
    /// Creates the host with all connections up and all work posted. Returns `None` if there are no connections.
    pub fn build(&self) -> Option<ManyConnectionsRun> {
        let stride = (self.connections / self.busy.max(1)).max(1) as usize;
        let mut hosts = [0, 1].map(|side| {
            let mut host = RdmaHost::new(address(side), Regions::new(side as u64, 1));
            let access = AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
            host.memory.add(vec![side as u8; self.length as usize], PD, access);
            host.memory.map();
            host
        });
        let remote = hosts[1].memory.rkey(0);
        for index in 0..self.connections as usize {
            let (peer, busy) = (index / stride, index % stride == 0);
            let messages = if busy { self.messages } else { 0 };
            self.add(&mut hosts[0], 1, peer, remote, messages);
            if busy {
                self.add(&mut hosts[1], 0, index, RKey(0), 0);
            }
        }
        let mut fabric = Fabric::new(1, Scenario::Clean.settings(1, 2));
        for (side, host) in hosts.into_iter().enumerate() {
            fabric.add_host(host, &[address(side).into()]).ok()?;
        }
        Some(ManyConnectionsRun { fabric, many: *self })
    }

    /// Adds an endpoint that is connected to endpoint `peer` of host `other`.
    fn add(&self, host: &mut RdmaHost, other: usize, peer: usize, remote: RKey, messages: u32) {
        let endpoint = host.add_endpoint(address(other), EndpointRq::Own(0));
        let service = ServiceType::ReliableConnection;
        let mut config = QpConfig::new(service, qpn(endpoint), 1024, Psn(0));
        config.set_peer(qpn(peer), Psn(0), 1024);
        config.settings.capabilities.max_send_wr = self.messages;
        let lkey = host.memory.lkey(0);
        let request = |id: u32| {
            let remote = RemoteAddress { address: VirtualAddress(BASE), key: remote };
            let operation = Operation::Write { remote, immediate: None };
            let data = Data::SgList(SgList::from(local(lkey, 0, self.length as usize)));
            SendRequest::new(WorkId(u64::from(id)), operation, data)
        };
        host.endpoints[endpoint].pending = Some(Box::new(PendingSetup {
            config,
            window_binds: Vec::new(),
            work: Work::Connected((0..messages).map(request).collect()),
        }));
        host.open(Instant::ZERO, endpoint);
        host.start(Instant::ZERO, endpoint);
    }
}

impl ManyConnectionsRun {
    /// Runs until everything is done, and returns how many messages succeeded.
    pub fn run(&mut self) -> u64 {
        // A run that reached a limit shows in the count.
        let _ = self.fabric.run();
        let host = self.fabric.host(HostId(0));
        let endpoints = host.iter().flat_map(|host| &host.endpoints);
        endpoints
            .flat_map(|endpoint| &endpoint.send_completions)
            .filter(|one| one.status == Status::Success)
            .count() as u64
    }

    /// Returns the parameters.
    pub fn many(&self) -> ManyConnections {
        self.many
    }
}
