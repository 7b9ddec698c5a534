//! One host with very many connections, of which few are busy: what an idle one costs in memory, and the busy in time.

use ferroce_proto::congestion::Congestion;
use ferroce_proto::memory::AccessFlags;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};
use ferroce_wire::number::{Psn, RKey, VirtualAddress};

use super::host::{Blueprint, End, RdmaHost, Receives, Waiting, Work, number};
use super::memory::{BASE, DOMAIN, key, local};
use super::plan::{address, reliable};
use crate::{Fabric, HostId, Scenario};

/// How many, and what they do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Many {
    /// Reliable connections of the one host.
    pub connections: u32,
    /// Those of them that send, spread evenly; the peers of the others are not there.
    pub busy: u32,
    /// RDMA WRITEs on each of these.
    pub messages: u32,
    /// Bytes of each.
    pub length: u32,
}

/// The host and the one that it sends to, on a clean network.
#[derive(Debug)]
pub struct Crowd {
    fabric: Fabric<RdmaHost>,
    many: Many,
}

impl Many {
    /// Makes the host, with all its connections up and all work posted. `None` when there are no connections.
    pub fn build(&self) -> Option<Crowd> {
        let stride = (self.connections / self.busy.max(1)).max(1) as usize;
        let mut hosts = [0, 1].map(|side| {
            let mut host = RdmaHost::new(address(side));
            let access = AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
            host.memory.add(vec![side as u8; self.length as usize], DOMAIN, access);
            host
        });
        for index in 0..self.connections as usize {
            let (peer, busy) = (index / stride, index % stride == 0);
            self.add(&mut hosts[0], 1, peer, if busy { self.messages } else { 0 });
            if busy {
                self.add(&mut hosts[1], 0, index, 0);
            }
        }
        let mut fabric = Fabric::new(1, Scenario::Clean.settings(1, 2));
        for (side, host) in hosts.into_iter().enumerate() {
            fabric.add_host(host, &[address(side).into()]).ok()?;
        }
        Some(Crowd { fabric, many: *self })
    }

    /// Adds an end that is connected to this one of the other host.
    fn add(&self, host: &mut RdmaHost, other: usize, peer: usize, messages: u32) {
        let end = host.add_end(End::new(address(other), Receives::Own(ReceiveQueue::new(0))));
        let mut config = reliable(number(end), 1024, Psn(0));
        config.destination = number(peer);
        config.congestion = Congestion::default();
        config.send_capacity = self.messages as usize;
        let request = |id: u32| {
            let remote = RemoteAddress { address: VirtualAddress(BASE), key: RKey(key(0)) };
            let operation = Operation::Write { remote, immediate: None };
            let data = Data::SgList(SgList::from(local(0, 0, self.length as usize)));
            SendRequest::new(WorkId(u64::from(id)), operation, data)
        };
        host.ends[end].waiting = Some(Box::new(Waiting {
            blueprint: Blueprint::Reliable(config),
            prelude: Vec::new(),
            work: Work::Connected((0..messages).map(request).collect()),
        }));
        host.open(Instant::ZERO, end);
        host.start(end);
    }
}

impl Crowd {
    /// Runs until everything is done, and says how many messages succeeded.
    pub fn run(&mut self) -> u64 {
        // A run that reached a limit shows in the number.
        let _ = self.fabric.run();
        let host = self.fabric.host(HostId(0));
        let ends = host.iter().flat_map(|host| &host.ends);
        ends.flat_map(|end| &end.sent).filter(|one| one.status == Status::Success).count() as u64
    }

    /// What it was made for.
    pub fn many(&self) -> Many {
        self.many
    }
}
