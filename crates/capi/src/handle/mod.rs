//! Objects that programs hold by pointer: the structure of the ABI first, private fields after it.
//!
//! The handles that several operations need are here; those of a single module are defined in that module.

pub(crate) mod ah;
pub(crate) mod context;
pub(crate) mod cq;
pub(crate) mod objects;
pub(crate) mod pd;
pub(crate) mod qp;
pub(crate) mod srq;
pub(crate) mod xrcd;

use std::cell::UnsafeCell;

use crate::entry::{Errno, Result};

/// The public fields of a handle, which the program may read and write at any time.
#[repr(transparent)]
pub(crate) struct Shown<T>(UnsafeCell<T>);

// SAFETY: the value is only copied in and out, as C programs do; pointers in it are the program's to share.
unsafe impl<T> Send for Shown<T> {}
// SAFETY: as above.
unsafe impl<T> Sync for Shown<T> {}

impl<T: Copy> Shown<T> {
    pub(crate) fn new(value: T) -> Self {
        Self(UnsafeCell::new(value))
    }

    pub(crate) fn pointer(&self) -> *mut T {
        self.0.get()
    }

    /// Changes some of the fields.
    pub(crate) fn change(&self, change: impl FnOnce(&mut T)) {
        // SAFETY: of our threads, only the one that creates or changes the object for the program calls this, and
        // `change` is a short closure that calls nothing.
        change(unsafe { &mut *self.0.get() });
    }
}

/// An object that a program holds by a pointer to its public fields.
///
/// # Safety
/// The type is `repr(C)`, and its first field is a `Shown<Self::Abi>`.
pub(crate) unsafe trait Handle: Sized {
    type Abi;

    /// Allocates the object and passes its ownership to the program.
    fn give<A>(self) -> *mut A {
        Box::into_raw(Box::new(self)).cast()
    }

    /// Returns the object behind a program's pointer, or `EINVAL` for null.
    ///
    /// # Safety
    /// The pointer is null, or came from [`Handle::give`] of this type and was not taken back.
    #[inline]
    unsafe fn of<'a>(pointer: *const Self::Abi) -> Result<&'a Self> {
        // SAFETY: the public fields come first, and the whole object is behind them.
        unsafe { pointer.cast::<Self>().as_ref() }.ok_or(Errno::INVALID)
    }

    /// Takes ownership back from the program.
    ///
    /// # Safety
    /// As for [`Handle::of`], and the program does not use the pointer again.
    unsafe fn take(pointer: *mut Self::Abi) -> Box<Self> {
        // SAFETY: it was allocated as a box by `give`, and no one else owns it.
        unsafe { Box::from_raw(pointer.cast::<Self>()) }
    }
}

/// Implements [`Handle`] for a type whose first field is the structure of the ABI.
macro_rules! handle {
    ($type:ty, $field:ident, $abi:ty) => {
        // SAFETY: the type is `repr(C)`; the position of the field is checked below.
        unsafe impl $crate::handle::Handle for $type {
            type Abi = $abi;
        }

        const _: () = assert!(std::mem::offset_of!($type, $field) == 0);
    };
}

pub(crate) use handle;
