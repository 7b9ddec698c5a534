//! Sending: one system call for as many packets as possible.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsRawFd;

use libc::{c_int, c_uint, iovec, mmsghdr, msghdr};

use crate::error::Error;
use crate::net::address::RawAddress;
use crate::net::batch::Batch;
use crate::net::control::Control;
use crate::net::route;
use crate::net::socket::Socket;
use crate::syscall::{check, check_length, errno, zeroed};

/// Batches of one `sendmmsg`.
const AT_ONCE: usize = 16;

/// How often a report about an earlier packet may stand in the way of a call.
const REPORTS: usize = 8;

impl Socket {
    /// Sends the packets of a batch, in order, and returns how many of them were taken: fewer, or none, when the
    /// socket's buffer is full. Wait until it is writable, then send the rest.
    ///
    /// With [`Socket::gso`] a batch is taken as a whole or not at all, so what is left is always a batch of its own
    /// whose packets keep their index.
    #[inline]
    pub fn send(&self, batch: &Batch<'_>) -> Result<usize, Error> {
        let bytes = batch.fits(self.is_ipv6())?;
        if !self.gso() && bytes > batch.segment {
            return self.send_singly(std::slice::from_ref(batch));
        }
        let (mut address, mut control) = (MaybeUninit::uninit(), Control::empty());
        let message = message(batch, bytes, &mut address, &mut control);
        let mut reports = 0;
        loop {
            // SAFETY: the message refers to the batch's pieces and to two locals, all alive through the call.
            let sent = check_length(unsafe {
                libc::sendmsg(self.fd.as_raw_fd(), &raw const message, libc::MSG_DONTWAIT)
            });
            match sent {
                Ok(_) => return Ok(batch.packets()),
                Err(error) if Self::is_report(&error, &mut reports) => {}
                Err(error) => return self.refused(batch, bytes, error),
            }
        }
    }

    /// Sends several batches, in order, and returns how many packets of them were taken, counted over all of them. An
    /// error is one of the first batch: of a later one it is found when that is the first.
    pub fn send_many(&self, batches: &[Batch<'_>]) -> Result<usize, Error> {
        if let [batch] = batches {
            return self.send(batch);
        }
        if !self.gso() {
            return self.send_singly(batches);
        }
        let mut packets = 0;
        for batches in batches.chunks(AT_ONCE) {
            let taken = match self.send_group(batches) {
                Ok(taken) => taken,
                Err(error) if packets == 0 => return Err(error),
                Err(_) => break,
            };
            packets += batches[..taken].iter().map(Batch::packets).sum::<usize>();
            if taken < batches.len() {
                break;
            }
        }
        Ok(packets)
    }

    /// Up to [`AT_ONCE`] batches, each one message: how many of them were taken.
    fn send_group(&self, batches: &[Batch<'_>]) -> Result<usize, Error> {
        let mut addresses = [const { MaybeUninit::uninit() }; AT_ONCE];
        let mut controls = [Control::empty(); AT_ONCE];
        // SAFETY: an mmsghdr is numbers and pointers.
        let mut messages: [mmsghdr; AT_ONCE] = unsafe { zeroed() };
        let mut first_bytes = 0;
        let mut count = 0;
        for (index, batch) in batches.iter().enumerate() {
            let bytes = match batch.fits(self.is_ipv6()) {
                Ok(bytes) => bytes,
                Err(error) if index == 0 => return Err(error),
                Err(_) => break,
            };
            if index == 0 {
                first_bytes = bytes;
            }
            messages[index].msg_hdr =
                message(batch, bytes, &mut addresses[index], &mut controls[index]);
            count += 1;
        }
        match self.send_messages(&mut messages[..count]) {
            Ok(sent) => Ok(sent),
            Err(error) => match batches.first() {
                // Nothing taken is no batch taken, whatever the first one counts.
                Some(batch) => self.refused(batch, first_bytes, error),
                None => Ok(0),
            },
        }
    }

    /// The way without segmentation: each packet a message of its own, all with identification 0.
    fn send_singly(&self, batches: &[Batch<'_>]) -> Result<usize, Error> {
        let mut addresses = vec![MaybeUninit::uninit(); batches.len()];
        let mut controls = vec![Control::empty(); batches.len()];
        let mut pieces = Vec::new();
        // Where in `pieces` each packet ends, and whose it is: pointers follow when the list no longer moves.
        let mut packets: Vec<(usize, usize)> = Vec::new();
        for (index, batch) in batches.iter().enumerate() {
            match batch.fits(self.is_ipv6()) {
                Ok(_) => {}
                Err(error) if index == 0 => return Err(error),
                Err(_) => break,
            }
            cut(batch, &mut pieces, |end| packets.push((end, index)));
        }
        let mut heads = Vec::with_capacity(batches.len());
        for (batch, (address, control)) in
            batches.iter().zip(addresses.iter_mut().zip(&mut controls))
        {
            heads.push(message(batch, 0, address, control));
        }
        let mut messages = Vec::with_capacity(packets.len());
        let mut start = 0;
        for &(end, batch) in &packets {
            // SAFETY: an mmsghdr is numbers and pointers.
            let mut message: mmsghdr = unsafe { zeroed() };
            message.msg_hdr = heads[batch];
            let own: &mut [iovec] = &mut pieces[start..end];
            message.msg_hdr.msg_iov = own.as_mut_ptr();
            message.msg_hdr.msg_iovlen = own.len() as _;
            messages.push(message);
            start = end;
        }
        let mut sent = 0;
        while sent < messages.len() {
            match self.send_messages(&mut messages[sent..]) {
                Ok(0) => break,
                Ok(count) => sent += count,
                Err(_) if sent > 0 => break,
                Err(error) => {
                    let first = &batches[0];
                    return self.refused(first, first.bytes().min(first.segment), error);
                }
            }
        }
        Ok(sent)
    }

    /// One `sendmmsg`, whose messages the callers have filled in with pointers to what lives through it.
    fn send_messages(&self, messages: &mut [mmsghdr]) -> io::Result<usize> {
        let mut reports = 0;
        loop {
            // SAFETY: as many messages as said; both callers build them of locals and borrowed pieces that outlive
            // this.
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
                Err(error) if Self::is_report(&error, &mut reports) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Whether the error may not be this call's: a signal, or a router's or host's answer to an earlier packet. These
    /// end: each such answer is reported once, and what is this call's own error comes again.
    pub(crate) fn is_report(error: &io::Error, reports: &mut usize) -> bool {
        let is = match errno(error) {
            libc::EINTR | libc::ECONNREFUSED | libc::EPROTO => true,
            libc::EMSGSIZE
            | libc::EHOSTUNREACH
            | libc::ENETUNREACH
            | libc::EHOSTDOWN
            | libc::ENONET
            | libc::ENOPROTOOPT
            | libc::EOPNOTSUPP
            | libc::EACCES => *reports == 0,
            _ => false,
        };
        *reports += 1;
        is && *reports <= REPORTS
    }

    /// What it means that the kernel did not take the first `bytes` bytes of a batch.
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
            // Before Linux 6.14 this is also what a segment gets that is too long for the path.
            libc::EINVAL if segmented => match route::path_mtu(destination) {
                Ok(mtu) if length + route::udp_headers(destination) > mtu as usize => {
                    Err(Error::TooLong { length, destination, path_mtu: Some(mtu) })
                }
                _ => Err(Error::GsoRefused),
            },
            // The device cannot compute checksums, or the path is encrypted.
            libc::EIO if segmented => Err(Error::GsoRefused),
            libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN | libc::EADDRNOTAVAIL => {
                Err(Error::Unreachable { destination, source: error })
            }
            _ => Err(Error::system("send packets", error)),
        }
    }
}

/// The kernel's form of a batch of so many bytes, in the places lent for it: one message, segmented if it is longer
/// than one packet.
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
    // An IoSlice is an iovec (std promises the layout), and the kernel only reads through it.
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
        // The segment is below the batch's bytes, which 16 bits hold.
        let segment = (batch.segment as u16).to_ne_bytes();
        at = control.put(at, libc::SOL_UDP, libc::UDP_SEGMENT, &segment);
    }
    if at > 0 {
        message.msg_control = control.as_mut_ptr();
        message.msg_controllen = at as _;
    }
    message
}

/// Cuts a batch's pieces at the ends of its packets, and calls `end` with how many pieces there are at each.
fn cut(batch: &Batch<'_>, pieces: &mut Vec<iovec>, mut end: impl FnMut(usize)) {
    let mut room = batch.segment;
    for piece in batch.pieces {
        let mut rest: &[u8] = piece;
        while !rest.is_empty() {
            if room == 0 {
                end(pieces.len());
                room = batch.segment;
            }
            let (now, later) = rest.split_at(rest.len().min(room));
            pieces.push(iovec { iov_base: now.as_ptr().cast_mut().cast(), iov_len: now.len() });
            (rest, room) = (later, room - now.len());
        }
    }
    end(pieces.len());
}
