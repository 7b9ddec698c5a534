//! Accesses to memory of the program that may be unmapped: a fault becomes an error instead of a signal.
//!
//! The copies and atomic operations are assembly routines that keep nothing on the stack. A handler for SIGSEGV and SIGBUS
//! checks whether the fault was in one of them, and makes it return an error. All other faults, and signals sent by a
//! process, are passed to the previous handler, or to the default.
//!
//! # Limits
//! - A program that installs a handler later replaces this one. Most handlers call the previous one for faults that are not
//!   theirs. If one does not, a fault here ends the program, as without this module.
//! - A fault in a thread that blocks SIGSEGV or SIGBUS kills the process regardless of the handler.
//! - There are no such routines for processors other than x86-64, nor under Miri: plain copies are used there.
//!
//! libc: rustix has no sigaction(2) outside of its experimental `runtime` feature.

use ferroce_proto::memory::Atomic;

/// A part of the memory is not mapped, or its protection forbids the access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Copies `from` into registered memory, in ascending order.
///
/// # Safety
/// Of the `from.len()` bytes at `to`, those that are mapped may be written, and `from` does not overlap them.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, from: &[u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { arch::store(to, from) }
}

/// Copies memory that another process may change meanwhile into registered memory, in ascending order.
///
/// # Safety
/// As for [`store`]; `length` bytes at `from` are mapped.
#[inline]
pub(crate) unsafe fn store_shared(
    to: *mut u8,
    from: *const u8,
    length: usize,
) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { arch::store_shared(to, from, length) }
}

/// Copies registered memory into `to`.
///
/// # Safety
/// Of the `to.len()` bytes at `from`, those that are mapped may be read, and `to` does not overlap them.
#[inline]
pub(crate) unsafe fn load(from: *const u8, to: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: the caller's promise.
    unsafe { arch::load(from, to) }
}

/// Executes an atomic operation, and returns the original value.
///
/// # Safety
/// The 8 bytes at `word` may be written if they are mapped; `word` is aligned to 8.
#[inline]
pub(crate) unsafe fn atomic(word: *mut u64, operation: Atomic) -> Result<u64, Fault> {
    // SAFETY: the caller's promise.
    unsafe { arch::atomic(word, operation) }
}

/// Installs the handler, once in a process, before memory that the program may unmap is accessed.
pub(crate) fn install() {
    arch::install();
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod arch {
    use super::{Atomic, Fault};
    use crate::{atomic, copy};

    pub(super) unsafe fn store(to: *mut u8, from: &[u8]) -> Result<(), Fault> {
        // SAFETY: the caller's promise; the program has promised that all of it is mapped.
        unsafe { copy::store(to, from) };
        Ok(())
    }

    pub(super) unsafe fn store_shared(
        to: *mut u8,
        from: *const u8,
        length: usize,
    ) -> Result<(), Fault> {
        let mut piece = [0; 1024];
        for start in (0..length).step_by(piece.len()) {
            let piece = &mut piece[..(length - start).min(1024)];
            // SAFETY: the caller's promise. The peer may change the bytes while they are copied, as the program may.
            unsafe {
                copy::load(from.add(start), piece);
                copy::store(to.add(start), piece);
            }
        }
        Ok(())
    }

    pub(super) unsafe fn load(from: *const u8, to: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: as in `store`.
        unsafe { copy::load(from, to) };
        Ok(())
    }

    pub(super) unsafe fn atomic(word: *mut u64, operation: Atomic) -> Result<u64, Fault> {
        // SAFETY: as in `store`.
        Ok(unsafe { atomic::execute(word, operation) })
    }

    pub(super) fn install() {}
}

#[cfg(all(target_arch = "x86_64", target_os = "linux", not(miri)))]
mod arch {
    use std::arch::global_asm;
    use std::ffi::{c_int, c_void};
    use std::mem::zeroed;
    use std::ptr::null_mut;
    use std::sync::{Once, OnceLock};

    use libc::{SA_ONSTACK, SA_SIGINFO, SIG_DFL, SIG_IGN, SIGBUS, SIGSEGV, sigaction, siginfo_t};

    use super::{Atomic, Fault};

    /// From this length on, loads are string instructions: to a ring, whose lines another core has, and to an address that is
    /// not aligned as the source is, they take half the time of a loop. [`crate::copy`] promises whole words only for shorter
    /// loads, and an order only for stores.
    const LONG: usize = 1024;

    /// A copy of RDX bytes from RSI to RDI, with the order and word guarantees of [`crate::copy`]: pieces are as large as
    /// the alignment of one side (`$low`, the low byte of its register) allows, so that no aligned word of that side is
    /// split, and they are in ascending order. x86 stores are seen in program order. Wide moves start at multiples of 8:
    /// where the processor splits them, at a cache line boundary, it splits between words. As long as there are 2 KiB left, the
    /// lines 1.5 KiB ahead are asked for: another core has those of a ring, and long buffers are often not in the cache.
    macro_rules! copy {
        ($name:literal, $low:literal) => {
            concat!(
                ".balign 64\n",
                ".globl ",
                $name,
                "\n",
                ".hidden ",
                $name,
                "\n",
                ".type ",
                $name,
                ", @function\n",
                $name,
                ":\n",
                "test ",
                $low,
                ", 1\n jz 2f\n test rdx, rdx\n jz 9f\n",
                "movzx eax, byte ptr [rsi]\n mov byte ptr [rdi], al\n",
                "add rsi, 1\n add rdi, 1\n sub rdx, 1\n",
                "2: test ",
                $low,
                ", 2\n jz 3f\n cmp rdx, 2\n jb 6f\n",
                "movzx eax, word ptr [rsi]\n mov word ptr [rdi], ax\n",
                "add rsi, 2\n add rdi, 2\n sub rdx, 2\n",
                "3: test ",
                $low,
                ", 4\n jz 4f\n cmp rdx, 4\n jb 6f\n",
                "mov eax, dword ptr [rsi]\n mov dword ptr [rdi], eax\n",
                "add rsi, 4\n add rdi, 4\n sub rdx, 4\n",
                "4: cmp rdx, 2048\n jb 14f\n",
                "prefetchw [rdi + 1536]\n prefetcht0 [rsi + 1536]\n",
                "14: cmp rdx, 64\n jb 5f\n",
                "movups xmm0, xmmword ptr [rsi]\n movups xmm1, xmmword ptr [rsi + 16]\n",
                "movups xmm2, xmmword ptr [rsi + 32]\n movups xmm3, xmmword ptr [rsi + 48]\n",
                "movups xmmword ptr [rdi], xmm0\n movups xmmword ptr [rdi + 16], xmm1\n",
                "movups xmmword ptr [rdi + 32], xmm2\n movups xmmword ptr [rdi + 48], xmm3\n",
                "add rsi, 64\n add rdi, 64\n sub rdx, 64\n jmp 4b\n",
                "5: cmp rdx, 8\n jb 6f\n",
                "mov rax, qword ptr [rsi]\n mov qword ptr [rdi], rax\n",
                "add rsi, 8\n add rdi, 8\n sub rdx, 8\n jmp 5b\n",
                "6: test dl, 4\n jz 7f\n",
                "mov eax, dword ptr [rsi]\n mov dword ptr [rdi], eax\n add rsi, 4\n add rdi, 4\n",
                "7: test dl, 2\n jz 8f\n",
                "movzx eax, word ptr [rsi]\n mov word ptr [rdi], ax\n add rsi, 2\n add rdi, 2\n",
                "8: test dl, 1\n jz 9f\n",
                "movzx eax, byte ptr [rsi]\n mov byte ptr [rdi], al\n",
                "9: xor eax, eax\n ret\n",
                ".size ",
                $name,
                ", . - ",
                $name,
                "\n",
            )
        };
    }

    /// An operation on the word at RDI with RSI and RCX; the original value is stored at RDX.
    macro_rules! word {
        ($name:literal, $operation:literal) => {
            concat!(
                ".balign 16\n",
                ".globl ",
                $name,
                "\n",
                ".hidden ",
                $name,
                "\n",
                ".type ",
                $name,
                ", @function\n",
                $name,
                ":\n",
                "mov rax, rsi\n",
                $operation,
                "\n",
                "mov qword ptr [rdx], rax\n xor eax, eax\n ret\n",
                ".size ",
                $name,
                ", . - ",
                $name,
                "\n",
            )
        };
    }

    global_asm!(
        ".pushsection .text.ferroce_guarded, \"ax\", @progbits",
        ".globl ferroce_guarded_begin",
        ".hidden ferroce_guarded_begin",
        "ferroce_guarded_begin:",
        copy!("ferroce_guarded_store", "dil"),
        copy!("ferroce_guarded_load", "sil"),
        ".balign 16",
        ".globl ferroce_guarded_load_long",
        ".hidden ferroce_guarded_load_long",
        ".type ferroce_guarded_load_long, @function",
        "ferroce_guarded_load_long: mov rcx, rdx",
        "rep movsb",
        "xor eax, eax",
        "ret",
        ".size ferroce_guarded_load_long, . - ferroce_guarded_load_long",
        word!("ferroce_guarded_swap", "xchg qword ptr [rdi], rax"),
        word!("ferroce_guarded_add", "lock xadd qword ptr [rdi], rax"),
        word!("ferroce_guarded_compare_swap", "lock cmpxchg qword ptr [rdi], rcx"),
        ".globl ferroce_guarded_end",
        ".hidden ferroce_guarded_end",
        "ferroce_guarded_end:",
        // Where all of them continue after a fault: the return address is on top of the stack.
        ".globl ferroce_guarded_fault",
        ".hidden ferroce_guarded_fault",
        "ferroce_guarded_fault: mov eax, 1",
        "ret",
        ".popsection",
    );

    unsafe extern "C" {
        static ferroce_guarded_begin: u8;
        static ferroce_guarded_end: u8;
        static ferroce_guarded_fault: u8;
        fn ferroce_guarded_store(to: *mut u8, from: *const u8, length: usize) -> u32;
        fn ferroce_guarded_load(to: *mut u8, from: *const u8, length: usize) -> u32;
        fn ferroce_guarded_load_long(to: *mut u8, from: *const u8, length: usize) -> u32;
        fn ferroce_guarded_swap(word: *mut u64, value: u64, original: *mut u64) -> u32;
        fn ferroce_guarded_add(word: *mut u64, value: u64, original: *mut u64) -> u32;
        fn ferroce_guarded_compare_swap(
            word: *mut u64,
            compare: u64,
            original: *mut u64,
            swap: u64,
        ) -> u32;
    }

    fn result(code: u32) -> Result<(), Fault> {
        if code == 0 { Ok(()) } else { Err(Fault) }
    }

    #[inline]
    pub(super) unsafe fn store(to: *mut u8, from: &[u8]) -> Result<(), Fault> {
        // SAFETY: the caller's promise; a fault is caught.
        result(unsafe { ferroce_guarded_store(to, from.as_ptr(), from.len()) })
    }

    #[inline]
    pub(super) unsafe fn store_shared(
        to: *mut u8,
        from: *const u8,
        length: usize,
    ) -> Result<(), Fault> {
        // SAFETY: as in `store`. It is assembly, which reads each byte once.
        result(unsafe { ferroce_guarded_store(to, from, length) })
    }

    #[inline]
    pub(super) unsafe fn load(from: *const u8, to: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: as in `store`.
        result(unsafe {
            if to.len() >= LONG && is_x86_feature_detected!("ermsb") {
                ferroce_guarded_load_long(to.as_mut_ptr(), from, to.len())
            } else {
                ferroce_guarded_load(to.as_mut_ptr(), from, to.len())
            }
        })
    }

    #[inline]
    pub(super) unsafe fn atomic(word: *mut u64, operation: Atomic) -> Result<u64, Fault> {
        let mut original = 0;
        // SAFETY: as in `store`.
        let code = unsafe {
            match operation {
                Atomic::CompareSwap { compare, swap } => {
                    ferroce_guarded_compare_swap(word, compare, &raw mut original, swap)
                }
                Atomic::FetchAdd(value) => ferroce_guarded_add(word, value, &raw mut original),
                Atomic::Write(value) => ferroce_guarded_swap(word, value, &raw mut original),
            }
        };
        result(code).map(|()| original)
    }

    /// The previous handlers of SIGSEGV and SIGBUS.
    static PREVIOUS: OnceLock<[sigaction; 2]> = OnceLock::new();

    pub(super) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: all zeroes is a valid action.
            let mut previous: [sigaction; 2] = unsafe { zeroed() };
            for (signal, previous) in [SIGSEGV, SIGBUS].into_iter().zip(&mut previous) {
                // SAFETY: a local.
                unsafe { sigaction(signal, std::ptr::null(), previous) };
            }
            let previous = PREVIOUS.get_or_init(|| previous);
            for (signal, previous) in [SIGSEGV, SIGBUS].into_iter().zip(previous) {
                // Keeps the signal mask of the previous handler, which may be called.
                let mut action = *previous;
                action.sa_sigaction = on_fault as *const () as usize;
                action.sa_flags = SA_SIGINFO | SA_ONSTACK | previous.sa_flags & libc::SA_NODEFER;
                // SAFETY: the handler makes async-signal-safe calls only.
                unsafe { sigaction(signal, &raw const action, null_mut()) };
            }
        });
    }

    unsafe extern "C" fn on_fault(signal: c_int, info: *mut siginfo_t, context: *mut c_void) {
        let registers = context.cast::<libc::ucontext_t>();
        let (begin, end, fault) = (
            (&raw const ferroce_guarded_begin).addr(),
            (&raw const ferroce_guarded_end).addr(),
            (&raw const ferroce_guarded_fault).addr(),
        );
        // SAFETY: the kernel's structures, valid during this call.
        let (code, at) = unsafe {
            ((*info).si_code, &mut (*registers).uc_mcontext.gregs[libc::REG_RIP as usize])
        };
        // A signal that a process sent is not handled here, wherever it interrupted the thread.
        if code > 0 && (begin..end).contains(&(*at as usize)) {
            *at = fault as i64;
            return;
        }
        let index = usize::from(signal == SIGBUS);
        let Some(previous) = PREVIOUS.get().map(|previous| &previous[index]) else { return };
        match previous.sa_sigaction {
            SIG_IGN if code <= 0 => {}
            SIG_DFL | SIG_IGN => {
                // SAFETY: all zeroes is a valid action; async-signal-safe calls. A fault recurs on return and ends the
                // program; a signal that was sent is raised again, and delivered on return.
                unsafe {
                    let mut default: sigaction = zeroed();
                    default.sa_sigaction = SIG_DFL;
                    sigaction(signal, &raw const default, null_mut());
                    if code <= 0 {
                        libc::raise(signal);
                    }
                }
            }
            handler if previous.sa_flags & SA_SIGINFO != 0 => {
                type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                // SAFETY: it was installed as such a handler.
                unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, info, context) };
            }
            handler => {
                // SAFETY: as above.
                unsafe {
                    std::mem::transmute::<usize, unsafe extern "C" fn(c_int)>(handler)(signal);
                }
            }
        }
    }
}
