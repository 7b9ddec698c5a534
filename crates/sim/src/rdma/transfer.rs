//! One large WRITE over a link that loses: how fast it is tells how well losses are repaired.

use std::net::Ipv4Addr;
use std::time::Duration;

use ferroce_proto::memory::{AccessFlags, LocalSpan};
use ferroce_proto::rc::Config;
use ferroce_proto::time::Instant;
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, Spans, Status, WorkId};
use ferroce_wire::number::{LKey, PKey, Psn, Qpn, RKey, VirtualAddress};
use ferroce_wire::syndrome::RnrTimer;

use super::host::{FIRST_QPN, RdmaHost};
use super::memory::{BASE, DOMAIN, key};
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
        let addresses = [Ipv4Addr::new(10, 0, 0, 1), Ipv4Addr::new(10, 0, 0, 2)];
        let mut hosts = addresses.map(RdmaHost::new);
        for side in 0..2 {
            let config = Config {
                destination: Qpn(FIRST_QPN),
                partition: PKey(0xffff),
                domain: DOMAIN,
                mtu: self.mtu,
                send_psn: Psn(0),
                receive_psn: Psn(0),
                timeout: Some(Duration::from_millis(1)),
                retry_count: 7,
                rnr_retry: 7,
                rnr_timer: RnrTimer::at_least(Duration::from_micros(20)),
                max_rd_atomic: 8,
                max_dest_rd_atomic: 8,
                access: AccessFlags::REMOTE_WRITE,
                window: 64,
                send_capacity: self.bytes.div_ceil(PART) as usize,
            };
            hosts[side].connect(config, addresses[1 - side]);
            hosts[side].memory.regions.push(vec![side as u8; PART as usize]);
        }
        for id in 0..self.bytes.div_ceil(PART) {
            let span = LocalSpan {
                key: LKey(key(0)),
                address: VirtualAddress(BASE),
                length: PART.min(self.bytes - id * PART),
            };
            let remote = RemoteAddress { address: VirtualAddress(BASE), key: RKey(key(0)) };
            let request = SendRequest {
                id: WorkId(u64::from(id)),
                operation: Operation::Write { remote, immediate: None },
                data: Data::Spans(Spans::from(span)),
                signaled: true,
                solicited: false,
                fence: false,
            };
            hosts[0].ends[0].qp.post_send(request).ok()?;
        }
        let mut fabric = Fabric::new(self.seed, self.scenario.settings(self.seed, 2));
        let mut sender = None;
        for (host, address) in hosts.into_iter().zip(addresses) {
            let id = fabric.add_host(host, &[address.into()]).ok()?;
            sender.get_or_insert(id);
        }
        let sender = sender?;
        let wanted = self.bytes.div_ceil(PART) as usize;
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
