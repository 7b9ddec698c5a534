//! Why an access was denied, in detail: looked up again after the denial, so that a check costs nothing for it.

use ferroce_proto::memory::{AccessFlags, Accessor, Denied};
use ferroce_proto::reason::{KeyFault, Object as Kind, RefusedAccess};

use crate::registry::Registry;
use crate::table::Object;

/// Why an access was denied.
#[cold]
pub(crate) fn explain(
    registry: &Registry,
    by: Accessor,
    access: &RefusedAccess,
    denied: Denied,
) -> KeyFault {
    if denied == Denied::Alignment {
        return KeyFault::Misaligned;
    }
    let Some(entry) = registry.table.read(access.key) else {
        return match registry.table.was_last(access.key) {
            true => KeyFault::Deregistered,
            false => KeyFault::Unknown,
        };
    };
    let found = match &entry.object {
        Object::None => Some(KeyFault::Unknown),
        Object::Window(_) if !access.is_remote => Some(KeyFault::NoLkey),
        Object::Window(window) => window.fault(by, access),
        Object::Region(region) if region.pd != by.pd => {
            Some(KeyFault::OtherPd { object: region.pd, queue_pair: by.pd })
        }
        Object::Region(region) => {
            fault_of(Kind::Region, region.access, (region.iova, region.length), access)
        }
    };
    // Key, rights and bounds are right: the memory behind them is not.
    found.unwrap_or(KeyFault::Unmapped)
}

/// What is wrong with an access to an object with these rights and this range.
pub(crate) fn fault_of(
    object: Kind,
    has: AccessFlags,
    (start, size): (u64, u64),
    access: &RefusedAccess,
) -> Option<KeyFault> {
    let missing = access.needs.difference(has);
    if !missing.is_empty() {
        return Some(KeyFault::MissingAccess { object, missing });
    }
    let offset = access.address.checked_sub(start);
    let end = offset.and_then(|offset| offset.checked_add(access.length));
    let is_inside = end.is_some_and(|end| end <= size);
    (!is_inside).then_some(KeyFault::Outside { object, start, size })
}
