//! Invalid requests, which must not be executed.

use ferroce_proto::memory::{AccessFlags, Bind};
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use crate::random::Random;
use crate::rdma::layout::{FOREIGN_XRC_SRQ, srq_number};
use crate::rdma::memory::{BASE, local, unknown};
use crate::rdma::workload::Service;

/// The keys, regions and addresses from which an invalid request is built.
pub(super) struct InvalidRequestInputs {
    pub(super) service: Service,
    /// The program's region on the active side.
    pub(super) local: LKey,
    /// A region of the active side that allows no windows.
    pub(super) unbindable: LKey,
    /// The program's region on the passive side, one without remote access, and one of another PD.
    pub(super) remote: RKey,
    pub(super) no_remote: RKey,
    pub(super) other_pd: RKey,
    /// The virtual address at which the passive region ends.
    pub(super) end: u64,
    /// The offset of a buffer on the active side.
    pub(super) buffer: usize,
    /// A type 2 window of the passive side that another QP has bound.
    pub(super) foreign: Option<RKey>,
    /// A window that an earlier request invalidated.
    pub(super) invalid: Option<RKey>,
    /// A window of the active side.
    pub(super) own: RKey,
}

/// What is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ViolationKind {
    /// A key that does not exist.
    Key,
    /// A range that starts within the region and ends outside.
    Bounds,
    /// A region without remote access.
    Permission,
    /// A region of another PD.
    PdId,
    /// A type 2 window that another QP has bound.
    Foreign,
    /// A window that was invalidated.
    Invalidated,
    /// An unaligned atomic.
    Alignment,
    /// A wrong L_Key.
    Local,
    /// A bind to a region that allows no windows.
    Bind,
    /// An SRQ that does not exist, or is of another XRC domain.
    Queue,
}

/// Returns an invalid request and the status it must complete with: `None` for a service that drops it silently.
pub(super) fn invalid_request(
    id: WorkId,
    length: usize,
    inputs: &InvalidRequestInputs,
    random: &mut Random,
) -> (SendRequest, Option<Status>) {
    let reliable = inputs.service != Service::Unreliable;
    let mut kinds = vec![
        ViolationKind::Key,
        ViolationKind::Bounds,
        ViolationKind::Permission,
        ViolationKind::PdId,
        ViolationKind::Local,
    ];
    if reliable {
        kinds.extend([ViolationKind::Alignment, ViolationKind::Bind]);
    }
    kinds.extend((inputs.service == Service::Extended).then_some(ViolationKind::Queue));
    kinds.extend(inputs.foreign.map(|_| ViolationKind::Foreign));
    kinds.extend(inputs.invalid.map(|_| ViolationKind::Invalidated));
    let kind = random.choose(&kinds).copied().unwrap_or(ViolationKind::Key);

    // Zero-length requests are not checked (IBA 9.7.4.1.7).
    let length = length.max(1);
    let region = inputs.remote;
    let (address, rkey) = match kind {
        ViolationKind::Key => (BASE, RKey(unknown(region.0))),
        ViolationKind::Bounds => (inputs.end - (length as u64 - 1).min(7), region),
        ViolationKind::Permission => (BASE, inputs.no_remote),
        ViolationKind::PdId => (BASE, inputs.other_pd),
        ViolationKind::Foreign => (BASE, inputs.foreign.unwrap_or_default()),
        ViolationKind::Invalidated => (BASE, inputs.invalid.unwrap_or_default()),
        ViolationKind::Alignment => (BASE + 4, region),
        ViolationKind::Local | ViolationKind::Bind | ViolationKind::Queue => (BASE, region),
    };
    let remote = RemoteAddress { address: VirtualAddress(address), key: rkey };
    let fetch = RemoteAddress { address: VirtualAddress(address.next_multiple_of(8)), key: rkey };
    let range = |length: usize| local(inputs.local, inputs.buffer, length);
    let (operation, mut range) = match (kind, if reliable { random.below(4) } else { 0 }) {
        (ViolationKind::Alignment, _) => (Operation::FetchAdd { remote, add: 1 }, range(8)),
        // Only WRITEs have a wrong L_Key: for a READ it would be detected only when the response arrives, after
        // execution by the peer.
        (ViolationKind::Local, _) | (_, 0 | 1) => {
            (Operation::Write { remote, immediate: None }, range(length))
        }
        (_, 2) => (Operation::Read { remote }, range(length)),
        _ => (Operation::FetchAdd { remote: fetch, add: 1 }, range(8)),
    };
    if kind == ViolationKind::Local {
        range.key = LKey(unknown(range.key.0));
    }
    let mut request = SendRequest::new(id, operation, Data::SgList(SgList::from(range)));
    let status = match kind {
        ViolationKind::Local => Some(Status::LocalProtection),
        ViolationKind::Bind => {
            let bind = Bind {
                window: inputs.own,
                key: RKey(inputs.own.0 | 0x77),
                region: inputs.unbindable,
                address: VirtualAddress(BASE),
                length: 8,
                access: AccessFlags::REMOTE_READ,
            };
            request = SendRequest::new(id, Operation::Bind(bind), Data::NONE);
            Some(Status::Binding)
        }
        ViolationKind::Queue => {
            let queue = if random.below(2) == 0 { FOREIGN_XRC_SRQ } else { 0x1000 };
            request.receive_queue = Some(srq_number(queue));
            Some(Status::RemoteInvalidRequest)
        }
        ViolationKind::Alignment => Some(Status::RemoteInvalidRequest),
        // UC has no acknowledgements: the sender does not learn of the drop.
        _ => reliable.then_some(Status::RemoteAccess),
    };
    (request, status)
}
