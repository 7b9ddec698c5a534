//! Forwarding of libibverbs and librdmacm calls in programs that bundle these libraries.
//!
//! `LD_LIBRARY_PATH` does not affect a libibverbs that a program bundles under another name, as wheels made by auditwheel do
//! (`libibverbs-1de1263b.so.1`). Symbols of a preloaded library take precedence over those of all others, whatever the file
//! names. This library therefore also exports the symbols of libibverbs and librdmacm, each a stub that jumps to Ferroce's
//! function.
//!
//! The first call of a stub loads Ferroce's library from the file in `FERROCE_VERBS`, so a process that calls none, like most
//! that a shell starts, only carries the stubs. Without the variable a call goes to the next library with that symbol.

use std::arch::global_asm;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_void};

use crate::next::{errno, set_errno};
use crate::variable::Variable;

include!(concat!(env!("OUT_DIR"), "/names.rs"));

pub(crate) static VERBS: Variable = Variable::new(c"FERROCE_VERBS");

// Saves all argument registers while the function is resolved. None of these functions takes floating-point arguments.
#[cfg(target_arch = "x86_64")]
global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/entries.s")),
    "ferroce_first:",
    "push rdi",
    "push rsi",
    "push rdx",
    "push rcx",
    "push r8",
    "push r9",
    // The seventh push aligns the stack.
    "push rax",
    "mov edi, r11d",
    "call {resolve}",
    "mov r11, rax",
    "pop rax",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "jmp r11",
    resolve = sym resolve,
);
#[cfg(target_arch = "aarch64")]
global_asm!(
    include_str!(concat!(env!("OUT_DIR"), "/entries.s")),
    "ferroce_first:",
    "stp x29, x30, [sp, #-96]!",
    "stp x0, x1, [sp, #16]",
    "stp x2, x3, [sp, #32]",
    "stp x4, x5, [sp, #48]",
    "stp x6, x7, [sp, #64]",
    "str x8, [sp, #80]",
    "mov w0, w17",
    "bl {resolve}",
    "mov x16, x0",
    "ldr x8, [sp, #80]",
    "ldp x6, x7, [sp, #64]",
    "ldp x4, x5, [sp, #48]",
    "ldp x2, x3, [sp, #32]",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #96",
    "br x16",
    resolve = sym resolve,
);

unsafe extern "C" {
    /// The jump targets of the stubs.
    static ferroce_slots: [AtomicPtr<c_void>; COUNT];
}

/// Handle of Ferroce's library, once loaded.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Loads Ferroce's library once. Null if there is none.
fn library() -> *mut c_void {
    let known = LIBRARY.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let Some(path) = VERBS.get() else { return null_mut() };
    // SAFETY: the path is NUL-terminated.
    let opened = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if opened.is_null() {
        // SAFETY: the linker's NUL-terminated message.
        report_missing(unsafe { libc::dlerror() });
    }
    // Threads that race store the same handle.
    LIBRARY.store(opened, Ordering::Release);
    opened
}

/// Resolves the function of a stub and stores it as the stub's jump target.
extern "C" fn resolve(number: u32) -> *const c_void {
    let saved = errno();
    let (name, version) = NAMES[number as usize];
    // SAFETY: name and version are NUL-terminated, and the library is never closed.
    let find = |library| unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) };
    let ours = library();
    let mut found = if ours.is_null() { null_mut() } else { find(ours) };
    if found.is_null() {
        found = find(libc::RTLD_NEXT);
    }
    if found.is_null() {
        report_missing(name.as_ptr());
        found = missing as *mut c_void;
    }
    // SAFETY: there is a slot for every name, and only this function writes to them.
    unsafe { ferroce_slots[number as usize].store(found, Ordering::Relaxed) };
    set_errno(saved);
    found
}

/// Stands in for a function that no library has: fails with `ENOSYS`.
extern "C" fn missing() -> *mut c_void {
    set_errno(libc::ENOSYS);
    null_mut()
}

/// Reports on standard error that a library or symbol was not found.
fn report_missing(what: *const c_char) {
    let write = |text: &[u8]| {
        // SAFETY: the slice is valid. A failed write is ignored.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    };
    write(b"ferroce: not found: ");
    if !what.is_null() {
        // SAFETY: the caller's text is NUL-terminated.
        write(unsafe { CStr::from_ptr(what) }.to_bytes());
    }
    write(b"\n");
}
