//! Programs that carry a libibverbs of their own under another name, as wheels made by auditwheel do
//! (`libibverbs-1de1263b.so.1`), are not reached by `LD_LIBRARY_PATH`. Symbols of a preloaded library come before those of
//! all others, whatever their files are called: so this library has those of libibverbs and librdmacm, too, each of which
//! leads to ours.
//!
//! Ours is loaded by the first call of one of them, from the file that `FERROCE_VERBS` names: a process that makes none,
//! and most of those that a shell starts make none, has nothing but these entries. Without the variable a call goes to the
//! library that the program would have had.

use std::arch::global_asm;
use std::ffi::CStr;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{c_char, c_void};

use crate::next::{errno, set_errno};
use crate::variable::Variable;

include!(concat!(env!("OUT_DIR"), "/names.rs"));

pub(crate) static VERBS: Variable = Variable::new(c"FERROCE_VERBS");

// Arguments are in registers, all of which are kept while the function is looked up. None of these functions takes
// floating-point numbers.
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
    // The seventh aligns the stack.
    "push rax",
    "mov edi, r11d",
    "call {look_up}",
    "mov r11, rax",
    "pop rax",
    "pop r9",
    "pop r8",
    "pop rcx",
    "pop rdx",
    "pop rsi",
    "pop rdi",
    "jmp r11",
    look_up = sym look_up,
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
    "bl {look_up}",
    "mov x16, x0",
    "ldr x8, [sp, #80]",
    "ldp x6, x7, [sp, #64]",
    "ldp x4, x5, [sp, #48]",
    "ldp x2, x3, [sp, #32]",
    "ldp x0, x1, [sp, #16]",
    "ldp x29, x30, [sp], #96",
    "br x16",
    look_up = sym look_up,
);

unsafe extern "C" {
    /// Where the entries lead.
    static ferroce_slots: [AtomicPtr<c_void>; COUNT];
}

/// Our library, once it is loaded.
static LIBRARY: AtomicPtr<c_void> = AtomicPtr::new(null_mut());

/// Loads our library, once. Null where there is none.
fn library() -> *mut c_void {
    let known = LIBRARY.load(Ordering::Acquire);
    if !known.is_null() {
        return known;
    }
    let Some(path) = VERBS.get() else { return null_mut() };
    // SAFETY: the path ends with a zero.
    let opened = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
    if opened.is_null() {
        // SAFETY: the linker's text, which ends with a zero.
        complain(unsafe { libc::dlerror() });
    }
    // The same whoever stores it.
    LIBRARY.store(opened, Ordering::Release);
    opened
}

/// Finds the function of an entry, and puts it in the entry's slot.
extern "C" fn look_up(number: u32) -> *const c_void {
    let before = errno();
    let (name, version) = NAMES[number as usize];
    // SAFETY: the names end with zeroes, and the library is not closed.
    let find = |library| unsafe { libc::dlvsym(library, name.as_ptr(), version.as_ptr()) };
    let ours = library();
    let mut found = if ours.is_null() { null_mut() } else { find(ours) };
    if found.is_null() {
        found = find(libc::RTLD_NEXT);
    }
    if found.is_null() {
        complain(name.as_ptr());
        found = missing as *mut c_void;
    }
    // SAFETY: as many slots as names, and nothing but this writes to them.
    unsafe { ferroce_slots[number as usize].store(found, Ordering::Relaxed) };
    set_errno(before);
    found
}

/// What a function is that is nowhere.
extern "C" fn missing() -> *mut c_void {
    set_errno(libc::ENOSYS);
    null_mut()
}

/// Says that something cannot be found.
fn complain(what: *const c_char) {
    let write = |text: &[u8]| {
        // SAFETY: the bytes are there. Nothing can be done when they are not taken.
        unsafe { libc::write(libc::STDERR_FILENO, text.as_ptr().cast(), text.len()) };
    };
    write(b"ferroce: not found: ");
    if !what.is_null() {
        // SAFETY: the caller's text ends with a zero.
        write(unsafe { CStr::from_ptr(what) }.to_bytes());
    }
    write(b"\n");
}
