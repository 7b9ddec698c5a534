//! The functions that ours stand before: those of the C library, or of another preloaded one.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void};

/// What a symbol that left the C library's headers is still found under: its first version on this architecture.
#[cfg(target_arch = "x86_64")]
const FIRST_VERSION: &CStr = c"GLIBC_2.2.5";
#[cfg(not(target_arch = "x86_64"))]
const FIRST_VERSION: &CStr = c"GLIBC_2.17";

/// A function's address, looked up once.
pub(crate) struct Next {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl Next {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// The address; null when there is no such function.
    ///
    /// Looked up when the library is loaded, so that later, and in signal handlers, this is a load. A library whose
    /// constructor runs before ours may call earlier: then it is looked up here, and twice at worst.
    #[inline]
    pub(crate) fn find(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.look_up() } else { address }
    }

    #[cold]
    pub(crate) fn look_up(&self) -> *mut c_void {
        let before = errno();
        // SAFETY: the name ends with a zero. A symbol that is found does not make the linker allocate, so a
        // replacement of malloc that opens a file on its first call does not come round to itself here.
        let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            // SAFETY: as above.
            address = unsafe {
                libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), FIRST_VERSION.as_ptr())
            };
        }
        // The same whoever stores it, and nothing is published with it.
        self.address.store(address, Ordering::Relaxed);
        set_errno(before);
        address
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: each thread has its own, for as long as it lives.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}
