//! SgList in flight: handed to the kernel instead of copied, and waited for when their region goes.

use std::fmt;
use std::io::{IoSlice, IoSliceMut};
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use crate::copy;
use crate::region::Region;

/// A SGE of registered memory that stays registered memory while this is held, whatever becomes of its key.
///
/// The bytes are not ours alone: the application may change them at any time.
pub struct Pinned {
    pointer: NonNull<u8>,
    length: usize,
    writable: bool,
    /// None for an empty SGE, which is of no region.
    region: Option<Arc<Region>>,
}

// SAFETY: the pointer is into memory of the process, which no thread owns, and whose users accept that others use it.
unsafe impl Send for Pinned {}
// SAFETY: as above.
unsafe impl Sync for Pinned {}

impl Pinned {
    /// `pointer` is what [`crate::region::Place::pointer`] gave for this region and length.
    pub(crate) fn new(
        pointer: NonNull<u8>,
        length: usize,
        writable: bool,
        region: Option<Arc<Region>>,
    ) -> Self {
        Self { pointer, length, writable, region }
    }

    /// Bytes.
    pub fn len(&self) -> usize {
        self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.length == 0
    }

    /// The address of the first byte, to be handed to the kernel.
    pub fn as_ptr(&self) -> *const u8 {
        self.pointer.as_ptr()
    }

    /// The same, to be written to; `None` for a SGE that was pinned to be read.
    pub fn as_mut_ptr(&self) -> Option<*mut u8> {
        self.writable.then_some(self.pointer.as_ptr())
    }

    /// The part of the SGE from `offset` on, for a system call to gather from; what lies beyond the SGE is left off.
    ///
    /// Not to be looked at as a slice, though its type allows it: the application may write to these bytes meanwhile,
    /// and two looks may see different things. [`Pinned::read`] takes a copy that stays as it is.
    pub fn io_slice(&self, offset: usize, length: usize) -> IoSlice<'_> {
        let (pointer, length) = self.part(offset, length);
        let vector = Vector { base: pointer.as_ptr(), length, _lifetime: PhantomData::<&Self> };
        // SAFETY: std promises that an IoSlice is an iovec, which `Vector` is. The bytes stay mapped while `self` is held.
        unsafe { std::mem::transmute::<Vector<'_, Self>, IoSlice<'_>>(vector) }
    }

    /// The part of the SGE from `offset` on, for a system call to place into, as [`Pinned::io_slice`]; empty for a SGE
    /// that was pinned to be read. The kernel places in no promised order.
    pub fn io_slice_mut(&mut self, offset: usize, length: usize) -> IoSliceMut<'_> {
        let (pointer, length) = self.part(offset, if self.writable { length } else { 0 });
        let vector = Vector { base: pointer.as_ptr(), length, _lifetime: PhantomData::<&Self> };
        // SAFETY: as in `io_slice`; the SGE was pinned to be written.
        unsafe { std::mem::transmute::<Vector<'_, Self>, IoSliceMut<'_>>(vector) }
    }

    /// Copies from `offset` on to `out`, and returns how many bytes there were.
    pub fn read(&self, offset: usize, out: &mut [u8]) -> usize {
        let (pointer, length) = self.part(offset, out.len());
        // SAFETY: within the SGE, which stays mapped while `self` is held; `part` gives at most what `out` has.
        unsafe { copy::load(pointer.as_ptr(), &mut out[..length]) };
        length
    }

    fn part(&self, offset: usize, length: usize) -> (NonNull<u8>, usize) {
        let offset = offset.min(self.length);
        // SAFETY: within the SGE, or just behind it.
        (unsafe { self.pointer.add(offset) }, length.min(self.length - offset))
    }
}

/// `struct iovec`, with a lifetime.
#[repr(C)]
struct Vector<'a, T> {
    base: *mut u8,
    length: usize,
    _lifetime: PhantomData<&'a T>,
}

impl fmt::Debug for Pinned {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Pinned");
        shown.field("address", &self.pointer).field("length", &self.length);
        shown.field("writable", &self.writable);
        shown.field("domain", &self.region.as_ref().map(|region| region.pd)).finish()
    }
}

#[derive(Debug, Default)]
struct Signal {
    done: Mutex<bool>,
    changed: Condvar,
}

/// Part of a region: dropped with it, when the last that held it is gone.
#[derive(Debug, Default)]
pub(crate) struct Released(Arc<Signal>);

impl Released {
    pub(crate) fn watch(&self) -> Draining {
        Draining(Arc::clone(&self.0))
    }
}

impl Drop for Released {
    fn drop(&mut self) {
        *self.0.done.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.0.changed.notify_all();
    }
}

/// A region that has no key any more, but perhaps SGEs in flight. Its memory may be unmapped or used for something else
/// when this has come to its end.
///
/// Whoever drives the engine that holds those SGEs lets go of it before waiting, or asks [`Draining::is_done`] and
/// drives on: the SGEs are released by nobody else.
#[derive(Debug)]
#[must_use = "the memory may still be in use until this is done"]
pub struct Draining(Arc<Signal>);

impl Draining {
    /// Whether the last SGE in flight is gone.
    pub fn is_done(&self) -> bool {
        *self.0.done.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until the last SGE in flight is gone.
    pub fn wait(self) {
        let mut done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        while !*done {
            done = self.0.changed.wait(done).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The same for at most this long, and whether it came to its end.
    pub fn wait_timeout(&self, limit: Duration) -> bool {
        let done = self.0.done.lock().unwrap_or_else(PoisonError::into_inner);
        let waited = self.0.changed.wait_timeout_while(done, limit, |done| !*done);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}
