//! Hears of memory that the program unmaps, whoever does it: the program, its libraries, or the allocator of the C library.
//!
//! Functions that are put before others by their names (`LD_PRELOAD`) are not seen by calls within the C library, and
//! `free` makes those. So one of the first instructions of glibc's own `munmap` and its like becomes a jump to ours, as
//! UCX does it (its "bistro" hooks). They are thin functions around a system call: ours tell [`crate::watch`] and make the call.
//!
//! The jump is one store, over one instruction: a thread that is within the function at that moment, or comes back to it
//! from the kernel, finds what it would have found. A function that begins otherwise than expected is left alone, and so
//! are all where the system forbids to change code, or on other processors and C libraries. Memory that is gone is an error
//! then still ([`crate::guard`]), but what is mapped in its place later is taken for it.
//!
//! # What it does not see
//! - System calls that are made without the C library, as Go's runtime does, and `shmdt`.
//! - What other hooks of the same kind, which came first or later, keep to themselves.
//!
//! `FERROCE_WATCH=off` in the environment leaves the C library as it is.

/// Begins to hear of it, once in a process.
pub(crate) fn install() {
    #[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
    {
        static ONCE: std::sync::Once = std::sync::Once::new();
        ONCE.call_once(glibc::install);
    }
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", target_env = "gnu", not(miri)))]
mod glibc {
    use std::ffi::{CStr, c_int, c_long, c_void};
    use std::ptr::null_mut;
    use std::sync::atomic::{AtomicPtr, Ordering};

    use libc::{
        MADV_DONTNEED, MADV_REMOVE, MAP_ANONYMOUS, MAP_FAILED, MAP_FIXED, MAP_FIXED_NOREPLACE,
        MAP_PRIVATE, MREMAP_FIXED, MREMAP_MAYMOVE, PROT_EXEC, PROT_READ, PROT_WRITE, size_t,
    };

    use crate::system::page_size;
    use crate::watch::unmapped;

    /// `MADV_DONTNEED_LOCKED` of Linux 5.18.
    const DONTNEED_LOCKED: c_int = 24;

    /// Where glibc has the end of the heap.
    static BREAK: AtomicPtr<*mut c_void> = AtomicPtr::new(null_mut());

    /// Pages of x86-64; larger ones are multiples.
    const PAGE: usize = 4096;

    /// To the next page.
    fn up(address: usize) -> usize {
        address.checked_next_multiple_of(PAGE).unwrap_or(usize::MAX)
    }

    /// Whole pages from this address on are about to go. The kernel refuses addresses that are not a page's, and takes what
    /// begins a page for all of it.
    fn gone(address: usize, length: usize) {
        if address % PAGE == 0 && length > 0 {
            unmapped(address, up(length));
        }
    }

    unsafe extern "C" fn munmap(address: *mut c_void, length: size_t) -> c_int {
        gone(address.addr(), length);
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
            gone(address.addr(), length);
        }
        // SAFETY: as in `munmap`.
        let result = unsafe {
            libc::syscall(libc::SYS_mmap, address, length, protection, flags, fd, offset)
        };
        std::ptr::with_exposed_provenance_mut(result as usize)
    }

    unsafe extern "C" fn madvise(address: *mut c_void, length: size_t, advice: c_int) -> c_int {
        // Pinned pages would be the program's no more after these. MADV_FREE leaves them.
        if [MADV_DONTNEED, MADV_REMOVE, DONTNEED_LOCKED].contains(&advice) {
            gone(address.addr(), length);
        }
        // SAFETY: as in `munmap`.
        unsafe { libc::syscall(libc::SYS_madvise, address, length, advice) as c_int }
    }

    /// The last argument is there when the flags say so.
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
        let kept = up(length);
        if length > 0 && kept < old_length {
            gone(old.addr().saturating_add(kept), old_length - kept);
        }
        // Where it can stay in place it would, and then nothing is gone.
        if flags == MREMAP_MAYMOVE && old_length != 0 {
            let errno = std::io::Error::last_os_error();
            let stayed = call(0);
            if stayed != MAP_FAILED {
                return stayed;
            }
            // SAFETY: the C library's own, of this thread.
            unsafe { *libc::__errno_location() = errno.raw_os_error().unwrap_or(0) };
        }
        if flags != 0 && old_length != 0 {
            gone(old.addr(), old_length);
        }
        if flags & MREMAP_FIXED != 0 {
            gone(new.addr(), length);
        }
        call(flags)
    }

    unsafe extern "C" fn brk(end: *mut c_void) -> c_int {
        let place = BREAK.load(Ordering::Relaxed);
        // SAFETY: glibc's variable, which its own function uses without a lock, too.
        let current = unsafe { place.read() };
        // The page that the new end is in stays. Nobody has a heap that ends at 0: that is a question.
        let first = up(end.addr());
        if !end.is_null() && first < current.addr() {
            gone(first, current.addr() - first);
        }
        // SAFETY: as in `munmap`; the kernel answers with the end as it is now.
        let result = unsafe { libc::syscall(libc::SYS_brk, end) };
        let result = std::ptr::with_exposed_provenance_mut::<c_void>(result as usize);
        // SAFETY: as above.
        unsafe { place.write(result) };
        if result < end {
            // SAFETY: the C library's own, of this thread.
            unsafe { *libc::__errno_location() = libc::ENOMEM };
            return -1;
        }
        0
    }

    unsafe extern "C" {
        fn secure_getenv(name: *const std::ffi::c_char) -> *mut std::ffi::c_char;
    }

    /// The instruction of a function that becomes the jump: it has at least the jump's five bytes, and the arguments are
    /// where they were at the start when it is reached.
    #[derive(Clone, Copy)]
    struct Spot {
        offset: usize,
        /// Bytes that the function has taken from the stack by then.
        stack: u8,
    }

    /// `MOV EAX, number`, and `SYSCALL`.
    fn in_call(code: &[u8; 16], number: c_long) -> Option<Spot> {
        let number = (number as u32).to_le_bytes();
        let found = code[0] == 0xb8 && code[1..5] == number && code[5..7] == [0x0f, 0x05];
        found.then_some(Spot { offset: 0, stack: 0 })
    }

    /// `MOV R10D, ECX` or its like of 64 bits, and `TEST R9D, 0xfff`: whether the offset is that of a page.
    fn in_mmap(code: &[u8; 16]) -> Option<Spot> {
        let moves = matches!(code[..3], [0x41 | 0x49, 0x89, 0xca]);
        let offset = if moves { 3 } else { 0 };
        let found = code[offset..offset + 7] == [0x41, 0xf7, 0xc1, 0xff, 0x0f, 0x00, 0x00];
        found.then_some(Spot { offset, stack: 0 })
    }

    /// `SUB RSP, n`, and `MOV [RSP + n], R8`.
    fn in_mremap(code: &[u8; 16]) -> Option<Spot> {
        let found = code[..3] == [0x48, 0x83, 0xec] && code[4..8] == [0x4c, 0x89, 0x44, 0x24];
        found.then_some(Spot { offset: 4, stack: code[3] })
    }

    pub(super) fn install() {
        // SAFETY: a string; what it gives is looked at at once. Programs with more rights than their caller ignore it.
        let wanted = unsafe { secure_getenv(c"FERROCE_WATCH".as_ptr()) };
        // SAFETY: a string of the environment.
        if !wanted.is_null() && unsafe { CStr::from_ptr(wanted) } == c"off" {
            return;
        }
        // SAFETY: a name. It is loaded already, or this program has another C library.
        let library =
            unsafe { libc::dlopen(c"libc.so.6".as_ptr(), libc::RTLD_LAZY | libc::RTLD_NOLOAD) };
        if library.is_null() {
            return;
        }
        // SAFETY: the library's handle, and a name.
        let find = |name: &CStr| unsafe { libc::dlsym(library, name.as_ptr()) };
        let Some(mut near) = Near::new(find(c"munmap").addr()) else { return };
        BREAK.store(find(c"__curbrk").cast(), Ordering::Relaxed);
        type Expected = fn(&[u8; 16]) -> Option<Spot>;
        let all: [(&CStr, *const (), Expected); 5] = [
            (c"munmap", munmap as *const (), |code| in_call(code, libc::SYS_munmap)),
            (c"mmap", mmap as *const (), in_mmap),
            (c"madvise", madvise as *const (), |code| in_call(code, libc::SYS_madvise)),
            (c"mremap", mremap as *const (), in_mremap),
            (c"brk", brk as *const (), |code| {
                in_call(code, libc::SYS_brk).filter(|_| !BREAK.load(Ordering::Relaxed).is_null())
            }),
        ];
        let jumps = all.map(|(name, to, expected)| {
            let function = find(name).cast::<u8>();
            if function.is_null() || function.addr() % 16 != 0 {
                return None;
            }
            // SAFETY: functions of glibc begin at a multiple of 16, and are code at least that far.
            let spot = expected(&unsafe { function.cast::<[u8; 16]>().read() })?;
            // SAFETY: within those 16 bytes.
            Some((unsafe { function.add(spot.offset) }, near.jump_to(to, spot.stack)))
        });
        near.seal();
        for (at, jump) in jumps.into_iter().flatten() {
            patch(at, jump);
        }
    }

    /// A page that a jump with 32 bits reaches from the C library, with jumps on to anywhere.
    struct Near {
        page: *mut u8,
        used: usize,
    }

    impl Near {
        /// Finds room below an address.
        fn new(address: usize) -> Option<Self> {
            const STEP: usize = 1 << 20;
            let start = address / STEP * STEP;
            let flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
            (2..1000).find_map(|steps| {
                let hint = std::ptr::without_provenance_mut(start.checked_sub(steps * STEP)?);
                // SAFETY: where something is mapped already, nothing happens.
                let page =
                    unsafe { libc::mmap(hint, page_size(), PROT_READ | PROT_WRITE, flags, -1, 0) };
                if page == MAP_FAILED {
                    return None;
                }
                if page != hint {
                    // An old kernel took it for a hint.
                    // SAFETY: just mapped.
                    unsafe { libc::munmap(page, page_size()) };
                    return None;
                }
                Some(Self { page: page.cast(), used: 0 })
            })
        }

        /// `ADD RSP, n`, and `JMP [RIP]` with the address behind it.
        fn jump_to(&mut self, target: *const (), stack: u8) -> usize {
            const LENGTH: usize = 18;
            let mut code = [0; LENGTH];
            code[..10].copy_from_slice(&[0x48, 0x83, 0xc4, stack, 0xff, 0x25, 0, 0, 0, 0]);
            code[10..].copy_from_slice(&(target.addr() as u64).to_le_bytes());
            // SAFETY: five of these fit into a page.
            unsafe { self.page.add(self.used).cast::<[u8; LENGTH]>().write_unaligned(code) };
            self.used += 32;
            self.page.addr() + self.used - 32
        }

        /// Makes it code, which nobody writes any more.
        fn seal(&self) {
            // SAFETY: our own page.
            unsafe { libc::mprotect(self.page.cast(), page_size(), PROT_READ | PROT_EXEC) };
        }
    }

    /// Puts a jump in the place of an instruction.
    fn patch(at: *mut u8, jump: usize) {
        let page = page_size();
        let start = at.map_addr(|address| address / page * page).cast::<c_void>();
        // SAFETY: what begins within 16 bytes from a multiple of 16 and has 8 is within a page, which stays executable
        // meanwhile.
        let done = unsafe { libc::mprotect(start, page, PROT_READ | PROT_WRITE | PROT_EXEC) };
        if done != 0 {
            return;
        }
        let distance = (jump as i64 - (at.addr() as i64 + 5)) as i32;
        // SAFETY: code, which can be read.
        let mut code = unsafe { at.cast::<[u8; 8]>().read() };
        code[0] = 0xe9;
        code[1..5].copy_from_slice(&distance.to_le_bytes());
        let word = u64::from_le_bytes(code);
        // SAFETY: writable now; others only execute it. One store, within a cache line: seen as a whole.
        unsafe {
            std::arch::asm!("mov qword ptr [{at}], {word}", at = in(reg) at, word = in(reg) word, options(nostack));
            libc::mprotect(start, page, PROT_READ | PROT_EXEC);
        }
    }
}
