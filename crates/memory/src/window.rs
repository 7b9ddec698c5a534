//! Memory windows: a part of a region under a key of its own, that comes and goes without registering (IBA 10.6.7.2).

use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_proto::memory::{AccessFlags, Accessor, Bind, Denied, PdId};
use ferroce_wire::number::{Qpn, RKey};

use crate::error::WindowError;
use crate::keys::index_of;
use crate::region::{Place, Region};
use crate::registry::Registry;
use crate::table::Tenant;

/// What a window can do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum WindowKind {
    /// Bound by a verb, again and again; seen through every queue pair of its domain.
    Type1,
    /// Bound by a work request; made invalid before it is bound again; seen through the queue pair that bound it (2B).
    Type2,
}

#[derive(Debug)]
pub(crate) struct Window {
    pd: PdId,
    kind: WindowKind,
    bound: Option<Bound>,
}

/// What a window shows. The region counts these.
#[derive(Debug)]
pub(crate) struct Bound {
    region: Arc<Region>,
    queue_pair: Qpn,
    access: AccessFlags,
    /// What peers call the first byte: 0 if the window is zero-based.
    first: u64,
    /// The same in the region's addresses.
    start: u64,
    length: u64,
}

impl Drop for Bound {
    fn drop(&mut self) {
        self.region.windows.fetch_sub(1, Ordering::Release);
    }
}

/// What a window may allow.
const GRANTED: AccessFlags = AccessFlags::REMOTE_WRITE
    .union(AccessFlags::REMOTE_READ)
    .union(AccessFlags::REMOTE_ATOMIC)
    .union(AccessFlags::FLUSH_GLOBAL)
    .union(AccessFlags::ZERO_BASED);

impl Window {
    /// The bytes that a peer asks for, with the region that they are of.
    pub(crate) fn place(
        &self,
        by: Accessor,
        address: u64,
        length: u64,
        access: AccessFlags,
    ) -> Result<(&Arc<Region>, Place<'_>), Denied> {
        let bound = self.granted(by, access)?;
        let start = address.checked_sub(bound.first).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length).ok_or(Denied::Bounds)?;
        if end > bound.length {
            return Err(Denied::Bounds);
        }
        Ok((&bound.region, bound.region.place(bound.start + start, length)?))
    }

    /// What it is bound to, if a peer may access that so.
    pub(crate) fn granted(&self, by: Accessor, access: AccessFlags) -> Result<&Bound, Denied> {
        let bound = self.bound.as_ref().ok_or(Denied::Key)?;
        if self.pd != by.pd {
            return Err(Denied::PdId);
        }
        // IBA 10.6.7.2.3: for all other queue pairs the key is none.
        if self.kind == WindowKind::Type2 && bound.queue_pair != by.queue_pair {
            return Err(Denied::Key);
        }
        if !bound.access.contains(access) {
            return Err(Denied::Access);
        }
        Ok(bound)
    }
}

impl Registry {
    /// Allocates a window that shows nothing yet, and returns its key.
    #[doc(alias = "ibv_alloc_mw")]
    pub fn allocate_window(&self, pd: PdId, kind: WindowKind) -> Result<RKey, WindowError> {
        let window = Box::new(Window { pd, kind, bound: None });
        let key = self.table.insert(Tenant::Window(window)).ok_or(WindowError::Full)?;
        self.windows.fetch_add(1, Ordering::Relaxed);
        Ok(RKey(key))
    }

    /// Frees a window, bound or not, by the key that it has or had last.
    #[doc(alias = "ibv_dealloc_mw")]
    pub fn deallocate_window(&self, key: RKey) -> Result<(), WindowError> {
        let entry = self.table.write(key.0).ok_or(WindowError::Key)?;
        if !matches!(entry.tenant, Tenant::Window(_)) {
            return Err(WindowError::Key);
        }
        drop(self.table.remove(entry));
        self.windows.fetch_sub(1, Ordering::Relaxed);
        Ok(())
    }

    /// Binds or unbinds a window. The region is looked up, counted and let go of before the window is locked, so no
    /// thread ever waits for one slot with another in its hands.
    pub(crate) fn bind_window(&self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        // Only the tag is the owner's to choose.
        if index_of(bind.key.0) != index_of(bind.window.0) {
            return Err(Denied::Key);
        }
        let bound = if bind.length == 0 { None } else { Some(self.show(by, bind)?) };
        let mut entry = self.table.write(bind.window.0).ok_or(Denied::Key)?;
        let Tenant::Window(window) = &mut entry.tenant else { return Err(Denied::Key) };
        // IBA C10-72.
        if window.pd != by.pd {
            return Err(Denied::PdId);
        }
        match window.kind {
            // IBA o10-36.2.2: addresses of type 1 are the region's.
            WindowKind::Type1 if bind.access.contains(AccessFlags::ZERO_BASED) => {
                return Err(Denied::Access);
            }
            WindowKind::Type1 => {}
            // IBA o10-37.2.30 and o10-37.2.40: it is bound when it is free, and freed by making it invalid.
            WindowKind::Type2 if window.bound.is_some() || bound.is_none() => {
                return Err(Denied::Access);
            }
            WindowKind::Type2 => {}
        }
        window.bound = bound;
        entry.key = bind.key.0;
        Ok(())
    }

    /// What the window is to show, counted by the region.
    fn show(&self, by: Accessor, bind: &Bind) -> Result<Bound, Denied> {
        let entry = self.table.read(bind.region.0).ok_or(Denied::Key)?;
        let Tenant::Region(region) = &entry.tenant else { return Err(Denied::Key) };
        if region.pd != by.pd {
            return Err(Denied::PdId);
        }
        let writes = AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_ATOMIC;
        let allowed = GRANTED.contains(bind.access)
            // IBA C10-73.
            && region.access.contains(AccessFlags::MW_BIND)
            && !region.access.contains(AccessFlags::ZERO_BASED)
            // IBA C10-74: who may not write there cannot allow it to others.
            && (!bind.access.intersects(writes)
                || region.access.contains(AccessFlags::LOCAL_WRITE));
        if !allowed {
            return Err(Denied::Access);
        }
        // IBA C10-75.
        region.place(bind.address.0, bind.length)?;
        // Under the region's lock, so that it is not deregistered between these lines.
        region.windows.fetch_add(1, Ordering::Relaxed);
        let zero_based = bind.access.contains(AccessFlags::ZERO_BASED);
        Ok(Bound {
            region: Arc::clone(region),
            queue_pair: by.queue_pair,
            access: bind.access,
            first: if zero_based { 0 } else { bind.address.0 },
            start: bind.address.0,
            length: bind.length,
        })
    }

    /// Makes a window of type 2 show nothing (IBA 10.6.5).
    pub(crate) fn invalidate_window(&self, by: Accessor, key: RKey) -> Result<(), Denied> {
        let mut entry = self.table.write(key.0).ok_or(Denied::Key)?;
        let window = match &mut entry.tenant {
            Tenant::Window(window) => window,
            Tenant::Region(region) if region.pd != by.pd => return Err(Denied::PdId),
            Tenant::Region(_) => return Err(Denied::Access),
            Tenant::Nobody => return Err(Denied::Key),
        };
        if window.pd != by.pd {
            return Err(Denied::PdId);
        }
        // IBA o10-37.2.26.
        if window.kind == WindowKind::Type1 {
            return Err(Denied::Access);
        }
        if window.bound.as_ref().is_none_or(|bound| bound.queue_pair != by.queue_pair) {
            return Err(Denied::Key);
        }
        window.bound = None;
        Ok(())
    }

    /// A queue pair is no more: what windows of type 2 showed through it, they show nobody, least of all the next queue
    /// pair that gets its number. Looks at all slots, if there are windows.
    pub fn forget_queue_pair(&self, queue_pair: Qpn) {
        if self.windows() == 0 {
            return;
        }
        self.table.each_window(|window| {
            let its = |bound: &Bound| bound.queue_pair == queue_pair;
            if window.kind == WindowKind::Type2 && window.bound.as_ref().is_some_and(its) {
                window.bound = None;
            }
        });
    }
}
