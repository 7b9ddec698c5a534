//! Requests that must not be executed, each in its own way wrong.

use ferroce_proto::memory::{AccessFlags, Bind};
use ferroce_proto::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use crate::Random;
use crate::rdma::host::queue_number;
use crate::rdma::memory::{BASE, key, local};
use crate::rdma::plan::{FOREIGN_QUEUE, LOCAL_ONLY, OTHERS};
use crate::rdma::workload::Service;

/// What a wrong request can be made from.
pub(super) struct Material {
    pub(super) service: Service,
    /// The program's region on either side.
    pub(super) regions: [usize; 2],
    /// Where the passive one ends, as programs count.
    pub(super) end: u64,
    /// A place on the active side.
    pub(super) place: usize,
    /// A window of the passive side that another queue pair has bound.
    pub(super) foreign: Option<RKey>,
    /// A window that an earlier request made invalid.
    pub(super) invalid: Option<RKey>,
    /// A window of the active side's own.
    pub(super) own: RKey,
}

/// What is wrong with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A key that nobody gave out.
    Key,
    /// It starts within the region, and ends outside.
    Bounds,
    /// A region that is not for peers.
    Permission,
    /// A region of another protection domain.
    PdId,
    /// A window of type 2 that another queue pair has bound.
    Foreign,
    /// A window that was made invalid.
    Invalidated,
    /// An atomic operation across two words.
    Alignment,
    /// Our own key is wrong.
    Local,
    /// A region that no window may show.
    Bind,
    /// A shared receive queue that is not there, or of another XRC domain.
    Queue,
}

/// A request that is wrong, and how it must end: `None` with a service that drops it in silence.
pub(super) fn wrong(
    id: WorkId,
    length: usize,
    material: &Material,
    random: &mut Random,
) -> (SendRequest, Option<Status>) {
    let reliable = material.service != Service::Unreliable;
    let mut kinds = vec![Kind::Key, Kind::Bounds, Kind::Permission, Kind::PdId, Kind::Local];
    if reliable {
        kinds.extend([Kind::Alignment, Kind::Bind]);
    }
    kinds.extend((material.service == Service::Extended).then_some(Kind::Queue));
    kinds.extend(material.foreign.map(|_| Kind::Foreign));
    kinds.extend(material.invalid.map(|_| Kind::Invalidated));
    let kind = random.choose(&kinds).copied().unwrap_or(Kind::Key);

    // Where nothing is moved nothing is checked (IBA 9.7.4.1.7).
    let length = length.max(1);
    let region = RKey(key(material.regions[1]));
    let (address, rkey) = match kind {
        Kind::Key => (BASE, RKey(0xdead_beef)),
        Kind::Bounds => (material.end - (length as u64 - 1).min(7), region),
        Kind::Permission => (BASE, RKey(key(LOCAL_ONLY))),
        Kind::PdId => (BASE, RKey(key(OTHERS))),
        Kind::Foreign => (BASE, material.foreign.unwrap_or_default()),
        Kind::Invalidated => (BASE, material.invalid.unwrap_or_default()),
        Kind::Alignment => (BASE + 4, region),
        Kind::Local | Kind::Bind | Kind::Queue => (BASE, region),
    };
    let remote = RemoteAddress { address: VirtualAddress(address), key: rkey };
    let fetch = RemoteAddress { address: VirtualAddress(address.next_multiple_of(8)), key: rkey };
    let range = |length: usize| local(material.regions[0], material.place, length);
    let (operation, mut range) = match (kind, if reliable { random.below(4) } else { 0 }) {
        (Kind::Alignment, _) => (Operation::FetchAdd { remote, add: 1 }, range(8)),
        // The answer to a READ of ours would be late to find our own key wrong: nothing else is executed at all.
        (Kind::Local, _) | (_, 0 | 1) => {
            (Operation::Write { remote, immediate: None }, range(length))
        }
        (_, 2) => (Operation::Read { remote }, range(length)),
        _ => (Operation::FetchAdd { remote: fetch, add: 1 }, range(8)),
    };
    if kind == Kind::Local {
        range.key = LKey(0xdead_beef);
    }
    let mut request = SendRequest::new(id, operation, Data::SgList(SgList::from(range)));
    let status = match kind {
        Kind::Local => Some(Status::LocalProtection),
        Kind::Bind => {
            let bind = Bind {
                window: material.own,
                key: RKey(material.own.0 | 0x77),
                region: LKey(key(LOCAL_ONLY)),
                address: VirtualAddress(BASE),
                length: 8,
                access: AccessFlags::REMOTE_READ,
            };
            request = SendRequest::new(id, Operation::Bind(bind), Data::NONE);
            Some(Status::Binding)
        }
        Kind::Queue => {
            let queue = if random.below(2) == 0 { FOREIGN_QUEUE } else { 0x1000 };
            request.receive_queue = Some(queue_number(queue));
            Some(Status::RemoteInvalidRequest)
        }
        Kind::Alignment => Some(Status::RemoteInvalidRequest),
        // UC answers nothing, and its sender learns nothing.
        _ => reliable.then_some(Status::RemoteAccess),
    };
    (request, status)
}
