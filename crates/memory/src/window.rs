//! Memory windows (MW): a part of a region under a separate rkey, bound and invalidated without registration (IBA 10.6.7.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::memory::{AccessFlags, Accessor, Bind, Denied, PdId};
use ferroce_proto::reason::{KeyFault, Object as Kind, RefusedAccess};
use ferroce_wire::number::{Qpn, RKey};

use crate::error::WindowError;
use crate::explain;
use crate::keys::index_of;
use crate::region::{Region, RegionSlice};
use crate::registry::Registry;
use crate::table::Object;

/// The type of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// Bound by a verb, also repeatedly; valid for every queue pair of its PD.
    Type1,
    /// Bound by a work request; must be invalidated before it is bound again; valid for the queue pair that bound it (2B).
    Type2,
}

#[derive(Debug)]
pub(crate) struct Window {
    pd: PdId,
    kind: WindowKind,
    binding: Option<Binding>,
}

/// The binding of a window, which the region counts.
#[derive(Debug)]
pub(crate) struct Binding {
    region: Arc<Region>,
    queue_pair: Qpn,
    access: AccessFlags,
    /// The address of the first byte for peers: 0 if the window is zero-based.
    remote_base: u64,
    /// The address of the first byte in the region.
    region_address: u64,
    length: u64,
}

impl Drop for Binding {
    fn drop(&mut self) {
        self.region.windows.fetch_sub(1, Ordering::Release);
    }
}

/// The access flags that a window may have.
const WINDOW_ACCESS: AccessFlags = AccessFlags::REMOTE_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::FLUSH_GLOBAL)
    .union(AccessFlags::ZERO_BASED);

impl Window {
    /// Checks a remote access, and returns the part of the region that it refers to.
    pub(crate) fn slice(
        &self,
        by: Accessor,
        address: u64,
        length: u64,
        access: AccessFlags,
    ) -> Result<RegionSlice<'_>, Denied> {
        let binding = self.check_access(by, access)?;
        let start = address.checked_sub(binding.remote_base).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length).ok_or(Denied::Bounds)?;
        if end > binding.length {
            return Err(Denied::Bounds);
        }
        binding.region.slice(binding.region_address + start, length)
    }

    /// Why a remote access was denied. `None` if nothing is wrong here.
    pub(crate) fn fault(&self, by: Accessor, access: &RefusedAccess) -> Option<KeyFault> {
        let Some(binding) = &self.binding else { return Some(KeyFault::Unbound) };
        if self.pd != by.pd {
            return Some(KeyFault::OtherPd { object: self.pd, queue_pair: by.pd });
        }
        if self.kind == WindowKind::Type2 && binding.queue_pair != by.queue_pair {
            return Some(KeyFault::OtherQueuePair(binding.queue_pair));
        }
        let (start, size) = (binding.remote_base, binding.length);
        explain::fault_of(Kind::Window, binding.access, (start, size), access)
    }

    /// Checks the rights of a remote access, and returns the binding.
    pub(crate) fn check_access(
        &self,
        by: Accessor,
        access: AccessFlags,
    ) -> Result<&Binding, Denied> {
        let binding = self.binding.as_ref().ok_or(Denied::Key)?;
        if self.pd != by.pd {
            return Err(Denied::PdId);
        }
        // IBA 10.6.7.2.3: the key is invalid for all other queue pairs.
        if self.kind == WindowKind::Type2 && binding.queue_pair != by.queue_pair {
            return Err(Denied::Key);
        }
        if !binding.access.contains(access) {
            return Err(Denied::Access);
        }
        Ok(binding)
    }
}

impl Registry {
    /// Allocates an unbound window, and returns its rkey.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn allocate_window(&self, pd: PdId, kind: WindowKind) -> Result<RKey, WindowError> {
        let window = Box::new(Window { pd, kind, binding: None });
        let key = self.table.insert(Object::Window(window)).ok_or(WindowError::Full)?;
        self.windows.fetch_add(1, Ordering::Relaxed);
        Ok(RKey(key))
    }

    /// Deallocates a window, bound or not, by its current key or one with another tag: a bind request that is still posted may
    /// change the tag at any time.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn deallocate_window(&self, key: RKey) -> Result<(), WindowError> {
        let entry = self.table.write_any_tag(key.0).ok_or(WindowError::Key)?;
        if !matches!(entry.object, Object::Window(_)) {
            return Err(WindowError::Key);
        }
        drop(self.table.remove(entry));
        self.windows.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Binds or unbinds a window. The region's slot is unlocked before the window's is locked, so no thread waits for a slot
    /// while it holds another.
    pub(crate) fn bind_window(&self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        // The owner chooses the tag only.
        if index_of(bind.key.0) != index_of(bind.window.0) {
            return Err(Denied::Key);
        }
        let binding = if bind.length == 0 { None } else { Some(self.resolve(by, bind)?) };
        let mut entry = self.table.write(bind.window.0).ok_or(Denied::Key)?;
        let Object::Window(window) = &mut entry.object else { return Err(Denied::Key) };
        // IBA C10-72.
        if window.pd != by.pd {
            return Err(Denied::PdId);
        }
        match window.kind {
            // IBA o10-36.2.2: a type 1 window has the addresses of the region.
            WindowKind::Type1 if bind.access.contains(AccessFlags::ZERO_BASED) => {
                return Err(Denied::Access);
            }
            WindowKind::Type1 => {}
            // IBA o10-37.2.30 and o10-37.2.40: it must be unbound, and is unbound by invalidation only.
            WindowKind::Type2 if window.binding.is_some() || binding.is_none() => {
                return Err(Denied::Access);
            }
            WindowKind::Type2 => {}
        }
        // The region may have been revoked since its slot was unlocked. If it is revoked from now on, the scan for its windows
        // finds this one, because it locks this slot afterwards.
        if binding.as_ref().is_some_and(|binding| binding.region.revoked.load(Ordering::Relaxed)) {
            return Err(Denied::Key);
        }
        window.binding = binding;
        entry.key = bind.key.0;
        Ok(())
    }

    /// Unbinds all windows of a region that is not in the table any more.
    pub(crate) fn unbind_windows(&self, region: &Arc<Region>) {
        if region.windows.load(Ordering::Acquire) == 0 {
            return;
        }
        self.table.each_window(|window| {
            window.binding.take_if(|binding| Arc::ptr_eq(&binding.region, region));
        });
    }

    /// Checks a bind request, and returns the binding, which the region then counts.
    fn resolve(&self, by: Accessor, bind: &Bind) -> Result<Binding, Denied> {
        let entry = self.table.read(bind.region.0).ok_or(Denied::Key)?;
        let Object::Region(region) = &entry.object else { return Err(Denied::Key) };
        if region.pd != by.pd {
            return Err(Denied::PdId);
        }
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let allowed = WINDOW_ACCESS.contains(bind.access)
            // IBA C10-73.
            && region.access.contains(AccessFlags::MW_BIND)
            && !region.access.contains(AccessFlags::ZERO_BASED)
            // IBA C10-74: remote write access requires local write access.
            && (!bind.access.intersects(writes)
                || region.access.contains(AccessFlags::LOCAL_WRITE));
        if !allowed {
            return Err(Denied::Access);
        }
        // IBA C10-75.
        region.slice(bind.address.0, bind.length)?;
        // Under the lock of the region's slot, so that it is not deregistered meanwhile.
        region.windows.fetch_add(1, Ordering::Relaxed);
        let zero_based = bind.access.contains(AccessFlags::ZERO_BASED);
        Ok(Binding {
            region: Arc::clone(region),
            queue_pair: by.queue_pair,
            access: bind.access,
            remote_base: if zero_based { 0 } else { bind.address.0 },
            region_address: bind.address.0,
            length: bind.length,
        })
    }

    /// Invalidates a type 2 window (IBA 10.6.5).
    pub(crate) fn invalidate_window(&self, by: Accessor, key: RKey) -> Result<(), Denied> {
        let mut entry = self.table.write(key.0).ok_or(Denied::Key)?;
        let window = match &mut entry.object {
            Object::Window(window) => window,
            Object::Region(region) if region.pd != by.pd => return Err(Denied::PdId),
            Object::Region(_) => return Err(Denied::Access),
            Object::None => return Err(Denied::Key),
        };
        if window.pd != by.pd {
            return Err(Denied::PdId);
        }
        // IBA o10-37.2.26.
        if window.kind == WindowKind::Type1 {
            return Err(Denied::Access);
        }
        if window.binding.as_ref().is_none_or(|binding| binding.queue_pair != by.queue_pair) {
            return Err(Denied::Key);
        }
        window.binding = None;
        Ok(())
    }

    /// Unbinds the type 2 windows of a destroyed queue pair, so that the next queue pair with its QPN cannot use them. Scans
    /// all slots if there are windows.
    pub fn forget_queue_pair(&self, queue_pair: Qpn) {
        if self.windows() == 0 {
            return;
        }
        self.table.each_window(|window| {
            if window.kind == WindowKind::Type2 {
                window.binding.take_if(|binding| binding.queue_pair == queue_pair);
            }
        });
    }
}
