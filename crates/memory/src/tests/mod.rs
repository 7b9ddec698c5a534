//! Helpers of the tests.

mod access;
mod copying;
mod keys;
mod lifetime;
#[cfg(not(miri))]
mod placing;
#[cfg(not(miri))]
mod probing;
mod threads;
mod windows;

use std::sync::Arc;

use ferroce_proto::memory::{AccessFlags, Accessor, PdId, RemoteRange, Sge};
use ferroce_wire::number::{LKey, Qpn, RKey, VirtualAddress};

use crate::{Buffer, Keys, Registry};

const PD: PdId = PdId(7);
const BY: Accessor = Accessor { pd: PD, queue_pair: Qpn(0x11) };
const NONE: AccessFlags = AccessFlags::empty();
const LOCAL: AccessFlags = AccessFlags::LOCAL_WRITE;
const READ: AccessFlags = AccessFlags::REMOTE_READ;
const WRITE: AccessFlags = AccessFlags::REMOTE_WRITE;
const ATOMIC: AccessFlags = AccessFlags::REMOTE_ATOMIC;
/// All access flags.
const ALL: AccessFlags = LOCAL.union(READ).union(WRITE).union(ATOMIC).union(AccessFlags::MW_BIND);
const BASE: u64 = 0x10_0000;

fn buffer(length: usize) -> Arc<Buffer> {
    Arc::new(Buffer::new(length).unwrap())
}

/// A registry with one region that covers a buffer, at address [`BASE`].
fn setup(length: usize, access: AccessFlags) -> (Registry, Arc<Buffer>, Keys) {
    let (registry, buffer) = (Registry::new(1), buffer(length));
    let keys = add(&registry, &buffer, access);
    (registry, buffer, keys)
}

fn add(registry: &Registry, buffer: &Arc<Buffer>, access: AccessFlags) -> Keys {
    let iova = VirtualAddress(BASE);
    registry.register_buffer(PD, buffer, 0, buffer.len(), iova, access).unwrap()
}

fn local(key: LKey, address: u64, length: u32) -> Sge {
    Sge { key, address: VirtualAddress(address), length }
}

fn remote(key: RKey, address: u64, length: u32) -> RemoteRange {
    RemoteRange { key, address: VirtualAddress(address), length }
}
