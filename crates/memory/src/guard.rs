//! Accesses to a program's memory that survive its being gone: a fault becomes a result instead of a signal.
//!
//! The copies and atomic operations are routines in assembly that keep nothing on the stack. A handler of SIGSEGV and
//! SIGBUS looks whether the fault was in one of them, and has it return an error. Every other fault, and every signal that
//! somebody sent, is passed on to the handler that was there before, or to the default.
//!
//! # What it cannot do
//! - A program that installs a handler of its own later replaces this one. Most call the one before when a fault is not
//!   theirs. Where that one does not, a fault of ours is theirs again, as without this module.
//! - A thread that has SIGSEGV or SIGBUS blocked is killed by a fault, whatever the handler: Linux does so.
//! - Other processors than x86-64 have no such routines, and neither has Miri: plain copies are made there.

use ferroce_proto::memory::Atomic;

/// Not all of the memory was there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fault;

/// Copies `from` into registered memory, in ascending order.
///
/// # Safety
/// What is mapped of `from.len()` bytes at `to` may be written, and `from` is not among them.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, from: &[u8]) -> Result<(), Fault> {
    // SAFETY: as the caller says.
    unsafe { arch::store(to, from) }
}

/// Copies registered memory into `to`.
///
/// # Safety
/// What is mapped of `to.len()` bytes at `from` may be read, and `to` is not among them.
#[inline]
pub(crate) unsafe fn load(from: *const u8, to: &mut [u8]) -> Result<(), Fault> {
    // SAFETY: as the caller says.
    unsafe { arch::load(from, to) }
}

/// Does an atomic operation, and returns what was there.
///
/// # Safety
/// What is mapped of the 8 bytes at `place` may be written; `place` is aligned to 8.
#[inline]
pub(crate) unsafe fn atomic(place: *mut u64, what: Atomic) -> Result<u64, Fault> {
    // SAFETY: as the caller says.
    unsafe { arch::atomic(place, what) }
}

/// Installs the handler, once in a process: before memory that the program may unmap is used.
pub(crate) fn install() {
    arch::install();
}

#[cfg(not(all(target_arch = "x86_64", target_os = "linux", not(miri))))]
mod arch {
    use super::{Atomic, Fault};
    use crate::{atomic, copy};

    pub(super) unsafe fn store(to: *mut u8, from: &[u8]) -> Result<(), Fault> {
        // SAFETY: as the caller says, and the program has promised that all of it is mapped.
        unsafe { copy::store(to, from) };
        Ok(())
    }

    pub(super) unsafe fn load(from: *const u8, to: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: as in `store`.
        unsafe { copy::load(from, to) };
        Ok(())
    }

    pub(super) unsafe fn atomic(place: *mut u64, what: Atomic) -> Result<u64, Fault> {
        // SAFETY: as in `store`.
        Ok(unsafe { atomic::execute(place, what) })
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

    /// A copy of RDX bytes from RSI to RDI, with the order and the words of [`crate::copy`]: pieces are as large as the
    /// alignment of one side (`$low`, the low byte of its register) allows, so that no aligned word of that side is split,
    /// and they are ascending. Stores of x86 are seen in their order. Wide moves begin at multiples of 8: where the
    /// processor splits them, at the border of a cache line, it splits between words.
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
                "4: cmp rdx, 64\n jb 5f\n",
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

    /// An operation on the word at RDI with RSI, and RCX; what was there goes to RDX.
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
        word!("ferroce_guarded_swap", "xchg qword ptr [rdi], rax"),
        word!("ferroce_guarded_add", "lock xadd qword ptr [rdi], rax"),
        word!("ferroce_guarded_compare_swap", "lock cmpxchg qword ptr [rdi], rcx"),
        ".globl ferroce_guarded_end",
        ".hidden ferroce_guarded_end",
        "ferroce_guarded_end:",
        // All of them are left by this way when they fault: the return address is on top of the stack.
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
        fn ferroce_guarded_swap(place: *mut u64, value: u64, was: *mut u64) -> u32;
        fn ferroce_guarded_add(place: *mut u64, value: u64, was: *mut u64) -> u32;
        fn ferroce_guarded_compare_swap(
            place: *mut u64,
            compare: u64,
            was: *mut u64,
            swap: u64,
        ) -> u32;
    }

    fn result(code: u32) -> Result<(), Fault> {
        if code == 0 { Ok(()) } else { Err(Fault) }
    }

    #[inline]
    pub(super) unsafe fn store(to: *mut u8, from: &[u8]) -> Result<(), Fault> {
        // SAFETY: as the caller says; a fault is caught.
        result(unsafe { ferroce_guarded_store(to, from.as_ptr(), from.len()) })
    }

    #[inline]
    pub(super) unsafe fn load(from: *const u8, to: &mut [u8]) -> Result<(), Fault> {
        // SAFETY: as in `store`.
        result(unsafe { ferroce_guarded_load(to.as_mut_ptr(), from, to.len()) })
    }

    #[inline]
    pub(super) unsafe fn atomic(place: *mut u64, what: Atomic) -> Result<u64, Fault> {
        let mut was = 0;
        // SAFETY: as in `store`.
        let code = unsafe {
            match what {
                Atomic::CompareSwap { compare, swap } => {
                    ferroce_guarded_compare_swap(place, compare, &raw mut was, swap)
                }
                Atomic::FetchAdd(value) => ferroce_guarded_add(place, value, &raw mut was),
                Atomic::Write(value) => ferroce_guarded_swap(place, value, &raw mut was),
            }
        };
        result(code).map(|()| was)
    }

    /// What was there before, for SIGSEGV and SIGBUS.
    static BEFORE: OnceLock<[sigaction; 2]> = OnceLock::new();

    pub(super) fn install() {
        static ONCE: Once = Once::new();
        ONCE.call_once(|| {
            // SAFETY: all zeroes is a value of it.
            let mut before: [sigaction; 2] = unsafe { zeroed() };
            for (signal, before) in [SIGSEGV, SIGBUS].into_iter().zip(&mut before) {
                // SAFETY: a place of ours.
                unsafe { sigaction(signal, std::ptr::null(), before) };
            }
            let before = BEFORE.get_or_init(|| before);
            for (signal, before) in [SIGSEGV, SIGBUS].into_iter().zip(before) {
                // The handler before is called with the signals blocked that it wants to be.
                let mut ours = *before;
                ours.sa_sigaction = on_fault as *const () as usize;
                ours.sa_flags = SA_SIGINFO | SA_ONSTACK | before.sa_flags & libc::SA_NODEFER;
                // SAFETY: a handler that calls only what may be called in one.
                unsafe { sigaction(signal, &raw const ours, null_mut()) };
            }
        });
    }

    unsafe extern "C" fn on_fault(signal: c_int, about: *mut siginfo_t, context: *mut c_void) {
        let registers = context.cast::<libc::ucontext_t>();
        let (begin, end, fault) = (
            (&raw const ferroce_guarded_begin).addr(),
            (&raw const ferroce_guarded_end).addr(),
            (&raw const ferroce_guarded_fault).addr(),
        );
        // SAFETY: the kernel's structures, for this call.
        let (code, at) = unsafe {
            ((*about).si_code, &mut (*registers).uc_mcontext.gregs[libc::REG_RIP as usize])
        };
        // A signal that somebody sent is none of ours, wherever it found us.
        if code > 0 && (begin..end).contains(&(*at as usize)) {
            *at = fault as i64;
            return;
        }
        let index = usize::from(signal == SIGBUS);
        let Some(before) = BEFORE.get().map(|before| &before[index]) else { return };
        match before.sa_sigaction {
            SIG_IGN if code <= 0 => {}
            SIG_DFL | SIG_IGN => {
                // SAFETY: a value of it; calls that a handler may make. A fault happens again on return, and is the
                // program's end; what somebody sent is sent again, and waits for our return.
                unsafe {
                    let mut default: sigaction = zeroed();
                    default.sa_sigaction = SIG_DFL;
                    sigaction(signal, &raw const default, null_mut());
                    if code <= 0 {
                        libc::raise(signal);
                    }
                }
            }
            handler if before.sa_flags & SA_SIGINFO != 0 => {
                type Handler = unsafe extern "C" fn(c_int, *mut siginfo_t, *mut c_void);
                // SAFETY: it was installed as one.
                unsafe { std::mem::transmute::<usize, Handler>(handler)(signal, about, context) };
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
