//! Receiving: many packets from one system call.

use std::fmt;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};

use libc::{c_uint, iovec, mmsghdr};

use crate::error::Error;
use crate::net::address::RawAddress;
use crate::net::control::{Control, Marks};
use crate::net::forward_header;
use crate::net::socket::Socket;
use crate::syscall::{check, errno, zeroed};

/// What a message may hold where GRO puts packets together.
const COALESCED: usize = 65_536;

/// What a message may hold otherwise: the largest RoCE packet, and what fits into a jumbo frame.
const SINGLE: usize = 9 * 1024;

/// What is known about a message beside its bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RxInfo {
    /// Who sent it.
    pub source: SocketAddr,
    /// The address it was sent to: ours, or a multicast group's.
    pub destination: IpAddr,
    /// The index of the interface that it came in by, where the kernel tells.
    pub interface: Option<u32>,
    /// The type of service or traffic class: six bits of DSCP, two of ECN. Zero where the kernel does not tell.
    pub tos: u8,
    /// The time to live or hop limit left, where the kernel tells.
    pub hop_limit: Option<u8>,
    /// Bytes received.
    pub length: usize,
    /// Bytes of each packet in it, of which the last may have fewer: GRO puts those of one flow together.
    pub segment: usize,
    /// The buffer was too small, so the end is missing.
    pub truncated: bool,
}

impl RxInfo {
    /// The two bits by which routers mark congestion (RFC 3168).
    #[inline]
    pub fn ecn(&self) -> u8 {
        self.tos & 3
    }
}

/// A message: the packets of one flow that arrived together, or one packet.
#[derive(Clone, Copy, Debug)]
pub struct RxDatagram<'a> {
    /// What is known about all of them.
    pub info: &'a RxInfo,
    /// Their bytes.
    pub data: &'a [u8],
}

impl<'a> RxDatagram<'a> {
    /// The packets, each the UDP payload of one datagram. They may be for different queue pairs.
    #[inline]
    pub fn packets(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        self.data.chunks(self.info.segment.max(1))
    }
}

/// Buffers for what one call receives, used again for the next.
pub struct ReceiveBatch {
    bytes: Box<[u8]>,
    /// Bytes of one message.
    room: usize,
    messages: Box<[mmsghdr]>,
    pieces: Box<[iovec]>,
    addresses: Box<[RawAddress]>,
    controls: Box<[Control]>,
    /// What was received: where it starts in its buffer, and what is known about it.
    arrivals: Vec<(usize, usize, RxInfo)>,
}

// SAFETY: the pointers in `messages` and `pieces` refer to the other buffers of the same value and are written anew
// before each use.
unsafe impl Send for ReceiveBatch {}
// SAFETY: without `&mut` nothing of it is changed, and the pointers are not followed.
unsafe impl Sync for ReceiveBatch {}

impl ReceiveBatch {
    /// Room for so many messages of up to `bytes` bytes each.
    pub fn new(messages: usize, bytes: usize) -> Self {
        let messages = messages.max(1);
        // What another process forwards has a header before it.
        let room = bytes + forward_header::LENGTH;
        // SAFETY: an mmsghdr is numbers and pointers.
        let header: mmsghdr = unsafe { zeroed() };
        let piece = iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            bytes: vec![0; messages * room].into(),
            room,
            messages: vec![header; messages].into(),
            pieces: vec![piece; messages].into(),
            addresses: vec![RawAddress::empty(); messages].into(),
            controls: vec![Control::empty(); messages].into(),
            arrivals: Vec::with_capacity(messages),
        }
    }

    /// Room as a socket with these features wants it: few large messages where packets are put together, many small
    /// ones where they are not.
    pub fn for_socket(socket: &Socket) -> Self {
        if socket.features().gro { Self::new(16, COALESCED) } else { Self::new(64, SINGLE) }
    }

    /// What the last call received.
    #[inline]
    pub fn messages(&self) -> impl ExactSizeIterator<Item = RxDatagram<'_>> {
        self.arrivals.iter().map(|(buffer, start, info)| {
            let start = buffer * self.room + start;
            RxDatagram { info, data: &self.bytes[start..start + info.length] }
        })
    }

    /// How many messages the last call received.
    #[inline]
    pub fn len(&self) -> usize {
        self.arrivals.len()
    }

    /// Whether the last call received nothing.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.arrivals.is_empty()
    }

    /// One `recvmmsg`: how many messages came. What they are is then told by [`ReceiveBatch::keep`].
    #[inline]
    pub(crate) fn fill(
        &mut self,
        fd: BorrowedFd<'_>,
        with_address: bool,
        most: usize,
    ) -> io::Result<usize> {
        self.arrivals.clear();
        let most = most.clamp(1, self.messages.len());
        let buffers = self.bytes.chunks_exact_mut(self.room);
        let places = self.addresses.iter_mut().zip(self.controls.iter_mut());
        let parts = self.messages[..most].iter_mut().zip(self.pieces.iter_mut());
        for ((message, piece), (buffer, (address, control))) in parts.zip(buffers.zip(places)) {
            *piece = iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = &mut message.msg_hdr;
            if with_address {
                header.msg_name = std::ptr::from_mut(address).cast();
                header.msg_namelen = RawAddress::ROOM;
            } else {
                header.msg_name = std::ptr::null_mut();
                header.msg_namelen = 0;
            }
            header.msg_iov = piece;
            header.msg_iovlen = 1;
            header.msg_control = control.as_mut_ptr();
            header.msg_controllen = Control::ROOM as _;
            header.msg_flags = 0;
        }
        // SAFETY: at least as many messages as said, each with pointers to its own buffers of `self`, set just now.
        let received = check(unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.messages.as_mut_ptr(),
                most as c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        })?;
        Ok(received.unsigned_abs() as usize)
    }

    /// What the kernel says about a message that [`ReceiveBatch::fill`] took.
    #[inline]
    pub(crate) fn taken(&self, index: usize) -> Taken {
        let message = &self.messages[index];
        // The field is a `size_t` in one C library and 32 bits in another.
        #[allow(clippy::unnecessary_cast)]
        let control = message.msg_hdr.msg_controllen as usize;
        Taken {
            source: self.addresses[index].get(),
            marks: self.controls[index].read(control),
            length: (message.msg_len as usize).min(self.room),
            truncated: message.msg_hdr.msg_flags & libc::MSG_TRUNC != 0,
        }
    }

    /// The bytes of such a message.
    pub(crate) fn buffer(&self, index: usize, length: usize) -> &[u8] {
        &self.bytes[index * self.room..][..length.min(self.room)]
    }

    /// Hands a message to the caller of the receiving call: its bytes begin `start` bytes into its buffer.
    #[inline]
    pub(crate) fn keep(&mut self, index: usize, start: usize, info: RxInfo) {
        self.arrivals.push((index, start, info));
    }
}

impl fmt::Debug for ReceiveBatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ReceiveBatch")
            .field("room", &(self.messages.len(), self.room - forward_header::LENGTH))
            .field("arrivals", &self.arrivals)
            .finish()
    }
}

/// A message as the kernel describes it.
pub(crate) struct Taken {
    pub(crate) source: Option<SocketAddr>,
    pub(crate) marks: Marks,
    pub(crate) length: usize,
    pub(crate) truncated: bool,
}

impl Taken {
    /// What that means, for a socket bound to `local`.
    #[inline]
    pub(crate) fn info(&self, local: IpAddr) -> RxInfo {
        let Self { source, marks, length, truncated } = self;
        RxInfo {
            // A UDP socket names the sender of every datagram.
            source: source.unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
            destination: marks.destination.unwrap_or(local),
            interface: marks.interface,
            tos: marks.tos.unwrap_or(0),
            hop_limit: marks.hop_limit,
            length: *length,
            segment: marks.segment.filter(|&segment| segment > 0).unwrap_or(*length),
            truncated: *truncated,
        }
    }
}

impl Socket {
    /// Receives what is there, as far as the batch has room, and returns how many messages that are: none when
    /// nothing waits.
    #[inline]
    pub fn receive(&self, batch: &mut ReceiveBatch) -> Result<usize, Error> {
        self.receive_up_to(batch, usize::MAX)
    }

    /// The same for no more than so many messages. Asking for one is quicker where one is expected: the kernel does not
    /// look for a second.
    #[inline]
    pub fn receive_up_to(&self, batch: &mut ReceiveBatch, most: usize) -> Result<usize, Error> {
        let mut reports = 0;
        loop {
            match batch.fill(self.fd(), true, most) {
                Ok(count) => {
                    for index in 0..count {
                        let info = batch.taken(index).info(self.local().ip());
                        batch.keep(index, 0, info);
                    }
                    return Ok(count);
                }
                Err(error) if errno(&error) == libc::EAGAIN => return Ok(0),
                Err(error) if Self::is_report(&error, &mut reports) => {}
                Err(error) => return Err(Error::system("receive packets", error)),
            }
        }
    }
}
