//! Sending many packets with one system call.
//!
//! libc: rustix sends no `UDP_SEGMENT`, type of service and hop limit control messages.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use libc::{c_int, c_uint, iovec, mmsghdr, msghdr};

use crate::cancel::Uncancellable;
use crate::error::Error;
use crate::net::address::RawAddress;
use crate::net::batch::Batch;
use crate::net::control::Control;
use crate::net::route;
use crate::net::socket::Socket;
use crate::syscall::{check, check_length, errno, zeroed};

/// How often a call is repeated because an ICMP error for an earlier packet, or a signal, ended it.
const MAX_RETRIES: usize = 8;

impl Socket {
    /// Sends the packets of a batch, in order, and returns how many the kernel accepted: fewer, or none, if the socket's
    /// buffer is full. Wait until it is writable, then send the rest.
    ///
    /// With [`Socket::gso`] a batch is accepted as a whole or not at all, so the packets that are left keep their index.
    #[inline]
    pub fn send(&self, batch: &Batch<'_>) -> Result<usize, Error> {
        let bytes = batch.check(self.is_ipv6())?;
        if !self.gso() && bytes > batch.segment {
            return self.send_singly(batch);
        }
        let (mut address, mut control) = (MaybeUninit::uninit(), Control::empty());
        let message = message(batch, bytes, &mut address, &mut control);
        let mut retries = 0;
        loop {
            let _guard = Uncancellable::new();
            // SAFETY: the message refers to the pieces of the batch and to two locals, which outlive the call.
            let sent = check_length(unsafe {
                libc::sendmsg(self.fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
            });
            match sent {
                Ok(_) => return Ok(batch.packets()),
                Err(error) if Self::is_pending_error(&error, &mut retries) => {}
                Err(error) => return self.refused(batch, bytes, error),
            }
        }
    }

    /// Sends without segmentation: each packet is a message of one `sendmmsg`, with identification 0.
    fn send_singly(&self, batch: &Batch<'_>) -> Result<usize, Error> {
        let (mut address, mut control) = (MaybeUninit::uninit(), Control::empty());
        let head = message(batch, 0, &mut address, &mut control);
        let (mut pieces, mut ends) = (Vec::new(), Vec::new());
        cut(batch, &mut pieces, |end| ends.push(end));
        let mut messages = Vec::with_capacity(ends.len());
        let mut rest: &mut [iovec] = &mut pieces;
        let mut start = 0;
        for end in ends {
            let (packet, behind) = rest.split_at_mut(end - start);
            (rest, start) = (behind, end);
            // SAFETY: an mmsghdr is numbers and pointers.
            let mut message: mmsghdr = unsafe { zeroed() };
            message.msg_hdr = head;
            message.msg_hdr.msg_iov = packet.as_mut_ptr();
            message.msg_hdr.msg_iovlen = packet.len() as _;
            messages.push(message);
        }
        let mut sent = 0;
        while sent < messages.len() {
            match self.send_messages(&mut messages[sent..]) {
                Ok(0) => break,
                Ok(count) => sent += count,
                Err(_) if sent > 0 => break,
                Err(error) => {
                    return self.refused(batch, batch.bytes().min(batch.segment), error);
                }
            }
        }
        Ok(sent)
    }

    /// Makes one `sendmmsg` call with messages that the caller has filled in.
    fn send_messages(&self, messages: &mut [mmsghdr]) -> io::Result<usize> {
        let mut retries = 0;
        loop {
            let _guard = Uncancellable::new();
            // SAFETY: the caller builds the messages from locals and borrowed pieces that outlive the call.
            let sent = check(unsafe {
                libc::sendmmsg(
                    self.fd.as_raw_fd(),
                    messages.as_mut_ptr(),
                    messages.len() as c_uint,
                    libc::MSG_DONTWAIT as _,
                )
            });
            match sent {
                Ok(sent) => return Ok(sent.unsigned_abs() as usize),
                Err(error) if Self::is_pending_error(&error, &mut retries) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the call should be repeated, because the error may not be its own: a signal, or an ICMP error for an earlier
    /// packet. This terminates: the kernel reports each ICMP error once, and an error of the call itself again.
    pub(crate) fn is_pending_error(error: &io::Error, retries: &mut usize) -> bool {
        let pending = match errno(error) {
            libc::EINTR | libc::ECONNREFUSED | libc::EPROTO => true,
            libc::EMSGSIZE
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EACCES => *retries == 0,
            _ => false,
        };
        *retries += 1;
        pending && *retries <= MAX_RETRIES
    }

    /// Interprets the error of sending the first `bytes` bytes of a batch.
    #[cold]
    fn refused(&self, batch: &Batch<'_>, bytes: usize, error: io::Error) -> Result<usize, Error> {
        let destination = batch.destination;
        let segmented = bytes > batch.segment;
        let length = bytes.min(batch.segment);
        match errno(&error) {
            libc::EAGAIN => Ok(0),
            libc::EMSGSIZE => Err(Error::TooLong {
                length,
                destination,
                path_mtu: route::path_mtu(destination).ok(),
            }),
            // Before Linux 6.14 also the error for a segment that exceeds the path MTU.
            libc::EINVAL if segmented => match route::path_mtu(destination) {
                Ok(mtu) if length + route::udp_headers(destination) > mtu as usize => {
                    Err(Error::TooLong { length, destination, path_mtu: Some(mtu) })
                }
                _ => Err(Error::GsoRefused),
            },
            // The device cannot compute checksums, or the path is encrypted (IPsec).
            libc::EIO if segmented => Err(Error::GsoRefused),
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL => {
                Err(Error::Unreachable { destination, source: error })
            }
            _ => Err(Error::system("send packets", error)),
        }
    }
}

/// Builds the kernel's form of a batch of `bytes` bytes in the given buffers: one message, segmented if it is longer than
/// one packet.
#[inline]
fn message(
    batch: &Batch<'_>,
    bytes: usize,
    address: &mut MaybeUninit<RawAddress>,
    control: &mut Control,
) -> msghdr {
    let (raw, length) = RawAddress::new(batch.destination);
    // SAFETY: a msghdr is numbers and pointers.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_name = std::ptr::from_mut(address.write(raw)).cast();
    message.msg_namelen = length;
    // An IoSlice has the layout of an iovec (guaranteed by std), and the kernel only reads through it.
    message.msg_iov = batch.pieces.as_ptr().cast::<iovec>().cast_mut();
    message.msg_iovlen = batch.pieces.len() as _;
    let mut at = 0;
    let (level, tos, hop_limit) = match batch.destination.is_ipv6() {
        false => (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL),
        true => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT),
    };
    if batch.tos != 0 {
        at = control.put(at, level, tos, &c_int::from(batch.tos).to_ne_bytes());
    }
    if let Some(limit) = batch.hop_limit {
        at = control.put(at, level, hop_limit, &c_int::from(limit).to_ne_bytes());
    }
    if bytes > batch.segment {
        // The segment is shorter than the batch, whose length fits into 16 bits.
        let segment = (batch.segment as u16).to_ne_bytes();
        at = control.put(at, libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
    }
    if at > 0 {
        message.msg_control = control.as_mut_ptr();
        message.msg_controllen = at as _;
    }
    message
}

/// Splits the pieces of a batch at the ends of its packets, and calls `end` with the number of pieces so far at each.
fn cut(batch: &Batch<'_>, pieces: &mut Vec<iovec>, mut end: impl FnMut(usize)) {
    let mut left = batch.segment;
    for piece in batch.pieces {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            if left == 0 {
                end(pieces.len());
                left = batch.segment;
            }
            let (now, later) = rest.split_at(rest.len().min(left));
            pieces.push(iovec { iov_base: now.as_ptr().cast_mut().cast(), iov_len: now.len() });
            (rest, left) = (later, left - now.len());
        }
    }
    end(pieces.len());
}
