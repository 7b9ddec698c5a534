//! Which process gets a packet: decided in the kernel, by the queue pair it is for.
//!
//! All processes bind the same address and port. The kernel keeps their sockets in a list, in the order of binding,
//! and a program of two instructions gives the index in it: the high 8 bits of the destination queue pair's number,
//! which are its process's [`crate::Slot`]. Processes that start one after the other have slots and indices alike. When
//! one ends, the kernel moves the last socket of the list to its place, and an index past the end is replaced by a
//! hash: then packets reach a wrong process, which forwards them through the slot. So steering makes
//! packets arrive fast, and forwarding makes them arrive.

use std::io;
use std::os::fd::BorrowedFd;

use libc::{SOL_SOCKET, c_int, sock_filter, sock_fprog};

use crate::system::set_option;

/// Where in the UDP payload the destination queue pair's high 8 bits are (IBA 9.2: the BTH is the payload's start, and
/// its fifth byte is reserved).
pub const SLOT_BYTE: usize = 5;

/// The slot that a packet is for; `None` for one too short to have a queue pair.
#[inline]
pub fn slot_of(packet: &[u8]) -> Option<u8> {
    packet.get(SLOT_BYTE).copied()
}

/// `A = packet[k]`: a shorter packet ends the program with 0.
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
/// Ends the program with `A`.
const RETURN_A: u16 = (libc::BPF_RET | libc::BPF_A) as u16;
/// Ends the program with `k`.
const RETURN_K: u16 = (libc::BPF_RET | libc::BPF_K) as u16;

const fn instruction(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Makes the group of sockets that this one is bound with choose by slot.
pub(crate) fn attach(fd: BorrowedFd<'_>) -> io::Result<()> {
    // The kernel shows the program the packet from behind the UDP header on.
    let program = [instruction(LOAD_BYTE, SLOT_BYTE as u32), instruction(RETURN_A, 0)];
    set_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, program)
}

/// Makes a socket receive nothing.
pub(crate) fn refuse_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_program(fd, libc::SO_ATTACH_FILTER, [instruction(RETURN_K, 0)])
}

fn set_program<const N: usize>(
    fd: BorrowedFd<'_>,
    option: c_int,
    mut program: [sock_filter; N],
) -> io::Result<()> {
    // The kernel copies the program before the call returns.
    let program = sock_fprog { len: N as u16, filter: program.as_mut_ptr() };
    set_option(fd, SOL_SOCKET, option, program)
}
