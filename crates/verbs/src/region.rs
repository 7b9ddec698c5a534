//! Registered memory, and windows onto it.

use std::sync::{Arc, Mutex};

use ferroce_memory::{Buffer, Change, Draining, Keys, OutOfBounds, RegionInfo, WindowKind};
use ferroce_proto::memory::{AccessFlags, Bind, Sge};
use ferroce_proto::work::RemoteAddress;
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use crate::error::MemoryError;
use crate::pd::{Membership, ProtectionDomain};
use crate::sync::lock;

/// A memory region. It is deregistered when it is dropped: keys of it that peers have are refused then.
#[derive(Debug)]
pub struct MemoryRegion {
    membership: Membership,
    keys: Keys,
    iova: VirtualAddress,
    length: u64,
    buffer: Option<Arc<Buffer>>,
    gone: bool,
}

impl MemoryRegion {
    pub(crate) fn new(
        membership: Membership,
        keys: Keys,
        iova: VirtualAddress,
        length: u64,
        buffer: Option<Arc<Buffer>>,
    ) -> Self {
        Self { membership, keys, iova, length, buffer, gone: false }
    }

    /// The key for our own work requests.
    pub fn lkey(&self) -> LKey {
        self.keys.lkey
    }

    /// The key for peers.
    pub fn rkey(&self) -> RKey {
        self.keys.rkey
    }

    /// The address of its first byte, as work requests and peers count.
    pub fn address(&self) -> VirtualAddress {
        self.iova
    }

    /// Bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// A part of it, for a work request.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        let address = VirtualAddress(self.iova.0.wrapping_add(offset));
        Sge { key: self.keys.lkey, address, length }
    }

    /// A place in it, to tell a peer.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        let address = VirtualAddress(self.iova.0.wrapping_add(offset));
        RemoteAddress { address, key: self.keys.rkey }
    }

    /// The bytes, when the memory is ours.
    pub fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.buffer.as_ref()
    }

    /// Reads bytes of memory that is ours.
    ///
    /// # Errors
    ///
    /// When it has not so many, or the memory is the program's own.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), OutOfBounds> {
        self.buffer.as_ref().ok_or(OutOfBounds)?.read(offset, out)
    }

    /// Writes bytes of memory that is ours.
    ///
    /// # Errors
    ///
    /// When it has not so many, or the memory is the program's own.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), OutOfBounds> {
        self.buffer.as_ref().ok_or(OutOfBounds)?.write(offset, data)
    }

    /// What is known of it.
    pub fn info(&self) -> Option<RegionInfo> {
        self.membership.context().adapter().memory.query(self.keys.lkey)
    }

    /// Changes it under its keys.
    ///
    /// # Errors
    ///
    /// When windows are bound to it, or the change contradicts itself.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn change(&mut self, change: &Change) -> Result<(), MemoryError> {
        let memory = &self.membership.context().adapter().memory;
        memory.reregister(self.keys.lkey, change)?.wait();
        if let Some((range, iova)) = change.translation {
            (self.iova, self.length) = (iova, range.length() as u64);
        }
        Ok(())
    }

    /// Changes it under its keys, and moves it to another protection domain.
    ///
    /// # Errors
    ///
    /// As [`MemoryRegion::change`].
    pub fn change_pd(&mut self, to: &ProtectionDomain, change: &Change) -> Result<(), MemoryError> {
        self.change(&Change { pd: Some(to.pd()), ..*change })?;
        self.membership = to.join();
        Ok(())
    }

    /// Deregisters it, and waits until nothing of it is in flight.
    ///
    /// # Errors
    ///
    /// When windows are bound to it: it is given back then.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(mut self) -> Result<(), DeregisterFailure> {
        match self.end() {
            Ok(draining) => {
                draining.wait();
                Ok(())
            }
            Err(error) => Err(DeregisterFailure { region: self, error }),
        }
    }

    fn end(&mut self) -> Result<Draining, MemoryError> {
        let draining = self.membership.context().adapter().memory.deregister(self.keys.lkey)?;
        self.gone = true;
        Ok(draining)
    }
}

/// A memory region (MR) that could not be deregistered.
#[derive(Debug)]
#[non_exhaustive]
pub struct DeregisterFailure {
    /// The region, still registered.
    pub region: MemoryRegion,
    /// Why.
    pub error: MemoryError,
}

impl Drop for MemoryRegion {
    fn drop(&mut self) {
        if !self.gone {
            if let Ok(draining) = self.end() {
                draining.wait();
            }
        }
    }
}

/// A memory window: a part of a region under a key of its own, which can be taken back by itself (IBA 10.6.7).
#[derive(Debug)]
pub struct MemoryWindow {
    membership: Membership,
    key: Mutex<RKey>,
    kind: WindowKind,
}

impl MemoryWindow {
    pub(crate) fn new(membership: Membership, key: RKey, kind: WindowKind) -> Self {
        Self { membership, key: Mutex::new(key), kind }
    }

    /// Its type.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// The key that it has, or will have when the bind that was last asked for is done.
    pub fn key(&self) -> RKey {
        *lock(&self.key)
    }

    /// The work request that binds it to a part of a region, under the next key: post it, and tell the peer
    /// [`MemoryWindow::key`] when it is done.
    pub fn bind(
        &self,
        region: &MemoryRegion,
        offset: u64,
        length: u64,
        access: AccessFlags,
    ) -> ferroce_proto::work::Operation {
        let window = self.key();
        // IBA 10.6.7.2.1: another tag, so that the old key is refused.
        let key = RKey(window.0 & !0xff | (window.0.wrapping_add(1) & 0xff));
        let sge = region.sge(offset, 0);
        self.bind_as(key, sge.key, sge.address, length, access)
    }

    /// The work request that binds it under a key of the owner's choice: the same as before in all but its last 8 bits.
    pub fn bind_as(
        &self,
        new: RKey,
        region: LKey,
        address: VirtualAddress,
        length: u64,
        access: AccessFlags,
    ) -> ferroce_proto::work::Operation {
        let mut key = lock(&self.key);
        let window = std::mem::replace(&mut *key, new);
        ferroce_proto::work::Operation::Bind(Bind {
            window,
            key: new,
            region,
            address,
            length,
            access,
        })
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let memory = &self.membership.context().adapter().memory;
        let key = self.key();
        // A bind that failed, or was flushed, left it under an earlier key: only the tag differs.
        let earlier = (0..=0xff).map(|tag| RKey(key.0 & !0xff | tag));
        let _ =
            std::iter::once(key).chain(earlier).find(|key| memory.deallocate_window(*key).is_ok());
    }
}
