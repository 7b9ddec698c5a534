//! UD sends: from one QP to another, or to all of a multicast group.

use std::net::Ipv4Addr;

use ferroce_proto::memory::AccessFlags;
use ferroce_proto::ud::{AddressHandle, GRH_LEN, SendRequest};
use ferroce_proto::work::{Data, ReceiveRequest, SgList, Status, WorkId};
use ferroce_wire::number::{Immediate, LKey, QKey, Qpn};

use super::{EndpointId, RegionLayout, Step};
use crate::random::Random;
use crate::rdma::host::{EndpointRq, RdmaHost};
use crate::rdma::layout::qpn;
use crate::rdma::memory::{PD, local, unknown};
use crate::rdma::workload::Workload;

/// The Q_Key of all UD QPs.
pub(in crate::rdma) const QUEUE_KEY: QKey = QKey(0x1234_5678);

/// One UD send.
#[derive(Clone, Copy, Debug)]
pub(in crate::rdma) struct PlannedDatagram {
    pub(in crate::rdma) from: usize,
    pub(in crate::rdma) length: usize,
    pub(in crate::rdma) immediate: Option<Immediate>,
    /// It has the right Q_Key and L_Key, so that it may be received.
    pub(in crate::rdma) deliverable: bool,
}

/// The UD sends of one endpoint, and its receivers.
#[derive(Debug)]
pub(in crate::rdma) struct DatagramProgram {
    pub(in crate::rdma) active: EndpointId,
    pub(in crate::rdma) passive: Vec<EndpointId>,
    pub(in crate::rdma) messages: Vec<PlannedDatagram>,
    pub(in crate::rdma) steps: Vec<Step>,
    /// The active side's region that they are read from, and its contents.
    pub(in crate::rdma) region: usize,
    pub(in crate::rdma) before: Vec<u8>,
    /// The region of each receiver and its contents before the run; the buffers in it, by the id of the receive
    /// request.
    pub(in crate::rdma) receive_regions: Vec<(usize, Vec<u8>)>,
    pub(in crate::rdma) buffers: Vec<(usize, usize)>,
}

/// Draws UD sends, and posts twice as many receive requests, for duplicates.
pub(in crate::rdma) fn datagrams(
    workload: &Workload,
    mtu: u16,
    active: EndpointId,
    passive: Vec<EndpointId>,
    group: Option<Ipv4Addr>,
    hosts: &mut [RdmaHost],
    random: &mut Random,
) -> (DatagramProgram, Vec<SendRequest<Ipv4Addr>>) {
    let longest = usize::from(mtu).min(workload.largest as usize);
    let source = RegionLayout::new(longest + 64, random);
    let before = source.finish();
    let memory = &mut hosts[active.host].memory;
    let region = memory.add(before.clone(), PD, AccessFlags::LOCAL_WRITE);
    let lkey = memory.lkey(region);
    let (mut messages, mut steps, mut work) = (Vec::new(), Vec::new(), Vec::new());
    let address = match (group, passive.first()) {
        (None, Some(endpoint)) => AddressHandle {
            route: hosts[endpoint.host].address,
            destination: qpn(endpoint.index),
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
        // Short ones, and those with the same bytes, are distinguished by their immediate data.
        let same = messages
            .iter()
            .any(|other: &PlannedDatagram| (other.from, other.length) == (from, length));
        let numbered = length < 8 || same || random.below(3) == 0;
        let immediate = numbered.then_some(Immediate(id as u32));
        let deliverable = random.below(12) > 0;
        let mut sge = local(lkey, from, length);
        let mut fails = None;
        if violation == Some(id) && length > 0 {
            sge.key = LKey(unknown(lkey.0));
            fails = Some(Status::LocalProtection);
        }
        let queue_key = if deliverable { QUEUE_KEY } else { QKey(QUEUE_KEY.0 ^ 1) };
        let signaled = id + 1 == u64::from(workload.requests) || random.below(4) > 0;
        work.push(SendRequest {
            id: WorkId(id),
            address: AddressHandle { queue_key, ..address },
            immediate,
            data: Data::SgList(SgList::from(sge)),
            signaled,
            solicited: random.below(8) == 0,
        });
        messages.push(PlannedDatagram {
            from,
            length,
            immediate,
            deliverable: deliverable && fails.is_none(),
        });
        steps.push(Step { effect: super::Effect::Nothing, signaled, fails });
    }

    // The same buffers in each receiver's region.
    let mut area = RegionLayout::new(0, random);
    let capacity = GRH_LEN + longest;
    let buffers: Vec<_> =
        (0..2 * messages.len()).map(|_| (area.allocate(capacity), capacity)).collect();
    let image = area.finish();
    let mut receive_regions = Vec::new();
    for endpoint in &passive {
        let host = &mut hosts[endpoint.host];
        let region = host.memory.add(image.clone(), PD, AccessFlags::LOCAL_WRITE);
        let lkey = host.memory.lkey(region);
        receive_regions.push((region, image.clone()));
        let endpoint = &host.endpoints[endpoint.index];
        if let EndpointRq::Own(_) = endpoint.rq {
            for (id, &(at, capacity)) in (0..).zip(&buffers) {
                let sg_list = SgList::from(local(lkey, at, capacity));
                let _ = endpoint.receives().post(ReceiveRequest { id: WorkId(id), sg_list });
            }
        }
    }
    let datagrams = DatagramProgram {
        active,
        passive,
        messages,
        steps,
        region,
        before,
        receive_regions,
        buffers,
    };
    (datagrams, work)
}
