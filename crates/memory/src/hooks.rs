//! Detects memory that is unmapped by the program, its libraries, or the allocator of the C library.
//!
//! Symbol interposition (`LD_PRELOAD`) does not affect calls within the C library, which `free` makes. So one of the first
//! instructions of glibc's `munmap` and similar functions is replaced by a jump to a function of this module, as UCX does
//! (its "bistro" hooks). They are thin wrappers of a system call: the replacements notify [`crate::watch`] and make the call.
//!
//! The jump is written by one store over one instruction, so a thread that is inside the function at that moment, or returns
//! to it from the kernel, executes valid code. A function with an unexpected start is not patched, and nothing is patched if
//! the system forbids changing code, or on other processors and C libraries. Accesses to unmapped memory still fail then
//! ([`crate::guard`]), but memory that is mapped at the same addresses later is accessed.
//!
//! # What is not detected
//! - System calls that are made without the C library, as by Go's runtime, and `shmdt`.
//! - Calls that other hooks of the same kind, installed earlier or later, do not pass on.
//!
//! `FERROCE_WATCH=off` in the environment leaves the C library unchanged.
//!
//! libc: the replacements have to set the `errno` of the C library, and the code that they patch is the C library's.

/// Installs the hooks, once in a process.
pub(crate) fn install() {
    #[cfg(all(
        target_arch = "x86_64",
        target_os = "linux",
        target_env = "gnu",
        not(any(miri, ferroce_loom))
    ))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(glibc::install);
    }
}

#[cfg(all(
    target_arch = "x86_64",
    target_os = "linux",
    target_env = "gnu",
    not(any(miri, ferroce_loom))
))]
mod glibc {
    use std::ffi::{CStr, c_int, c_long, c_void};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    use libc::{
        MADV_DONTNEED, MADV_REMOVE, MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_FIXED_NOREPLACE,
        MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_EXEC, PROT_READ, PROT_WRITE, size_t,
    };

    use ferroce_sys::memory::page_size;

    use crate::watch::mark_unmapped;

    /// `MADV_DONTNEED_LOCKED` of Linux 5.18.
    const DONTNEED_LOCKED: c_int = 24;

    /// glibc's variable for the end of the heap.
    static BREAK: AtomicPtr<*mut c_void> = AtomicPtr::new(null_mut());

    /// Pages of x86-64; larger ones are multiples.
    const PAGE: usize = 4096;

    /// Rounds up to the next page.
    fn page_up(address: usize) -> usize {
        address.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)
    }

    /// Records that whole pages are about to be unmapped. The kernel refuses addresses that are not aligned to a page, and
    /// rounds the length up.
    fn notify(address: usize, length: usize) {
        if address % PAGE == 0 && length > 0 {
            mark_unmapped(address, page_up(length));
        }
    }

    unsafe extern "C" fn munmap(address: *mut c_void, length: size_t) -> c_int {
        notify(address.addr(), length);
        // SAFETY: the caller's arguments. It sets `errno`.
        unsafe { libc::syscall(libc::SYS_munmap, address, length) as c_int }
    }

    unsafe extern "C" fn mmap(
        address: *mut c_void,
        length: size_t,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: c_long,
    ) -> *mut c_void {
        if flags & MAP_FIXED != 0 {
            notify(address.addr(), length);
        }
        // SAFETY: as in `munmap`.
        let result = unsafe {
            libc::syscall(libc::SYS_mmap, address, length, protection, flags, fd, offset)
        };
        std::ptr::with_exposed_provenance_mut(result as usize)
    }

    unsafe extern "C" fn madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int {
        // These replace the pages, so that pinned ones would no longer be the program's. MADV_FREE does not.
        if [MADV_DONTNEED, MADV_REMOVE, DONTNEED_LOCKED].contains(&advice) {
            notify(address.addr(), length);
        }
        // SAFETY: as in `munmap`.
        unsafe { libc::syscall(libc::SYS_madvise, address, length, advice) as c_int }
    }

    /// The last argument is only valid with `MREMAP_FIXED`.
    unsafe extern "C" fn mremap(
        old: *mut c_void,
        old_length: size_t,
        length: size_t,
        flags: c_int,
        new: *mut c_void,
    ) -> *mut c_void {
        let call = |flags: c_int| {
            // SAFETY: as in `munmap`.
            let result =
                unsafe { libc::syscall(libc::SYS_mremap, old, old_length, length, flags, new) };
            std::ptr::with_exposed_provenance_mut::<c_void>(result as usize)
        };
        let kept = page_up(length);
        if length > 0 && kept < old_length {
            notify(old.addr().saturating_add(kept), old_length - kept);
        }
        // The kernel resizes in place if it can, and then nothing is unmapped.
        if flags == MREMAP_MAYMOVE && old_length != 0 {
            let errno = std::io::Error::last_os_error();
            let in_place = call(0);
            if in_place != MAP_FAILED {
                return in_place;
            }
            // SAFETY: the C library's `errno` of this thread.
            unsafe { *libc::__errno_location() = errno.raw_os_error().unwrap_or(0) };
        }
        if flags != 0 && old_length != 0 {
            notify(old.addr(), old_length);
        }
        if flags & MREMAP_FIXED != 0 {
            notify(new.addr(), length);
        }
        call(flags)
    }

    unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
        let variable = BREAK.load(Ordering::Relaxed);
        // SAFETY: glibc's variable, which glibc also uses without a lock.
        let current = unsafe { variable.read() };
        // The page of the new end stays mapped. An end of 0 is a query.
        let first = page_up(end.addr());
        if !end.is_null() && first < current.addr() {
            notify(first, current.addr() - first);
        }
        // SAFETY: as in `munmap`; the kernel returns the current end.
        let result = unsafe { libc::syscall(libc::SYS_brk, end) };
        let result = std::ptr::with_exposed_provenance_mut::<c_void>(result as usize);
        // SAFETY: as above.
        unsafe { variable.write(result) };
        if result < end {
            // SAFETY: the C library's `errno` of this thread.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            return -1;
        }
        0
    }

    /// The instruction of a function that is replaced by the jump: it has at least the five bytes of the jump, and the
    /// arguments are still in their registers when it is reached.
    #[derive(Clone, Copy)]
    struct PatchPoint {
        offset: usize,
        /// Bytes that the function has allocated on the stack by then.
        stack: u8,
    }

    /// Matches `MOV EAX, number` and `SYSCALL`.
    fn in_system_call(code: &[u8; 16], number: c_long) -> Option<PatchPoint> {
        let number = (number as u32).to_le_bytes();
        let found = code[0] == 0xb8 && code[1..5] == number && code[5..7] == [0x0f, 0x05];
        found.then_some(PatchPoint { offset: 0, stack: 0 })
    }

    /// Matches `MOV R10D, ECX` or its 64-bit form, and `TEST R9D, 0xfff`, which checks that the offset is aligned to a page.
    fn in_mmap(code: &[u8; 16]) -> Option<PatchPoint> {
        let moves = matches!(code[..3], [0x41 | 0x49, 0x89, 0xca]);
        let offset = if moves { 3 } else { 0 };
        let found = code[offset..offset + 7] == [0x41, 0xf7, 0xc1, 0xff, 0x0f, 0x00, 0x00];
        found.then_some(PatchPoint { offset, stack: 0 })
    }

    /// Matches `SUB RSP, n` and `MOV [RSP + n], R8`.
    fn in_mremap(code: &[u8; 16]) -> Option<PatchPoint> {
        let found = code[..3] == [0x48, 0x83, 0xec] && code[4..8] == [0x4c, 0x89, 0x44, 0x24];
        found.then_some(PatchPoint { offset: 4, stack: code[3] })
    }

    pub(super) fn install() {
        if ferroce_sys::environment::var_os("FERROCE_WATCH").is_some_and(|value| value == "off") {
            return;
        }
        // SAFETY: a C string. The library is loaded already, or this program has another C library.
        let library =
            unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return;
        }
        // SAFETY: the handle of the library, and a C string.
        let find = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        let Some(mut trampolines) = Trampolines::new(find(c"munmap").addr()) else { return };
        BREAK.store(find(c"__curbrk").cast(), Ordering::Relaxed);
        type Expected = fn(&[u8; 16]) -> Option<PatchPoint>;
        let all: [(&CStr, *const (), Expected); 5] = [
            (c"munmap", munmap as *const (), |code| in_system_call(code, libc::SYS_munmap)),
            (c"mmap", mmap as *const (), in_mmap),
            (c"madvise", madvise as *const (), |code| in_system_call(code, libc::SYS_madvise)),
            (c"mremap", mremap as *const (), in_mremap),
            (c"brk", brk as *const (), |code| {
                in_system_call(code, libc::SYS_brk)
                    .filter(|_| !BREAK.load(Ordering::Relaxed).is_null())
            }),
        ];
        let jumps = all.map(|(name, to, expected)| {
            let function = find(name).cast::<u8>();
            if function.is_null() || function.addr() % 16 != 0 {
                return None;
            }
            // SAFETY: functions of glibc start at a multiple of 16, so 16 bytes are readable code.
            let point = expected(&unsafe { function.cast::<[u8; 16]>().read() })?;
            // SAFETY: within those 16 bytes.
            Some((unsafe { function.add(point.offset) }, trampolines.add(to, point.stack)))
        });
        trampolines.seal();
        for (at, jump) in jumps.into_iter().flatten() {
            patch(at, jump);
        }
    }

    /// A page within reach of a 32-bit jump from the C library, with jumps to any address.
    struct Trampolines {
        page: *mut u8,
        used: usize,
    }

    impl Trampolines {
        /// Maps a page below an address.
        fn new(address: usize) -> Option<Self> {
            const STEP: usize = 1 << 20;
            let start = address / STEP * STEP;
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
            (2..1000).find_map(|steps| {
                let hint = std::ptr::without_provenance_mut(start.checked_sub(steps * STEP)?);
                // SAFETY: the call fails if something is mapped there.
                let page =
                    unsafe { libc::mmap(hint, page_size(), PROT_READ | PROT_WRITE, flags, -1, 0) };
                if page == MAP_FAILED {
                    return None;
                }
                if page != hint {
                    // An old kernel treats the address as a hint.
                    // SAFETY: just mapped.
                    unsafe { libc::munmap(page, page_size()) };
                    return None;
                }
                Some(Self { page: page.cast(), used: 0 })
            })
        }

        /// Adds `ADD RSP, n` and `JMP [RIP]` followed by the address, and returns where they are.
        fn add(&mut self, target: *const (), stack: u8) -> usize {
            const LENGTH: usize = 18;
            let mut code = [0; LENGTH];
            code[..10].copy_from_slice(&[0x48, 0x83, 0xc4, stack, 0xff, 0x25, 0, 0, 0, 0]);
            code[10..].copy_from_slice(&(target.addr() as u64).to_le_bytes());
            // SAFETY: five of these fit in a page.
            unsafe { self.page.add(self.used).cast::<[u8; LENGTH]>().write_unaligned(code) };
            self.used += 32;
            self.page.addr() + self.used - 32
        }

        /// Makes the page executable and read-only.
        fn seal(&self) {
            // SAFETY: the page that `new` mapped.
            unsafe { libc::mprotect(self.page.cast(), page_size(), PROT_READ | PROT_EXEC) };
        }
    }

    /// Replaces an instruction by a jump.
    fn patch(at: *mut u8, jump: usize) {
        let page = page_size();
        let start = at.map_addr(|address| address / page * page).cast::<c_void>();
        // SAFETY: 8 bytes that start within 16 bytes of a multiple of 16 are within a page, which stays executable.
        let done = unsafe { libc::mprotect(start, page, PROT_READ | PROT_WRITE | PROT_EXEC) };
        if done != 0 {
            return;
        }
        let distance = (jump as i64 - (at.addr() as i64 + 5)) as i32;
        // SAFETY: readable code.
        let mut code = unsafe { at.cast::<[u8; 8]>().read() };
        code[0] = 0xe9;
        code[1..5].copy_from_slice(&distance.to_le_bytes());
        let word = u64::from_le_bytes(code);
        // SAFETY: writable now; other threads only execute it. One store within a cache line is seen as a whole.
        unsafe {
            std::arch::asm!("mov qword ptr [{at}], {word}", at = in(reg) at, word = in(reg) word, options(nostack));
            libc::mprotect(start, page, PROT_READ | PROT_EXEC);
        }
    }
}
