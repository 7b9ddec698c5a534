//! AF_PACKET sockets: RoCE or TCP frames on an interface, whoever sends them. Needs CAP_NET_RAW.
//!
//! libc: rustix has no packet sockets, `SO_ATTACH_FILTER`, `SO_TIMESTAMPNS` and `PACKET_STATISTICS`.

use std::io;
use std::mem::size_of;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

use libc::{c_int, c_void, sock_filter, socklen_t};

use crate::ROCE_PORT;
use crate::net::interface;
use crate::net::steering::set_program;
use crate::syscall::{check, check_length, set_option, zeroed};

/// Requested size of the receive buffer in bytes.
const RECEIVE_BUFFER: c_int = 64 << 20;

/// Types of interfaces whose frames begin with an Ethernet header (`ARPHRD_ETHER`, `ARPHRD_LOOPBACK`).
const ETHERNET: &[&str] = &["1", "772"];

/// EtherTypes of RoCEv1 (IBA A16), IPv4, IPv6 and VLAN tags.
const ROCE_V1: u32 = 0x8915;
const IPV4: u32 = 0x0800;
const IPV6: u32 = 0x86dd;
const VLAN: u16 = 0x8100;

/// IP protocol numbers.
const TCP: u32 = 6;
const UDP: u32 = 17;

/// A received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes in the buffer.
    pub captured: usize,
    /// Its length on the wire.
    pub length: usize,
    /// When the kernel saw it: nanoseconds since 1970. `None` if it did not say.
    pub time: Option<u64>,
    /// It was sent by this host.
    pub outgoing: bool,
}

/// Captures frames on an interface.
#[derive(Debug)]
pub struct PacketSocket {
    fd: OwnedFd,
    /// Every frame on the loopback interface is seen twice.
    loopback: bool,
}

impl PacketSocket {
    /// Opens a socket for RoCE frames: UDP from or to port 4791, and EtherType 0x8915.
    ///
    /// # Errors
    ///
    /// If the process lacks CAP_NET_RAW (`PermissionDenied`), there is no such interface (`NotFound`), or its frames have no
    /// Ethernet header (`Unsupported`).
    pub fn open(name: &str) -> io::Result<Self> {
        Self::with_filter(name, filter(UDP, ROCE_PORT, ROCE_V1))
    }

    /// Opens a socket for the TCP segments from or to a port.
    ///
    /// # Errors
    ///
    /// As [`PacketSocket::open`].
    pub fn open_tcp(name: &str, port: u16) -> io::Result<Self> {
        Self::with_filter(name, filter(TCP, port, NO_TYPE))
    }

    fn with_filter(name: &str, filter: Vec<sock_filter>) -> io::Result<Self> {
        let index = interface::index_of(name).ok_or(io::ErrorKind::NotFound)?;
        let kind = std::fs::read_to_string(format!("/sys/class/net/{name}/type"));
        // In a network namespace without its own sysfs the file is missing or another interface's.
        let kind = kind.unwrap_or_else(|_| ETHERNET[0].into());
        if !ETHERNET.contains(&kind.trim()) {
            return Err(io::ErrorKind::Unsupported.into());
        }
        let flags = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
        // SAFETY: no pointers. Protocol 0: nothing is received before the filter is in place.
        let fd = check(unsafe { libc::socket(libc::AF_PACKET, flags, 0) })?;
        // SAFETY: the descriptor is new, so nothing else owns it.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        set_program(fd.as_fd(), libc::SO_ATTACH_FILTER, filter)?;
        set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
        set_option(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_AUXDATA, 1)?;
        // Beyond net.core.rmem_max if the process may; otherwise up to it.
        let _ = set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, RECEIVE_BUFFER)
            .or_else(|_| set_option(fd.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUF, RECEIVE_BUFFER));
        // SAFETY: a C structure of numbers.
        let mut address: libc::sockaddr_ll = unsafe { zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = index as c_int;
        // SAFETY: the address outlives the call, and the length is its size.
        check(unsafe {
            libc::bind(
                fd.as_raw_fd(),
                (&raw const address).cast(),
                size_of::<libc::sockaddr_ll>() as socklen_t,
            )
        })?;
        Ok(Self { fd, loopback: name == "lo" })
    }

    /// Receives a frame into `buffer`; `None` if there is none. A VLAN tag, which the kernel has removed, is put back.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Frame>> {
        loop {
            match self.receive_any(buffer) {
                Ok(frame) if self.loopback && frame.outgoing => {}
                Ok(frame) => return Ok(Some(frame)),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn receive_any(&self, buffer: &mut [u8]) -> io::Result<Frame> {
        #[repr(C, align(8))]
        struct Control([u8; 128]);
        let mut control = Control([0; 128]);
        let mut piece = libc::iovec {
            iov_base: buffer.as_mut_ptr().cast::<c_void>(),
            // Space for a VLAN tag.
            iov_len: buffer.len().saturating_sub(4),
        };
        // SAFETY: C structures of numbers and pointers.
        let (mut from, mut message): (libc::sockaddr_ll, libc::msghdr) =
            unsafe { (zeroed(), zeroed()) };
        message.msg_name = (&raw mut from).cast();
        message.msg_namelen = size_of::<libc::sockaddr_ll>() as socklen_t;
        message.msg_iov = &raw mut piece;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = control.0.len() as _;
        // SAFETY: the message points to locals and to the buffer, with their lengths.
        let length = check_length(unsafe {
            libc::recvmsg(self.fd.as_raw_fd(), &raw mut message, libc::MSG_TRUNC)
        })?;
        let mut captured = length.min(piece.iov_len);
        let (mut length, mut time, mut tag) = (length, None, None);
        // SAFETY: the kernel has filled in the control messages, and the functions stay inside them.
        let mut header = unsafe { libc::CMSG_FIRSTHDR(&raw const message) };
        while !header.is_null() {
            // SAFETY: as above; values are read without assuming their alignment.
            unsafe {
                let value = libc::CMSG_DATA(header);
                match ((*header).cmsg_level, (*header).cmsg_type) {
                    (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => {
                        let stamp = value.cast::<libc::timespec>().read_unaligned();
                        time = Some(
                            stamp.tv_sec.unsigned_abs() * 1_000_000_000 + stamp.tv_nsec as u64,
                        );
                    }
                    (libc::SOL_PACKET, libc::PACKET_AUXDATA) => {
                        let data = value.cast::<libc::tpacket_auxdata>().read_unaligned();
                        if data.tp_status & libc::TP_STATUS_VLAN_VALID != 0 {
                            tag = Some((data.tp_vlan_tpid, data.tp_vlan_tci));
                        }
                    }
                    _ => {}
                }
                header = libc::CMSG_NXTHDR(&raw const message, header);
            }
        }
        if let (Some((kind, tci)), true) = (tag, captured >= 12) {
            buffer.copy_within(12..captured, 16);
            let kind = if kind == 0 { VLAN } else { kind };
            buffer[12..14].copy_from_slice(&kind.to_be_bytes());
            buffer[14..16].copy_from_slice(&tci.to_be_bytes());
            captured += 4;
            length += 4;
        }
        let outgoing = from.sll_pkttype == libc::PACKET_OUTGOING;
        Ok(Frame { captured, length, time, outgoing })
    }

    /// Frames that the kernel has dropped since the last call because the receive buffer was full.
    pub fn take_dropped(&self) -> io::Result<u64> {
        // SAFETY: a C structure of numbers.
        let mut statistics: libc::tpacket_stats = unsafe { zeroed() };
        let mut length = size_of::<libc::tpacket_stats>() as socklen_t;
        // SAFETY: the structure outlives the call, and the length is its size.
        check(unsafe {
            libc::getsockopt(
                self.fd.as_raw_fd(),
                libc::SOL_PACKET,
                libc::PACKET_STATISTICS,
                (&raw mut statistics).cast(),
                &raw mut length,
            )
        })?;
        Ok(statistics.tp_drops.into())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

const fn op(code: u32, k: u32, jt: u8, jf: u8) -> sock_filter {
    sock_filter { code: code as u16, jt, jf, k }
}

/// An EtherType that no frame has, because it does not fit in 16 bits.
const NO_TYPE: u32 = 1 << 16;

/// Accepts an EtherType, and packets of a protocol over IPv4 or IPv6 from or to a port, if they are not fragments. The
/// program sees the frame from its Ethernet header on, without a VLAN tag.
fn filter(protocol: u32, port: u16, ether_type: u32) -> Vec<sock_filter> {
    use libc::{
        BPF_ABS, BPF_B, BPF_H, BPF_IND, BPF_JEQ, BPF_JMP, BPF_JSET, BPF_K, BPF_LD, BPF_LDX,
        BPF_MSH, BPF_RET,
    };
    let half = BPF_LD | BPF_H | BPF_ABS;
    let byte = BPF_LD | BPF_B | BPF_ABS;
    let behind_ip = BPF_LD | BPF_H | BPF_IND;
    let equal = BPF_JMP | BPF_JEQ | BPF_K;
    let port = port.into();
    let program = [
        op(half, 12, 0, 0),
        op(equal, ether_type, 18, 0),
        op(equal, IPV4, 0, 9),
        // The protocol, the fragment offset, then the ports behind a header of variable length.
        op(byte, 23, 0, 0),
        op(equal, protocol, 0, 14),
        op(half, 20, 0, 0),
        op(BPF_JMP | BPF_JSET | BPF_K, 0x1fff, 12, 0),
        op(BPF_LDX | BPF_B | BPF_MSH, 14, 0, 0),
        op(behind_ip, 16, 0, 0),
        op(equal, port, 10, 0),
        op(behind_ip, 14, 0, 0),
        op(equal, port, 8, 7),
        // IPv6 without extension headers.
        op(equal, IPV6, 0, 6),
        op(byte, 20, 0, 0),
        op(equal, protocol, 0, 4),
        op(half, 56, 0, 0),
        op(equal, port, 3, 0),
        op(half, 54, 0, 0),
        op(equal, port, 1, 0),
        op(BPF_RET | BPF_K, 0, 0, 0),
        op(BPF_RET | BPF_K, u32::MAX, 0, 0),
    ];
    program.to_vec()
}
