//! The functions that this library interposes: those of the C library, or of another preloaded library.

use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_int, c_void};

/// The first symbol version of glibc on this architecture, under which symbols removed from its headers are still found.
#[cfg(target_arch = "x86_64")]
const FIRST_VERSION: &CStr = c"GLIBC_2.2.5";
#[cfg(not(target_arch = "x86_64"))]
const FIRST_VERSION: &CStr = c"GLIBC_2.17";

/// An interposed function, resolved once.
pub(crate) struct NextFunction {
    name: &'static CStr,
    address: AtomicPtr<c_void>,
}

impl NextFunction {
    pub(crate) const fn new(name: &'static CStr) -> Self {
        Self { name, address: AtomicPtr::new(null_mut()) }
    }

    /// Returns the function's address; null if there is no such function.
    ///
    /// The address is resolved when the library is loaded, so that this is a single load, also in signal handlers. The
    /// constructor of another library may call earlier: then it is resolved here, at worst twice.
    #[inline]
    pub(crate) fn address(&self) -> *mut c_void {
        let address = self.address.load(Ordering::Relaxed);
        if address.is_null() { self.resolve() } else { address }
    }

    #[cold]
    pub(crate) fn resolve(&self) -> *mut c_void {
        let saved = errno();
        // The linker does not allocate if it finds the symbol, so a malloc replacement that opens a file on its first
        // call does not recurse here.
        // SAFETY: the name is NUL-terminated.
        let mut address = unsafe { libc::dlsym(libc::RTLD_NEXT, self.name.as_ptr()) };
        if address.is_null() {
            // SAFETY: as above.
            address = unsafe {
                libc::dlvsym(libc::RTLD_NEXT, self.name.as_ptr(), FIRST_VERSION.as_ptr())
            };
        }
        // Relaxed: threads that race store the same address, and no other data is published with it.
        self.address.store(address, Ordering::Relaxed);
        set_errno(saved);
        address
    }
}

pub(crate) fn errno() -> c_int {
    // SAFETY: the location is thread-local and valid for the life of the thread.
    unsafe { *libc::__errno_location() }
}

pub(crate) fn set_errno(value: c_int) {
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = value }
}
