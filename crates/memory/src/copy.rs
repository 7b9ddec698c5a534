//! Copies into and out of registered memory. [`crate::guard`] copies memory of the program, which may be unmapped, by the
//! same rules.
//!
//! # Races
//! The application may read and write registered memory during a copy: RDMA allows that, and the contents are then
//! unspecified. So this module never creates a reference to registered memory, which would assert to the compiler that
//! there are no concurrent writes.
//!
//! In Rust a data race of plain accesses is undefined behaviour, also with foreign code. This is handled as follows:
//! - The first and last bytes, and short copies as a whole, are relaxed or release atomics of their natural size. Those
//!   may race with atomics of the application, and with C code that is equivalent to them.
//! - The middle of a long copy is `ptr::copy_nonoverlapping` on raw pointers, since Rust has no atomic `memcpy` yet. With a
//!   size that is not known at compile time it becomes a call of the C library's `memcpy`, machine code in which each
//!   byte is either the old or the new one. LLVM could exploit a race only by reading the same bytes again, or by keeping
//!   what it knows of them; registered memory is accessed through addresses whose origin it does not know, and through no
//!   other pointer of this crate, so there is nothing to combine the call with.
//!
//! # Order
//! Programs poll on the last byte of an RDMA WRITE, though no specification allows it (the manual page of `ibv_reg_mr`
//! says that many devices place data in ascending order). A store ends with release stores of the word that contains the
//! last byte: a thread that reads that byte with an acquire load, or with any load on x86, sees all bytes before it.
//! Transports place the packets of a message in order, so the last byte of a message is written last.
//!
//! # Words
//! An aligned word of 8 bytes within the copy is stored as a whole: words of the middle are copied from an aligned start,
//! and every `memcpy` for 64-bit processors stores at least that much per instruction. For loads that holds up to
//! [`BULK`] bytes; beyond, `memcpy` aligns its stores and not its loads.

use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64, Ordering};

/// From this length on `memcpy`, with wide registers, is faster than a loop of words.
///
/// Peers and the program may access registered memory at the same time, which Rust's memory model defines only for
/// atomic accesses, so in Miri all copies are loops of words. Elsewhere long copies of registered memory are assembly
/// (`guard`), where it exists.
const BULK: usize = if cfg!(miri) { usize::MAX } else { 128 };

/// The distance from `address` to the next multiple of 8, at most `length`.
#[inline]
fn head(address: usize, length: usize) -> usize {
    (address.wrapping_neg() & 7).min(length)
}

/// Copies `from` into registered memory.
///
/// # Safety
/// `from.len()` bytes at `to` are mapped and writable until this returns, and `from` does not overlap them.
#[inline]
pub(crate) unsafe fn store(to: *mut u8, from: &[u8]) {
    let length = from.len();
    let source = from.as_ptr();
    let head = head(to.addr(), length);
    // The last word, or the part of it, is stored last and separately.
    let middle = (length - head).saturating_sub(1) & !7;
    // SAFETY: head + middle <= length, so all three parts are within both; `to + head` is aligned to 8.
    unsafe {
        store_pieces(to, source, head);
        let (words, from_words) = (to.add(head), source.add(head));
        if middle < BULK {
            for at in (0..middle).step_by(8) {
                let word = from_words.add(at).cast::<u64>().read_unaligned();
                AtomicU64::from_ptr(words.add(at).cast()).store(word, Ordering::Relaxed);
            }
        } else {
            from_words.copy_to_nonoverlapping(words, middle);
        }
        let rest = length - head - middle;
        store_pieces(words.add(middle), from_words.add(middle), rest);
    }
}

/// Copies registered memory into `to`.
///
/// # Safety
/// `to.len()` bytes at `from` are mapped and readable until this returns, and `to` does not overlap them.
#[inline]
pub(crate) unsafe fn load(from: *const u8, to: &mut [u8]) {
    let length = to.len();
    let target = to.as_mut_ptr();
    let head = head(from.addr(), length);
    let middle = (length - head) & !7;
    // SAFETY: as in `store`. An atomic load does not write, so read-only memory is sufficient.
    unsafe {
        load_pieces(from, target, head);
        let (words, to_words) = (from.add(head), target.add(head));
        if middle < BULK {
            for at in (0..middle).step_by(8) {
                let word = AtomicU64::from_ptr(words.add(at).cast_mut().cast());
                to_words.add(at).cast::<u64>().write_unaligned(word.load(Ordering::Relaxed));
            }
        } else {
            to_words.copy_from_nonoverlapping(words, middle);
        }
        let rest = length - head - middle;
        load_pieces(words.add(middle), to_words.add(middle), rest);
    }
}

/// Calls `$piece!(atomic, integer, offset)` for the largest aligned pieces of `$length` <= 8 bytes at `$address`, in
/// ascending order.
macro_rules! pieces {
    ($address:expr, $length:expr, $piece:ident) => {{
        let (address, length): (usize, usize) = ($address, $length);
        let mut at = 0;
        while at < length {
            let aligned = 1 << (address.wrapping_add(at)).trailing_zeros().min(3);
            match (length - at).min(aligned) {
                8 => at += $piece!(AtomicU64, u64, at),
                4..8 => at += $piece!(AtomicU32, u32, at),
                2..4 => at += $piece!(AtomicU16, u16, at),
                _ => at += $piece!(AtomicU8, u8, at),
            }
        }
    }};
}

/// # Safety
/// As [`store`], for `length` bytes.
#[inline]
unsafe fn store_pieces(to: *mut u8, from: *const u8, length: usize) {
    macro_rules! piece {
        ($atomic:ty, $integer:ty, $at:expr) => {{
            // SAFETY: the piece is within both, and aligned in `to` to its size.
            unsafe {
                let value = from.add($at).cast::<$integer>().read_unaligned();
                <$atomic>::from_ptr(to.add($at).cast()).store(value, Ordering::Release);
            }
            size_of::<$integer>()
        }};
    }
    pieces!(to.addr(), length, piece);
}

/// # Safety
/// As [`load`], for `length` bytes.
#[inline]
unsafe fn load_pieces(from: *const u8, to: *mut u8, length: usize) {
    macro_rules! piece {
        ($atomic:ty, $integer:ty, $at:expr) => {{
            // SAFETY: the piece is within both, and aligned in `from` to its size.
            unsafe {
                let value = <$atomic>::from_ptr(from.add($at).cast_mut().cast());
                let value: $integer = value.load(Ordering::Relaxed);
                to.add($at).cast::<$integer>().write_unaligned(value);
            }
            size_of::<$integer>()
        }};
    }
    pieces!(from.addr(), length, piece);
}
