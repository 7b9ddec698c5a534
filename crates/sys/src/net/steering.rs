//! Which process gets a packet: decided in the kernel, by a classic BPF program for all sockets of an address and port.
//!
//! The kernel keeps the sockets in a list, in the order of binding, and the program returns the index of one. The high 8
//! bits of a queue pair's number are its process's [`crate::Slot`], and processes that start one after the other have
//! slots and indices alike. When one ends, the kernel moves the last socket of the list to its place, and an index past
//! the end is replaced by a hash: then packets reach a wrong process, which forwards them through the slot. So steering
//! makes packets arrive fast, and forwarding makes them arrive.
//!
//! The queue pairs below 3 belong to no process. Their packets go to
//! - the slot in the name that the receiver gave a connection or an exchange, where the message has one;
//! - the slot of the process that listens for the service, for a request of the connection manager or the set-up exchange;
//! - a random process otherwise, and always once processes have ended out of order. Any process can find out whose they
//!   are, and a repetition reaches another one: a process that was stopped delays others, and never stops them.

use std::io;
use std::os::fd::BorrowedFd;

use libc::{SOL_SOCKET, c_int, sock_filter, sock_fprog};

use crate::syscall::set_option;

/// Where in the UDP payload the destination queue pair's high 8 bits are (IBA 9.2: the BTH is the payload's start, and
/// its fifth byte is reserved).
pub const SLOT_BYTE: usize = 5;

/// The service that stands for the set-up exchange: "FeSU" and its version.
pub const SETUP_SERVICE: u64 = 0x4665_5355_0000_0001;

/// The slot that a packet is for; `None` for one too short to have a queue pair.
#[inline]
pub fn slot_of(packet: &[u8]) -> Option<u8> {
    packet.get(SLOT_BYTE).copied()
}

/// Services that the program knows. Old kernels take no long programs (`net.core.optmem_max` was 20 KiB).
const MOST_SERVICES: usize = 64;

/// Offsets in the UDP payload of a management datagram, behind a BTH of 12 bytes and a DETH of 8: the type and the
/// exchange's name in a message of the set-up exchange; the attribute of a MAD (IBA 13.4.2), and the words of a connection
/// manager's message behind its header of 24 bytes (IBA 12.6).
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

/// Loads into the accumulator; from a packet that is shorter, the program ends with 0.
const LOAD_BYTE: u16 = (libc::BPF_LD | libc::BPF_B | libc::BPF_ABS) as u16;
const LOAD_HALF: u16 = (libc::BPF_LD | libc::BPF_H | libc::BPF_ABS) as u16;
const LOAD_WORD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
const SHIFT_RIGHT: u16 = (libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K) as u16;
const MODULO: u16 = (libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K) as u16;
const IF_EQUAL: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
const IF_ABOVE: u16 = (libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K) as u16;
/// Ends the program with the accumulator.
const RETURN_A: u16 = (libc::BPF_RET | libc::BPF_A) as u16;
/// Ends the program with `k`.
const RETURN_K: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
/// Where the kernel shows random numbers to a program (Linux 3.16).
const RANDOM: u32 = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;

const fn op(code: u16, k: u32) -> sock_filter {
    sock_filter { code, jt: 0, jf: 0, k }
}

/// Skips so many instructions when the condition does not hold.
const fn unless(condition: u16, k: u32, skip: u8) -> sock_filter {
    sock_filter { code: condition, jt: 0, jf: skip, k }
}

/// Skips so many instructions when it does.
const fn when(condition: u16, k: u32, skip: u8) -> sock_filter {
    sock_filter { code: condition, jt: skip, jf: 0, k }
}

/// What the program goes by.
#[derive(Debug, Default)]
pub(crate) struct Table {
    /// How many processes there are.
    count: u32,
    /// Services, and the slots of their owners.
    services: Vec<(u64, u8)>,
    /// Whether slots and indices are known to be alike.
    pub(crate) in_order: bool,
}

impl Table {
    pub(crate) fn new(count: usize, services: impl Iterator<Item = (u64, u8)>) -> Self {
        let mut services: Vec<_> = services.collect();
        // Those with low numbers listen, and those with high ones were bound by clients.
        services.sort_unstable();
        services.truncate(MOST_SERVICES);
        Self { count: count as u32, services, in_order: true }
    }

    /// Makes the group of sockets that this one is bound with choose by this table.
    pub(crate) fn attach(&self, fd: BorrowedFd<'_>) -> io::Result<()> {
        let known = set_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, self.program());
        // A long program may be refused where a short one is not.
        known.or_else(|_| {
            let short = Self { services: Vec::new(), ..*self };
            set_program(fd, libc::SO_ATTACH_REUSEPORT_CBPF, short.program())
        })
    }

    /// The kernel shows the program the packet from behind the UDP header on.
    fn program(&self) -> Vec<sock_filter> {
        let mut program = vec![
            op(LOAD_BYTE, SLOT_BYTE as u32),
            when(IF_EQUAL, 0, 1),
            op(RETURN_A, 0),
            // Slot 0: the low 16 bits tell whether it is the process's, or nobody's.
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

    /// Answers, whose types are even, go to who asked; requests to who serves.
    fn setup(&self) -> Vec<sock_filter> {
        let answer = [op(LOAD_BYTE, SETUP_EXCHANGE), op(RETURN_A, 0)];
        let mut program = vec![op(LOAD_BYTE, SETUP_TYPE), op(MODULO, 2), unless(IF_EQUAL, 0, 2)];
        program.extend(answer);
        match self.services.iter().find(|(id, _)| *id == SETUP_SERVICE) {
            Some(&(_, slot)) => program.push(op(RETURN_K, slot.into())),
            None => program.extend(self.random()),
        }
        program
    }

    fn connection_manager(&self) -> Vec<sock_filter> {
        let mut program = vec![
            op(LOAD_HALF, ATTRIBUTE),
            // The question's name, given back.
            unless(IF_EQUAL, SIDR_REP, 2),
            op(LOAD_BYTE, CM_FIRST),
            op(RETURN_A, 0),
        ];
        // Other messages but requests have our name for the connection; a peer that never heard it has 0 there.
        let random = self.random();
        let named = [
            op(LOAD_WORD, CM_REMOTE_ID),
            when(IF_EQUAL, 0, 2),
            op(SHIFT_RIGHT, 24),
            op(RETURN_A, 0),
        ];
        let skip = (named.len() + random.len()) as u8;
        program.push(when(IF_EQUAL, REQ, skip + 3));
        program.push(when(IF_EQUAL, SIDR_REQ, skip + 2));
        // What is no message of the connection manager goes anywhere.
        program.push(when(IF_ABOVE, APR, named.len() as u8 + 1));
        program.push(unless(IF_ABOVE, MRA - 1, named.len() as u8));
        program.extend(named);
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

/// Makes a socket receive nothing.
pub(crate) fn refuse_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    set_program(fd, libc::SO_ATTACH_FILTER, vec![op(RETURN_K, 0)])
}

const PADDING: usize = size_of::<*mut sock_filter>() - size_of::<u16>();

/// A [`sock_fprog`] whose padding is initialised: the kernel reads all of it.
#[repr(C)]
#[derive(Clone, Copy)]
struct Program {
    len: u16,
    padding: [u8; PADDING],
    filter: *mut sock_filter,
}

const _: () = assert!(size_of::<Program>() == size_of::<sock_fprog>());

fn set_program(fd: BorrowedFd<'_>, option: c_int, mut program: Vec<sock_filter>) -> io::Result<()> {
    let (len, filter) = (program.len() as u16, program.as_mut_ptr());
    // The kernel copies the program before the call returns.
    set_option(fd, SOL_SOCKET, option, Program { len, padding: [0; PADDING], filter })
}
