//! Copies the payload of a packet from a ring in shared memory straight to registered memory.
//!
//! A transport passes the payload of a packet to [`Memory`] as a slice, or as parts of one. Copying a long payload to a
//! private buffer first would double the work, so the slice is only a stand-in of the same length: writing a part of it
//! copies the same part of the payload from the ring straight to its destination.

use ferroce_proto::memory::{
    AccessFlags, Accessor, Atomic, Bind, Denied, Memory, PdId, RemoteRange, Sge,
};
use ferroce_proto::reason::{KeyFault, RefusedAccess};
use ferroce_sys::ring::SharedBytes;
use ferroce_wire::number::RKey;

use crate::access::local_access;
use crate::registry::Registry;

/// The memory of a [`Registry`]. Writes from the stand-in slice copy the shared bytes that it represents.
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    registry: &'a Registry,
    stand_in: &'a [u8],
    shared: SharedBytes<'a>,
}

impl<'a> Placement<'a> {
    /// `stand_in`, and every part of it, represents the same part of `shared`. Its contents are not read.
    pub fn new(registry: &'a Registry, stand_in: &'a [u8], shared: SharedBytes<'a>) -> Self {
        Self { registry, stand_in, shared }
    }

    /// The shared bytes that `data` represents; `None` if it is not a part of the stand-in, or not all of them exist.
    fn source(&self, data: &[u8]) -> Option<SharedBytes<'a>> {
        let start = data.as_ptr().addr().checked_sub(self.stand_in.as_ptr().addr())?;
        let inside = start.checked_add(data.len())? <= self.stand_in.len();
        self.shared.part(start, data.len()).filter(|_| inside)
    }
}

impl Memory for Placement<'_> {
    fn write_local(&mut self, pd: PdId, sge: Sge, data: &[u8]) -> Result<(), Denied> {
        if data.len() > sge.length as usize {
            return Err(Denied::Bounds);
        }
        let Some(source) = self.source(data).filter(|_| !data.is_empty()) else {
            return self.registry.write_local(pd, sge, data);
        };
        let part = (sge.address.0, data.len() as u64);
        let access = local_access(true);
        self.registry.local(pd, sge.key, part, access, |slice| slice.write_shared(source))
    }

    fn write_remote(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        data: &[u8],
    ) -> Result<(), Denied> {
        let Some(source) = self.source(data).filter(|_| !data.is_empty()) else {
            return self.registry.write_remote(by, range, data);
        };
        let part = (range.address.0, u64::from(range.length));
        let access = AccessFlags::REMOTE_WRITE;
        self.registry.remote(by, range.key, part, access, |slice| slice.write_shared(source))
    }

    fn check_local(&self, pd: PdId, sge: Sge, write: bool) -> Result<(), Denied> {
        self.registry.check_local(pd, sge, write)
    }

    fn read_local(&self, pd: PdId, sge: Sge, out: &mut [u8]) -> Result<(), Denied> {
        self.registry.read_local(pd, sge, out)
    }

    fn check_remote(
        &self,
        by: Accessor,
        range: RemoteRange,
        access: AccessFlags,
    ) -> Result<(), Denied> {
        self.registry.check_remote(by, range, access)
    }

    fn check_remote_key(&self, by: Accessor, key: RKey, access: AccessFlags) -> Result<(), Denied> {
        self.registry.check_remote_key(by, key, access)
    }

    fn read_remote(&self, by: Accessor, range: RemoteRange, out: &mut [u8]) -> Result<(), Denied> {
        self.registry.read_remote(by, range, out)
    }

    fn read_remote_duplicate(
        &self,
        by: Accessor,
        range: RemoteRange,
        out: &mut [u8],
    ) -> Result<(), Denied> {
        self.registry.read_remote_duplicate(by, range, out)
    }

    fn atomic(
        &mut self,
        by: Accessor,
        range: RemoteRange,
        operation: Atomic,
    ) -> Result<u64, Denied> {
        self.registry.atomic(by, range, operation)
    }

    fn explain(&self, by: Accessor, access: &RefusedAccess, denied: Denied) -> KeyFault {
        self.registry.explain(by, access, denied)
    }

    fn invalidate(&mut self, by: Accessor, key: RKey) -> Result<(), Denied> {
        self.registry.invalidate(by, key)
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.registry.bind(by, bind)
    }
}
