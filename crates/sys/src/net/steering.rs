//! Steering: a classic BPF program in the kernel selects the process that receives a packet, among all sockets of an
//! address and port.
//!
//! The kernel keeps the sockets in a list, in the order of binding, and the program returns an index. The upper 8 bits of a
//! QPN are the [`crate::Slot`] of its process, and processes that start one after the other have equal slots and indices.
//! When one ends, the kernel moves the last socket of the list to its index, and an index beyond the end is replaced by a
//! hash: packets then reach a wrong process, which forwards them through the slot. So steering is an optimisation, and
//! forwarding ensures delivery.
//!
//! The QPNs below 3 belong to no process. Their packets go to
//! - the slot in the communication ID or exchange ID that the receiver assigned, if the message has one;
//! - the slot of the listener, for a request of the connection manager or the set-up exchange;
//! - a random process otherwise, and always after processes have ended out of order. Any process can look up the owner,
//!   and a retransmission reaches another process: a stopped process delays others but does not block them.
//!
//! libc: rustix has no `SO_ATTACH_REUSEPORT_CBPF` and `SO_ATTACH_FILTER`.

use std::io;
use std::os::fd::BorrowedFd;

use libc::{SOL_SOCKET, c_int, sock_filter, sock_fprog};

use crate::syscall::set_option;

/// Offset of the upper 8 bits of the destination QPN in the UDP payload, which starts with the BTH (IBA 9.2).
pub const SLOT_BYTE: usize = 5;

/// The service ID of the set-up exchange: "FeSU" and its version.
pub const SETUP_SERVICE: u64 = 0x4665_5355_0000_0001;

/// The slot of a packet's destination QPN; `None` if it is too short to have one.
#[inline]
pub fn slot_of(packet: &[u8]) -> Option<u8> {
    packet.get(SLOT_BYTE).copied()
}

/// Maximum number of services in the program. Old kernels refuse long programs (`net.core.optmem_max` was 20 KiB).
const MAX_SERVICES: usize = 64;

/// Offsets in the UDP payload of a management datagram, behind a BTH of 12 bytes and a DETH of 8: the type and the
/// exchange ID in a message of the set-up exchange; the attribute ID of a MAD (IBA 13.4.2), and the words of a message of
/// the connection manager behind its header of 24 bytes (IBA 12.6).
const SETUP_TYPE: u32 = 20;
const SETUP_EXCHANGE: u32 = 28;
const ATTRIBUTE: u32 = 36;
const CM_FIRST: u32 = 44;
const CM_REMOTE_ID: u32 = 48;
const CM_SERVICE: u32 = 52;

/// The connection manager's messages (IBA 12.6.2, table 91).
const REQ: u32 = 0x10;
const MRA: u32 = 0x11;
const SIDR_REQ: u32 = 0x17;
const SIDR_REP: u32 = 0x18;
const APR: u32 = 0x1a;

/// Loads into the accumulator. If the packet is shorter, the program returns 0.
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const MODULO: u16 = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
/// Returns the accumulator.
const RETURN_A: u16 = (libc::BPF_RET | libc::BPF_A) as u16;
/// Returns `k`.
const RETURN_K: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// The offset at which a program loads a random number (Linux 3.16).
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips instructions if the condition does not hold.
const fn unless(condition: u16, k: u32, skip: u8) -> sock_filter {
    sock_filter { code: condition, jt: 0, jf: skip, k }
}

/// Skips instructions if the condition holds.
const fn when(condition: u16, k: u32, skip: u8) -> sock_filter {
    sock_filter { code: condition, jt: skip, jf: 0, k }
}

/// The data that the program is generated from.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// The number of processes.
    count: u32,
    /// Services with the slots of their owners.
    services: Vec<(u64, u8)>,
    /// Whether slots and indices are known to be equal.
    pub(crate) in_order: bool,
}

impl Table {
    pub(crate) fn new(count: usize, services: impl Iterator<Item = (u64, u8)>) -> Self {
        let mut services: Vec<_> = services.collect();
        // Low numbers are listeners; high ones were bound by clients.
        services.sort_unstable();
        services.truncate(MAX_SERVICES);
        Self { count: count as u32, services, in_order: true }
    }

    /// Attaches the program to the group of sockets that this one is bound with.
    pub(crate) fn attach(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let attached = set_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, self.program());
        // The kernel may refuse a long program but accept a short one.
        attached.or_else(|_| {
            let short = Self { services: Vec::new(), ..*self };
            set_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, short.program())
        })
    }

    /// The program. It sees the packet from the end of the UDP header on.
    fn program(&self) -> Vec<sock_filter> {
        let mut program = vec![
            op(LOAD_BYTE, SLOT_BYTE as u32),
            when(IF_EQUAL, 0, 1),
            op(RETURN_A, 0),
            // Slot 0: the lower 16 bits distinguish QPNs of the process from those of no process.
            op(LOAD_HALF, SLOT_BYTE as u32 + 1),
            unless(IF_ABOVE, 2, 1),
            op(RETURN_K, 0),
        ];
        if !self.in_order {
            program.extend(self.random());
            return program;
        }
        let setup = self.setup();
        program.push(unless(IF_EQUAL, 2, setup.len() as u8));
        program.extend(setup);
        let random = self.random();
        program.push(when(IF_EQUAL, 1, random.len() as u8));
        program.extend(random);
        program.extend(self.connection_manager());
        program
    }

    fn random(&self) -> [sock_filter; 3] {
        [op(LOAD_WORD, RANDOM), op(MODULO, self.count.max(1)), op(RETURN_A, 0)]
    }

    /// Responses, which have even types, go to the requester; requests to the listener.
    fn setup(&self) -> Vec<sock_filter> {
        let response = [op(LOAD_BYTE, SETUP_EXCHANGE), op(RETURN_A, 0)];
        let mut program = vec![op(LOAD_BYTE, SETUP_TYPE), op(MODULO, 2), unless(IF_EQUAL, 0, 2)];
        program.extend(response);
        match self.services.iter().find(|(id, _)| *id == SETUP_SERVICE) {
            Some(&(_, slot)) => program.push(op(RETURN_K, slot.into())),
            None => program.extend(self.random()),
        }
        program
    }

    fn connection_manager(&self) -> Vec<sock_filter> {
        let mut program = vec![
            op(LOAD_HALF, ATTRIBUTE),
            // The request ID, which the peer returns.
            unless(IF_EQUAL, SIDR_REP, 2),
            op(LOAD_BYTE, CM_FIRST),
            op(RETURN_A, 0),
        ];
        // All messages but requests have the communication ID that this side assigned; 0 if the peer never received it.
        let random = self.random();
        let by_remote_id = [
            op(LOAD_WORD, CM_REMOTE_ID),
            when(IF_EQUAL, 0, 2),
            op(SHIFT_RIGHT, 24),
            op(RETURN_A, 0),
        ];
        let skip = (by_remote_id.len() + random.len()) as u8;
        program.push(when(IF_EQUAL, REQ, skip + 3));
        program.push(when(IF_EQUAL, SIDR_REQ, skip + 2));
        // Other messages go to a random process.
        program.push(when(IF_ABOVE, APR, by_remote_id.len() as u8 + 1));
        program.push(unless(IF_ABOVE, MRA - 1, by_remote_id.len() as u8));
        program.extend(by_remote_id);
        program.extend(random);
        program.push(op(LOAD_WORD, CM_SERVICE + 4));
        for &(id, slot) in &self.services {
            program.extend([
                unless(IF_EQUAL, id as u32, 4),
                op(LOAD_WORD, CM_SERVICE),
                unless(IF_EQUAL, (id >> 32) as u32, 1),
                op(RETURN_K, slot.into()),
                op(LOAD_WORD, CM_SERVICE + 4),
            ]);
        }
        program.extend(random);
        program
    }
}

/// Makes a socket drop all packets.
pub(crate) fn refuse_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_program(fd, libc::SO_ATTACH_FILTER, vec![op(RETURN_K, 0)])
}

const PADDING: usize = size_of::<*mut sock_filter>() - size_of::<u16>();

/// A [`sock_fprog`] with initialised padding: the kernel reads all of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Program {
    len: u16,
    padding: [u8; PADDING],
    filter: *mut sock_filter,
}

const _: () = assert!(size_of::<Program>() == size_of::<sock_fprog>());

pub(super) fn set_program(
    fd: BorrowedFd<'_>,
    option: c_int,
    mut program: Vec<sock_filter>,
) -> io::Result<()> {
    let (len, filter) = (program.len() as u16, program.as_mut_ptr());
    // The kernel copies the program before the call returns.
    set_option(fd, SOL_SOCKET, option, Program { len, padding: [0; PADDING], filter })
}
