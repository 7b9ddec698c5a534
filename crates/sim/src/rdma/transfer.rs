//! One large WRITE over a link that loses: how fast it is tells how well losses are repaired.

use std::time::Duration;

use ferroce_proto::congestion::{Congestion, cost};
use ferroce_proto::memory::AccessFlags;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};
use ferroce_wire::number::{Psn, RKey, VirtualAddress};

use super::host::{Blueprint, End, RdmaHost, Receives, Waiting, Work, number};
use super::memory::{BASE, DOMAIN, key, local};
use super::plan::{address, reliable};
use crate::{Fabric, Outcome, Scenario};

/// A transfer to be timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// The network.
    pub scenario: Scenario,
    /// What its faults are drawn from.
    pub seed: u64,
    /// Path MTU.
    pub mtu: u16,
    /// Bytes, in WRITEs of 64 KiB.
    pub bytes: u32,
}

impl Transfer {
    /// Virtual time that the transfer takes, `None` when it fails.
    pub fn run(&self) -> Option<Duration> {
        const PART: u32 = 64 << 10;
        const PACKETS: usize = 64;
        let wanted = self.bytes.div_ceil(PART) as usize;
        let request = |id: u32| {
            let length = PART.min(self.bytes - id * PART) as usize;
            let remote = RemoteAddress { address: VirtualAddress(BASE), key: RKey(key(0)) };
            let operation = Operation::Write { remote, immediate: None };
            let data = Data::SgList(SgList::from(local(0, 0, length)));
            SendRequest::new(WorkId(u64::from(id)), operation, data)
        };
        let mut fabric = Fabric::new(self.seed, self.scenario.settings(self.seed, 2));
        let mut sender = None;
        for side in 0..2 {
            let mut host = RdmaHost::new(address(side));
            let access = AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
            host.memory.add(vec![side as u8; PART as usize], DOMAIN, access);
            let mut config = reliable(number(0), self.mtu, Psn(0));
            config.destination = number(0);
            config.congestion = Congestion::Window(cost(PACKETS * usize::from(self.mtu), PACKETS));
            config.send_capacity = wanted;
            let end =
                host.add_end(End::new(address(1 - side), Receives::Own(ReceiveQueue::new(0))));
            let count = if side == 0 { wanted as u32 } else { 0 };
            host.ends[end].waiting = Some(Box::new(Waiting {
                blueprint: Blueprint::Reliable(config),
                prelude: Vec::new(),
                work: Work::Connected((0..count).map(request).collect()),
            }));
            host.open(Instant::ZERO, end);
            host.start(end);
            let id = fabric.add_host(host, &[address(side).into()]).ok()?;
            sender.get_or_insert(id);
        }
        let sender = sender?;
        let outcome = fabric.run_until(|fabric| {
            fabric.host(sender).is_none_or(|host| host.ends[0].sent.len() >= wanted)
        });
        if matches!(outcome, Outcome::LimitReached(_)) {
            return None;
        }
        let sent = &fabric.host(sender)?.ends[0].sent;
        let done = sent.len() == wanted && sent.iter().all(|one| one.status == Status::Success);
        done.then(|| fabric.now().since(Instant::ZERO))
    }
}
