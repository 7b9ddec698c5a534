//! One large transfer by WRITEs over a lossy link: its goodput shows how well losses are recovered.

use std::time::Duration;

use ferroce_proto::congestion::{Congestion, cost};
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
use crate::limit::Outcome;
use crate::scenario::Scenario;
use crate::settings::Settings;

/// A transfer to be timed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Transfer {
    /// The network.
    pub scenario: Scenario,
    /// The seed of its faults.
    pub seed: u64,
    /// Path MTU.
    pub mtu: u16,
    /// Bytes, in WRITEs of 64 KiB.
    pub bytes: u32,
}

impl Transfer {
    /// Returns the virtual time that the transfer takes, or `None` if it fails.
    pub fn run(&self) -> Option<Duration> {
        const WINDOW_PACKETS: usize = 64;
        let window = cost(WINDOW_PACKETS * usize::from(self.mtu), WINDOW_PACKETS);
        self.run_over(self.scenario.settings(self.seed, 2), |config| {
            config.settings.congestion = Congestion::Window(window);
        })
    }

    /// The same over another network, with other attributes of both QPs.
    pub(super) fn run_over(
        &self,
        settings: Settings,
        edit: impl Fn(&mut QpConfig),
    ) -> Option<Duration> {
        const WRITE_LEN: u32 = 64 << 10;
        let wanted = self.bytes.div_ceil(WRITE_LEN) as usize;
        let hosts = [0, 1].map(|side| {
            let mut host = RdmaHost::new(address(side), Regions::new(side as u64, 1));
            let access = AccessFlags::REMOTE_WRITE | AccessFlags::LOCAL_WRITE;
            host.memory.add(vec![side as u8; WRITE_LEN as usize], PD, access);
            host.memory.map();
            host
        });
        let [key, remote_key] = [hosts[0].memory.lkey(0), hosts[1].memory.lkey(0)];
        let request = |id: u32| {
            let length = WRITE_LEN.min(self.bytes - id * WRITE_LEN) as usize;
            let remote = RemoteAddress { address: VirtualAddress(BASE), key: RKey(remote_key.0) };
            let operation = Operation::Write { remote, immediate: None };
            let data = Data::SgList(SgList::from(local(key, 0, length)));
            SendRequest::new(WorkId(u64::from(id)), operation, data)
        };
        let mut fabric = Fabric::new(self.seed, settings);
        let mut sender = None;
        for (side, mut host) in hosts.into_iter().enumerate() {
            let service = ServiceType::ReliableConnection;
            let mut config = QpConfig::new(service, qpn(0), self.mtu, Psn(0));
            config.set_peer(qpn(0), Psn(0), self.mtu);
            edit(&mut config);
            config.settings.capabilities.max_send_wr = wanted as u32;
            let endpoint = host.add_endpoint(address(1 - side), EndpointRq::Own(0));
            let count = if side == 0 { wanted as u32 } else { 0 };
            host.endpoints[endpoint].pending = Some(Box::new(PendingSetup {
                config,
                window_binds: Vec::new(),
                work: Work::Connected((0..count).map(request).collect()),
            }));
            host.open(Instant::ZERO, endpoint);
            host.start(Instant::ZERO, endpoint);
            let id = fabric.add_host(host, &[address(side).into()]).ok()?;
            sender.get_or_insert(id);
        }
        let sender = sender?;
        let outcome = fabric.run_until(|fabric| {
            fabric
                .host(sender)
                .is_none_or(|host| host.endpoints[0].send_completions.len() >= wanted)
        });
        if matches!(outcome, Outcome::LimitReached(_)) {
            return None;
        }
        let sent = &fabric.host(sender)?.endpoints[0].send_completions;
        let done = sent.len() == wanted && sent.iter().all(|one| one.status == Status::Success);
        done.then(|| fabric.now().since(Instant::ZERO))
    }
}
