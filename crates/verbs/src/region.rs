//! Memory regions (MR) and memory windows (MW).

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};

use ferroce_memory::{
    AddressRange, Buffer, Change, Keys, RegionInfo, RegisterError, Registry, WindowKind,
};
use ferroce_proto::memory::{AccessFlags, Bind, Sge};
use ferroce_proto::work::{Operation, RemoteAddress};
use ferroce_stat::Slot;
use ferroce_stat::layout::{Kind, MemoryRegion as Field};
use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use crate::error::{CopyError, MemoryError};
use crate::pd::{Domain, ProtectionDomain};
use crate::sync::lock;

/// A memory region (MR): registered memory. It is deregistered when it is dropped: its keys are invalid then, windows that are
/// bound to it are unbound, and no access of a peer to its memory is in progress.
///
/// The device and peers write to the memory at any time, so its bytes are copied in and out instead of borrowed.
///
/// ```
/// use ferroce::{AccessFlags, Context, Device, Options};
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let context = Context::open(&Device::named("lo")?, &Options::default())?;
/// # let pd = context.protection_domain();
/// // A peer may read it, given its address and rkey.
/// let mr = pd.allocate(4096, AccessFlags::LOCAL_WRITE | AccessFlags::REMOTE_READ)?;
/// mr.write(100, b"hello")?;
///
/// let sge = mr.sge(100, 5); // For a work request of this side.
/// let remote = mr.remote(100); // To send to the peer.
/// assert_eq!((sge.key, remote.key), (mr.lkey(), mr.rkey()));
///
/// let mut bytes = [0; 5];
/// mr.read(100, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_mr")]
pub struct MemoryRegion {
    pd: Arc<Domain>,
    keys: Keys,
    iova: VirtualAddress,
    length: u64,
    /// The buffer, if it is in one, and the offset of its first byte there.
    buffer: Option<(Arc<Buffer>, usize)>,
    deregistered: bool,
    /// What it publishes.
    published: Slot,
}

impl ProtectionDomain {
    /// Allocates and registers zeroed memory.
    ///
    /// # Errors
    ///
    /// When memory is exhausted, or the access flags are inconsistent.
    pub fn allocate(
        &self,
        length: usize,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let buffer = Buffer::new(length).map_err(|_| MemoryError::Allocate { length })?;
        self.register_buffer(&Arc::new(buffer), access)
    }

    /// Registers a [`Buffer`].
    ///
    /// # Errors
    ///
    /// When the access flags are inconsistent.
    pub fn register_buffer(
        &self,
        buffer: &Arc<Buffer>,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let iova = VirtualAddress(buffer.address() as u64);
        self.register_part(buffer, 0, buffer.len(), iova, access)
    }

    /// Registers a part of a [`Buffer`] at the address `iova`. Offsets in the region count from its first byte, not from that of
    /// the buffer.
    ///
    /// # Errors
    ///
    /// When the part is out of bounds, or the access flags are inconsistent.
    #[doc(alias = "ibv_reg_dm_mr")]
    pub fn register_part(
        &self,
        buffer: &Arc<Buffer>,
        offset: usize,
        length: usize,
        iova: VirtualAddress,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let range = AddressRange::of_buffer(buffer, offset, length);
        self.register(range.map_err(|_| RegisterError::Range)?, iova, access)
    }

    /// Registers memory of the program at the address `iova`, which work requests and peers use. The range is used for this
    /// registration only.
    ///
    /// Registered memory may be unmapped by a bug of the program. To detect that, the first call in a process whose memory is not
    /// a [`Buffer`] **installs handlers for SIGSEGV and SIGBUS**, which pass on every fault that is not in a copy of Ferroce, and
    /// **patches the C library's `munmap`, `mmap`, `mremap`, `madvise` and `brk`** (x86-64 with glibc). `FERROCE_WATCH=off` in the
    /// environment leaves the C library unpatched; memory that is mapped at the same addresses later is then taken for the
    /// registered memory. `docs/memory.md` describes both and their limits.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU8, Ordering};
    ///
    /// use ferroce::{AccessFlags, AddressRange, Context, Device, Options, VirtualAddress};
    ///
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let context = Context::open(&Device::named("lo")?, &Options::default())?;
    /// # let pd = context.protection_domain();
    /// // Own memory without unsafe code: the region holds a reference to it.
    /// let memory: Arc<Vec<AtomicU8>> = Arc::new((0..4096).map(|_| AtomicU8::new(0)).collect());
    /// let range = AddressRange::of(Arc::clone(&memory));
    /// let mr = pd.register(range, VirtualAddress(0), AccessFlags::LOCAL_WRITE)?;
    /// mr.write(100, b"hello")?;
    /// assert_eq!(memory[100].load(Ordering::Relaxed), b'h');
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    ///
    /// When the range is not mapped, or not with the permissions that the access flags need.
    #[doc(alias = "ibv_reg_mr")]
    pub fn register(
        &self,
        range: AddressRange,
        iova: VirtualAddress,
        access: AccessFlags,
    ) -> Result<MemoryRegion, MemoryError> {
        let buffer = range.buffer();
        let keys = self.context().adapter().memory.register(self.domain.pd, range, iova, access)?;
        Ok(MemoryRegion::new(self.join(), keys, buffer))
    }

    /// Creates a null MR: writes to it are discarded, and reads return zeroes.
    ///
    /// # Errors
    ///
    /// When no memory key is left.
    #[doc(alias = "ibv_alloc_null_mr")]
    pub fn null_region(&self) -> Result<MemoryRegion, MemoryError> {
        let keys = self.context().adapter().memory.register_null(self.domain.pd)?;
        Ok(MemoryRegion::new(self.join(), keys, None))
    }

    /// Allocates an unbound memory window (MW).
    ///
    /// # Errors
    ///
    /// When no memory key is left.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn window(&self, kind: WindowKind) -> Result<MemoryWindow, MemoryError> {
        let adapter = self.context().adapter();
        let key = adapter.memory.allocate_window(self.domain.pd, kind)?;
        adapter.counters.windows().fetch_add(1, Ordering::Relaxed);
        Ok(MemoryWindow { pd: self.join(), key: Mutex::new(key), kind })
    }
}

impl MemoryRegion {
    fn new(pd: Arc<Domain>, keys: Keys, buffer: Option<(Arc<Buffer>, usize)>) -> Self {
        let adapter = pd.context.adapter();
        let info = adapter.memory.query(keys.lkey);
        // A zero-based region has not the address that was given.
        let (iova, length) = info.map_or((VirtualAddress(0), 0), |info| (info.iova, info.length));
        let published = adapter.counters.publish(Kind::MemoryRegion, |slot| show(slot, info));
        Self { pd, keys, iova, length, buffer, deregistered: false, published }
    }

    /// Returns the local key, for work requests of this process.
    pub fn lkey(&self) -> LKey {
        self.keys.lkey
    }

    /// Returns the remote key, for peers.
    pub fn rkey(&self) -> RKey {
        self.keys.rkey
    }

    /// Returns the address of the first byte (IOVA), as work requests and peers use it.
    pub fn address(&self) -> VirtualAddress {
        self.iova
    }

    /// Returns the length in bytes.
    pub fn len(&self) -> u64 {
        self.length
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// Returns the SGE of a part of the region, for a work request.
    pub fn sge(&self, offset: u64, length: u32) -> Sge {
        let address = VirtualAddress(self.iova.0.wrapping_add(offset));
        Sge { key: self.keys.lkey, address, length }
    }

    /// Returns the remote address of a byte of the region, to send to a peer.
    pub fn remote(&self, offset: u64) -> RemoteAddress {
        let address = VirtualAddress(self.iova.0.wrapping_add(offset));
        RemoteAddress { address, key: self.keys.rkey }
    }

    /// Returns the buffer, if the region is in one: the whole buffer, of which the region may be a part.
    pub fn buffer(&self) -> Option<&Arc<Buffer>> {
        self.buffer.as_ref().map(|(buffer, _)| buffer)
    }

    /// Copies bytes out of the region. As for all methods, `offset` counts from the first byte of the region.
    ///
    /// # Errors
    ///
    /// When they are not within the region, or the program has unmapped them.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> Result<(), CopyError> {
        self.check(offset, out.len())?;
        if let Some((buffer, start)) = &self.buffer {
            return Ok(buffer.read(start + offset, out)?);
        }
        let copied = self.memory().copy_out(self.keys.lkey, offset as u64, out);
        copied.map_err(CopyError::from_denied)
    }

    /// Copies bytes into the region.
    ///
    /// # Errors
    ///
    /// When they are not within the region, the program has unmapped them, or the memory was registered by address without
    /// `LOCAL_WRITE`.
    pub fn write(&self, offset: usize, data: &[u8]) -> Result<(), CopyError> {
        self.check(offset, data.len())?;
        if let Some((buffer, start)) = &self.buffer {
            return Ok(buffer.write(start + offset, data)?);
        }
        let copied = self.memory().copy_in(self.keys.lkey, offset as u64, data);
        copied.map_err(CopyError::from_denied)
    }

    /// Checks that a part is within the region.
    #[inline]
    fn check(&self, offset: usize, length: usize) -> Result<(), CopyError> {
        let end = offset.checked_add(length).ok_or(CopyError::OutOfBounds)?;
        if end as u64 > self.length { Err(CopyError::OutOfBounds) } else { Ok(()) }
    }

    /// Returns the address, length, access flags and PD of the region.
    pub fn info(&self) -> Option<RegionInfo> {
        self.memory().query(self.keys.lkey)
    }

    fn memory(&self) -> &Registry {
        &self.pd.context.adapter().memory
    }

    /// Reregisters the region under the same keys. With a new translation, reads and writes access the new memory.
    ///
    /// # Errors
    ///
    /// When windows are bound to it, or the change is inconsistent; nothing changes then.
    #[doc(alias = "ibv_rereg_mr")]
    pub fn change(&mut self, change: Change) -> Result<(), MemoryError> {
        let translation = change.translation.as_ref().map(|(range, _)| range.buffer());
        self.memory().reregister(self.keys.lkey, change)?;
        if let Some(buffer) = translation {
            self.buffer = buffer;
        }
        let info = self.info();
        if let Some(info) = info {
            (self.iova, self.length) = (info.iova, info.length);
        }
        self.published.update(|slot| show(slot, info));
        Ok(())
    }

    /// Reregisters the region under the same keys in another PD, as [`MemoryRegion::change`] does in the same.
    pub fn change_pd(&mut self, to: &ProtectionDomain, change: Change) -> Result<(), MemoryError> {
        self.change(Change { pd: Some(to.domain.pd), ..change })?;
        self.pd = to.join();
        Ok(())
    }

    /// Deregisters the region: when this returns, no access to its memory is in progress.
    ///
    /// # Errors
    ///
    /// When windows are bound to it (IBA 10.6.7.2.6); the error returns the region. Dropping it unbinds them.
    #[doc(alias = "ibv_dereg_mr")]
    pub fn deregister(mut self) -> Result<(), DeregisterFailure> {
        if let Err(error) = self.memory().deregister(self.keys.lkey) {
            return Err(DeregisterFailure { region: self, error: error.into() });
        }
        self.deregistered = true;
        Ok(())
    }
}

/// Fills in what an MR publishes.
fn show(slot: &Slot, info: Option<RegionInfo>) {
    let Some(info) = info else { return };
    slot.set(Field::Pd as usize, info.pd.0.into());
    slot.set(Field::Length as usize, info.length);
    slot.set(Field::Access as usize, info.access.bits().into());
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
        if !self.deregistered {
            // Also while windows are bound to it, which are unbound. The error is that of a key that is gone already.
            let _ = self.memory().revoke(self.keys.lkey);
        }
    }
}

/// A memory window (MW): a part of a memory region under its own rkey, which can be revoked separately (IBA 10.6.7).
///
/// ```
/// use ferroce::*;
///
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let (device, gid_index) = Device::with_address("127.0.0.1:0".parse()?)?;
/// # let context = Context::open(&device, &Options::default())?;
/// # let pd = context.protection_domain();
/// # let channel = CompletionChannel::new()?;
/// # let cq = context.completion_queue(16, Some(&channel))?;
/// # let options = QueuePairOptions::new(ServiceType::ReliableConnection, &cq);
/// # let (one, other) = (pd.queue_pair(&options)?, pd.queue_pair(&options)?);
/// # let gid = device.gids()[usize::from(gid_index)].gid;
/// # one.connect_to(gid_index, gid, other.number())?;
/// # other.connect_to(gid_index, gid, one.number())?;
/// // The region itself is closed to peers.
/// let region = pd.allocate(64, AccessFlags::LOCAL_WRITE | AccessFlags::MW_BIND)?;
/// let window = pd.window(WindowKind::Type2)?;
///
/// // Opens 16 bytes of it: a request like any other, on the queue pair of the peer that gets the rkey.
/// let bind = window.bind(&region, 32, 16, AccessFlags::REMOTE_READ);
/// one.post_send(SendRequest::new(WorkId(1), bind, Data::NONE))?;
/// assert_eq!(cq.wait()?.status, Status::Success);
///
/// // The peer reads them.
/// let remote = RemoteAddress { key: window.key(), ..region.remote(32) };
/// let read = Operation::Read { remote };
/// other.post_send(SendRequest::new(WorkId(2), read, Data::SgList(region.sge(0, 16).into())))?;
/// assert_eq!(cq.wait()?.status, Status::Success);
///
/// // Closes them again.
/// let invalidate = Operation::LocalInvalidate { key: window.key() };
/// one.post_send(SendRequest::new(WorkId(3), invalidate, Data::NONE))?;
/// assert_eq!(cq.wait()?.status, Status::Success);
/// other.post_send(SendRequest::new(WorkId(4), read, Data::SgList(region.sge(0, 16).into())))?;
/// assert_eq!(cq.wait()?.status, Status::RemoteAccess);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
#[doc(alias = "ibv_mw")]
pub struct MemoryWindow {
    pd: Arc<Domain>,
    key: Mutex<RKey>,
    kind: WindowKind,
}

impl MemoryWindow {
    /// Returns its type.
    pub fn kind(&self) -> WindowKind {
        self.kind
    }

    /// Returns the rkey that the last bind request set or will set.
    pub fn key(&self) -> RKey {
        *lock(&self.key)
    }

    /// Returns the operation that binds it to a part of a region under a new rkey. Post it, and send
    /// [`MemoryWindow::key`] to the peer when it has completed.
    pub fn bind(
        &self,
        region: &MemoryRegion,
        offset: u64,
        length: u64,
        access: AccessFlags,
    ) -> Operation {
        let window = self.key();
        // IBA 10.6.7.2.1: the tag changes, so that the old rkey is invalid.
        let key = RKey(window.0 & !0xff | (window.0.wrapping_add(1) & 0xff));
        let sge = region.sge(offset, 0);
        self.bind_as(key, sge.key, sge.address, length, access)
    }

    /// Returns the operation that binds it under an rkey that the program chose: only the low 8 bits may change.
    pub fn bind_as(
        &self,
        new: RKey,
        region: LKey,
        address: VirtualAddress,
        length: u64,
        access: AccessFlags,
    ) -> Operation {
        let mut key = lock(&self.key);
        let window = std::mem::replace(&mut *key, new);
        Operation::Bind(Bind { window, key: new, region, address, length, access })
    }
}

impl Drop for MemoryWindow {
    fn drop(&mut self) {
        let adapter = self.pd.context.adapter();
        adapter.counters.windows().fetch_sub(1, Ordering::Relaxed);
        // A failed or flushed bind left the window under an earlier rkey: only the tag differs.
        let _ = adapter.memory.deallocate_window(self.key());
    }
}
