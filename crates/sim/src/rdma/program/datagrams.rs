//! Datagrams: from one queue pair to another, or to all of a group.

use std::net::Ipv4Addr;

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::ud::{AddressHandle, GRH_LEN, SendRequest};
use ferroce_proto::work::{Data, ReceiveRequest, SgList, Status, WorkId};
use ferroce_wire::number::{Immediate, QKey, Qpn};

use super::{Area, Place, Step};
use crate::Random;
use crate::rdma::Workload;
use crate::rdma::host::{RdmaHost, Receives, number};
use crate::rdma::memory::{DOMAIN, local};

/// What a datagram queue pair's peers must know.
pub(in crate::rdma) const QUEUE_KEY: QKey = QKey(0x1234_5678);

/// One datagram.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct Message {
    pub(in crate::rdma) from: usize,
    pub(in crate::rdma) length: usize,
    pub(in crate::rdma) immediate: Option<Immediate>,
    /// It has the right key: it may be received.
    pub(in crate::rdma) admitted: bool,
}

/// The datagrams of one end, and who may receive them.
#[derive(Debug)]
pub(in crate::rdma) struct Datagrams {
    pub(in crate::rdma) active: Place,
    pub(in crate::rdma) passive: Vec<Place>,
    pub(in crate::rdma) messages: Vec<Message>,
    pub(in crate::rdma) steps: Vec<Step>,
    /// What they are read from: the active side's region, and what was in it.
    pub(in crate::rdma) region: usize,
    pub(in crate::rdma) before: Vec<u8>,
    /// The region that each receiver receives into, and where in it, by the id of the receive request.
    pub(in crate::rdma) received: Vec<(usize, Vec<u8>)>,
    pub(in crate::rdma) buffers: Vec<(usize, usize)>,
}

/// Draws datagrams, and posts receive requests for all of them and some that come twice.
pub(in crate::rdma) fn datagrams(
    workload: &Workload,
    mtu: u16,
    active: Place,
    passive: Vec<Place>,
    group: Option<Ipv4Addr>,
    hosts: &mut [RdmaHost],
    random: &mut Random,
) -> (Datagrams, Vec<SendRequest<Ipv4Addr>>) {
    let longest = usize::from(mtu).min(workload.largest as usize);
    let source = Area::new(longest + 64, random);
    let region = hosts[active.host].memory.regions.len();
    let (mut messages, mut steps, mut work) = (Vec::new(), Vec::new(), Vec::new());
    let address = match (group, passive.first()) {
        (None, Some(place)) => AddressHandle {
            route: hosts[place.host].address,
            destination: number(place.end),
            queue_key: QUEUE_KEY,
        },
        (group, _) => AddressHandle {
            route: group.unwrap_or(Ipv4Addr::UNSPECIFIED),
            destination: Qpn::MULTICAST,
            queue_key: QUEUE_KEY,
        },
    };
    let violation = (random.below(8) == 0).then(|| random.below(u64::from(workload.requests)));
    for id in 0..u64::from(workload.requests) {
        let length = random.below(longest as u64 + 1) as usize;
        let from = random.below((longest + 64 - length) as u64 + 1) as usize;
        // Short ones, and those of the same bytes, are told apart by their number.
        let same = messages.iter().any(|one: &Message| (one.from, one.length) == (from, length));
        let numbered = length < 8 || same || random.below(3) == 0;
        let immediate = numbered.then_some(Immediate(id as u32));
        let admitted = random.below(12) > 0;
        let mut sge = local(region, from, length);
        let mut fails = None;
        if violation == Some(id) && length > 0 {
            sge.key.0 ^= 0x1_0000;
            fails = Some(Status::LocalProtection);
        }
        let queue_key = if admitted { QUEUE_KEY } else { QKey(QUEUE_KEY.0 ^ 1) };
        let signaled = id + 1 == u64::from(workload.requests) || random.below(4) > 0;
        work.push(SendRequest {
            id: WorkId(id),
            address: AddressHandle { queue_key, ..address },
            immediate,
            data: Data::SgList(SgList::from(sge)),
            signaled,
            solicited: random.below(8) == 0,
        });
        messages.push(Message { from, length, immediate, admitted: admitted && fails.is_none() });
        steps.push(Step { effect: super::Effect::Nothing, signaled, fails });
    }
    let before = source.finish();
    hosts[active.host].memory.add(before.clone(), DOMAIN, AccessFlags::LOCAL_WRITE);

    // The same places in each receiver's region.
    let mut area = Area::new(0, random);
    let room = GRH_LEN + longest;
    let buffers: Vec<_> = (0..2 * messages.len()).map(|_| (area.allot(room), room)).collect();
    let image = area.finish();
    let mut received = Vec::new();
    for place in &passive {
        let host = &mut hosts[place.host];
        let region = host.memory.add(image.clone(), DOMAIN, AccessFlags::LOCAL_WRITE);
        received.push((region, image.clone()));
        if let Receives::Own(queue) = &mut host.ends[place.end].receives {
            for (id, &(at, room)) in (0..).zip(&buffers) {
                let sg_list = SgList::from(local(region, at, room));
                let _ = queue.post(ReceiveRequest { id: WorkId(id), sg_list });
            }
        }
    }
    let datagrams =
        Datagrams { active, passive, messages, steps, region, before, received, buffers };
    (datagrams, work)
}
