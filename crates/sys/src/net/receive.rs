//! Receiving many packets with one system call.
//!
//! libc: rustix has no recvmmsg(2).

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_uint, iovec, mmsghdr};

use crate::cancel::Uncancellable;
use crate::error::Error;
use crate::net::address::RawAddress;
use crate::net::control::{Control, ControlData};
use crate::net::forward_header;
use crate::net::socket::Socket;
use crate::syscall::{check, errno, zeroed};

/// Capacity of a buffer for packets that GRO coalesced.
const COALESCED_CAPACITY: usize = 65_536;

/// Capacity of a buffer for one packet: more than the largest RoCE packet, and than a jumbo frame.
const PACKET_CAPACITY: usize = 9 * 1024;

/// Metadata of a received datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxInfo {
    /// The sender.
    pub source: SocketAddr,
    /// The destination address: a local one, or that of a multicast group.
    pub destination: IpAddr,
    /// The index of the receiving interface, if the kernel reports it.
    pub interface: Option<u32>,
    /// The type of service or traffic class: six bits of DSCP, two of ECN. Zero if the kernel does not report it.
    pub tos: u8,
    /// The remaining time to live or hop limit, if the kernel reports it.
    pub hop_limit: Option<u8>,
    /// Bytes received.
    pub length: usize,
    /// Bytes of each packet in it, except that the last may be shorter: GRO coalesces packets of one flow.
    pub segment: usize,
    /// The buffer was too small, and the rest is lost.
    pub truncated: bool,
}

impl RxInfo {
    /// The ECN field, by which routers mark congestion (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }
}

/// A received datagram: packets of one flow that GRO coalesced, or one packet.
#[derive(Clone, Copy, Debug)]
pub struct RxDatagram<'a> {
    /// Metadata of all its packets.
    pub info: &'a RxInfo,
    /// The bytes of the packets.
    pub data: &'a [u8],
}

impl<'a> RxDatagram<'a> {
    /// The packets, each the UDP payload of one packet on the wire. They may be for different queue pairs.
    #[inline]
    pub fn packets(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.data.chunks(self.info.segment.max(1))
    }
}

/// Buffers for the datagrams of one receive call, reused by the next.
pub struct ReceiveBatch {
    bytes: Box<[u8]>,
    /// Bytes of one buffer.
    capacity: usize,
    headers: Box<[mmsghdr]>,
    pieces: Box<[iovec]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[Control]>,
    /// The received datagrams: index of the buffer, offset in it, metadata.
    received: Vec<(usize, usize, RxInfo)>,
}

// SAFETY: the pointers in `headers` and `pieces` refer to the other buffers of the same value and are rewritten before each
// use.
unsafe impl Send for ReceiveBatch {}
// SAFETY: without `&mut` nothing is modified, and the pointers are not dereferenced.
unsafe impl Sync for ReceiveBatch {}

impl ReceiveBatch {
    /// Allocates buffers for `count` datagrams of up to `bytes` bytes each.
    pub fn new(count: usize, bytes: usize) -> Self {
        let count = count.max(1);
        // Forwarded packets have a header.
        let capacity = bytes + forward_header::LENGTH;
        // SAFETY: an mmsghdr is numbers and pointers.
        let header: mmsghdr = unsafe { zeroed() };
        let piece = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            bytes: vec![0; count * capacity].into(),
            capacity,
            headers: vec![header; count].into(),
            pieces: vec![piece; count].into(),
            addresses: vec![RawAddress::empty(); count].into(),
            controls: vec![Control::empty(); count].into(),
            received: Vec::with_capacity(count),
        }
    }

    /// Allocates buffers for a socket: few large ones if it has GRO, many small ones otherwise.
    pub fn for_socket(socket: &Socket) -> Self {
        if socket.features().gro {
            Self::new(16, COALESCED_CAPACITY)
        } else {
            Self::new(64, PACKET_CAPACITY)
        }
    }

    /// The datagrams of the last receive call.
    #[inline]
    pub fn messages(&self) -> impl ExactSizeIterator<Item = RxDatagram<'_>> {
        self.received.iter().map(|(buffer, start, info)| {
            let start = buffer * self.capacity + start;
            RxDatagram { info, data: &self.bytes[start..start + info.length] }
        })
    }

    /// The number of datagrams of the last receive call.
    #[inline]
    pub fn len(&self) -> usize {
        self.received.len()
    }

    /// Whether the last receive call returned nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.received.is_empty()
    }

    /// Makes one `recvmmsg` call, and returns the number of datagrams. [`ReceiveBatch::accept`] then adds them.
    #[inline]
    pub(crate) fn fill(
        &mut self,
        fd: BorrowedFd<'_>,
        with_address: bool,
        max: usize,
    ) -> io::Result<usize> {
        self.received.clear();
        let max = max.clamp(1, self.headers.len());
        let buffers = self.bytes.chunks_exact_mut(self.capacity);
        let ancillary = self.addresses.iter_mut().zip(self.controls.iter_mut());
        let parts = self.headers[..max].iter_mut().zip(self.pieces.iter_mut());
        for ((message, piece), (buffer, (address, control))) in parts.zip(buffers.zip(ancillary)) {
            *piece = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut message.msg_hdr;
            if with_address {
                header.msg_name = std::ptr::from_mut(address).cast();
                header.msg_namelen = RawAddress::CAPACITY;
            } else {
                header.msg_name = std::ptr::null_mut();
                header.msg_namelen = 0;
            }
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = Control::CAPACITY as _;
            header.msg_flags = 0;
        }
        let _guard = Uncancellable::new();
        // SAFETY: at least `max` headers, each with pointers to its own buffers of `self`, set just now.
        let received = check(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                max as c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        })?;
        Ok(received.unsigned_abs() as usize)
    }

    /// The kernel's description of a datagram that [`ReceiveBatch::fill`] received.
    #[inline]
    pub(crate) fn raw(&self, index: usize) -> RawDatagram {
        let message = &self.headers[index];
        // The field is a `size_t` in one C library and 32 bits in another.
        #[allow(clippy::unnecessary_cast)]
        let control = message.msg_hdr.msg_controllen as usize;
        RawDatagram {
            source: self.addresses[index].get(),
            control: self.controls[index].read(control),
            length: (message.msg_len as usize).min(self.capacity),
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }
    }

    /// The bytes of such a datagram.
    pub(crate) fn buffer(&self, index: usize, length: usize) -> &[u8] {
        &self.bytes[index * self.capacity..][..length.min(self.capacity)]
    }

    /// Adds a datagram to those that the receive call returns: it begins `start` bytes into its buffer.
    #[inline]
    pub(crate) fn accept(&mut self, index: usize, start: usize, info: RxInfo) {
        self.received.push((index, start, info));
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBatch")
            .field("buffers", &self.headers.len())
            .field("capacity", &(self.capacity - forward_header::LENGTH))
            .field("received", &self.received)
            .finish()
    }
}

/// A datagram as the kernel describes it.
pub(crate) struct RawDatagram {
    pub(crate) source: Option<SocketAddr>,
    pub(crate) control: ControlData,
    pub(crate) length: usize,
    pub(crate) truncated: bool,
}

impl RawDatagram {
    /// Its metadata, for a socket bound to `local`.
    #[inline]
    pub(crate) fn info(&self, local: IpAddr) -> RxInfo {
        let Self { source, control, length, truncated } = self;
        RxInfo {
            // A UDP socket reports the sender of every datagram.
            source: source.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
            destination: control.destination.unwrap_or(local),
            interface: control.interface,
            tos: control.tos.unwrap_or(0),
            hop_limit: control.hop_limit,
            length: *length,
            segment: control.segment.filter(|&segment| segment > 0).unwrap_or(*length),
            truncated: *truncated,
        }
    }
}

impl Socket {
    /// Receives queued datagrams, up to the capacity of the batch, and returns how many: zero if none are queued.
    #[inline]
    pub fn receive(&self, batch: &mut ReceiveBatch) -> Result<usize, Error> {
        self.receive_up_to(batch, usize::MAX)
    }

    /// As [`Socket::receive`], for at most `max` datagrams and at least one. A maximum of one is faster if only one is
    /// expected: the kernel does not look for a second.
    #[inline]
    pub fn receive_up_to(&self, batch: &mut ReceiveBatch, max: usize) -> Result<usize, Error> {
        let mut retries = 0;
        loop {
            match batch.fill(self.fd(), true, max) {
                Ok(count) => {
                    for index in 0..count {
                        let info = batch.raw(index).info(self.local().ip());
                        batch.accept(index, 0, info);
                    }
                    return Ok(count);
                }
                Err(error) if errno(&error) == libc::EAGAIN => return Ok(0),
                Err(error) if Self::is_pending_error(&error, &mut retries) => {}
                Err(error) => return Err(Error::system("receive packets", error)),
            }
        }
    }
}
