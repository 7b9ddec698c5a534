//! Objects that programs hold by pointer: the fields that the ABI shows, and ours behind them.

use std::cell::UnsafeCell;

use crate::entry::{Errno, Result};

/// The fields that a program may read and write whenever it likes.
#[repr(transparent)]
pub(crate) struct Shown<T>(UnsafeCell<T>);

// SAFETY: what is in it is only ever copied in and out, as C programs do; pointers in it are the program's to share.
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
        // SAFETY: of our threads, only the one that makes or changes the object for the program comes here, and `change`
        // is a short closure that calls nothing.
        change(unsafe { &mut *self.0.get() });
    }
}

/// An object that a program holds by a pointer to what it is shown of it.
///
/// # Safety
/// The type is `repr(C)`, and its first field is a `Shown<Self::Abi>`.
pub(crate) unsafe trait Handle: Sized {
    type Abi;

    /// Gives it to the program.
    fn give<A>(self) -> *mut A {
        Box::into_raw(Box::new(self)).cast()
    }

    /// The object behind a program's pointer.
    ///
    /// # Safety
    /// The pointer is null, or came from [`Handle::give`] of this type and was not taken back.
    #[inline]
    unsafe fn of<'a>(pointer: *const Self::Abi) -> Result<&'a Self> {
        // SAFETY: the shown fields come first, and the whole object is behind them.
        unsafe { pointer.cast::<Self>().as_ref() }.ok_or(Errno::INVALID)
    }

    /// Takes it back from the program.
    ///
    /// # Safety
    /// As [`Handle::of`], and the program does not use it again.
    unsafe fn take(pointer: *mut Self::Abi) -> Box<Self> {
        // SAFETY: it was a box, and is the program's alone.
        unsafe { Box::from_raw(pointer.cast::<Self>()) }
    }
}

/// Declares that a type is what is behind a structure of the ABI, which must be its first field.
macro_rules! handle {
    ($type:ty, $field:ident, $abi:ty) => {
        // SAFETY: the type is `repr(C)`; that the field comes first is checked here.
        unsafe impl $crate::handle::Handle for $type {
            type Abi = $abi;
        }

        const _: () = assert!(std::mem::offset_of!($type, $field) == 0);
    };
}

pub(crate) use handle;
