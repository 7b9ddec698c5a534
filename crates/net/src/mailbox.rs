//! Unix datagram sockets with names of our own: how the processes of one machine find each other.
//!
//! The names are abstract: no files, free again the moment a process ends however it ends, and apart for each network
//! namespace, as ports are. Binding one is exclusive, which makes it a claim.
//!
//! A user's processes trust each other and nobody else: what another user sends to a mailbox is dropped, since it
//! could name any sender. (The kernel lets only processes of one user share a port, so nothing is lost.)

use std::mem::{offset_of, size_of};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use libc::{SOL_SOCKET, c_int, iovec, msghdr, sa_family_t, sockaddr_un, socklen_t};

use crate::ROCE_PORT;
use crate::address::scope;
use crate::error::Error;
use crate::forward;
use crate::receive::{Arrival, ReceiveBatch};
use crate::socket::buffer;
use crate::system::{check, check_length, errno, set_option, socket, zeroed};

/// Whom to forward a packet to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The process that has a slot: a queue pair's number divided by 65,536.
    Slot(u8),
    /// The process that listens for a service of the connection manager.
    Service(u64),
}

/// What a Unix socket of ours is for, which is its name.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Name {
    Mailbox(Recipient),
    Door,
}

/// A named socket, which packets are forwarded to and from.
#[derive(Debug)]
pub(crate) struct Mailbox {
    fd: OwnedFd,
    /// Whose mailboxes it forwards to.
    address: SocketAddr,
    user: u32,
    rejected: AtomicU64,
}

impl Mailbox {
    /// Claims a name. `None` when another process, or this one, has it.
    pub(crate) fn claim(address: SocketAddr, name: Recipient) -> Result<Option<Self>, Error> {
        let failed = |error| Error::system("open a Unix socket", error);
        let socket = socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0).map_err(failed)?;
        let fd = socket.as_fd();
        // Before binding: no message without its sender's name may be waiting.
        set_option::<c_int>(fd, SOL_SOCKET, libc::SO_PASSCRED, 1).map_err(failed)?;
        buffer(fd, 4 << 20, Some(libc::SO_SNDBUFFORCE), libc::SO_SNDBUF);
        let (raw, length) = name_of(address, Name::Mailbox(name));
        // SAFETY: the name is a local, as long as said.
        let bound = check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), length) });
        match bound {
            Ok(_) => {}
            Err(error) if errno(&error) == libc::EADDRINUSE => return Ok(None),
            Err(error) => return Err(Error::system("bind a Unix socket", error)),
        }
        // SAFETY: the call takes nothing and cannot fail.
        let user = unsafe { libc::geteuid() };
        Ok(Some(Self { fd: socket, address, user, rejected: AtomicU64::new(0) }))
    }

    /// Hands packets to their owner: all those of one message, if they all are its. It does not wait.
    pub(crate) fn forward(
        &self,
        to: Recipient,
        arrival: &Arrival,
        data: &[u8],
    ) -> Result<(), Error> {
        let mut header = forward::encode(arrival);
        let mut pieces = [
            iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
            iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() },
        ];
        let (mut raw, length) = name_of(self.address, Name::Mailbox(to));
        // SAFETY: a msghdr is numbers and pointers.
        let mut message: msghdr = unsafe { zeroed() };
        message.msg_name = (&raw mut raw).cast();
        message.msg_namelen = length;
        message.msg_iov = pieces.as_mut_ptr();
        message.msg_iovlen = pieces.len() as _;
        loop {
            // SAFETY: the message refers to locals and to `data`, which the kernel only reads.
            let sent = check_length(unsafe {
                libc::sendmsg(
                    self.fd.as_raw_fd(),
                    &raw const message,
                    libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
                )
            });
            return match sent {
                Ok(_) => Ok(()),
                Err(error) => match errno(&error) {
                    libc::EINTR => continue,
                    libc::ECONNREFUSED | libc::ENOENT | libc::ECONNRESET => Err(Error::NoOwner),
                    libc::EAGAIN | libc::ENOBUFS => Err(Error::OwnerBusy),
                    _ => Err(Error::system("forward a packet", error)),
                },
            };
        }
    }

    /// Receives what other processes forwarded, and returns how many messages that are.
    pub(crate) fn receive(&self, batch: &mut ReceiveBatch) -> Result<usize, Error> {
        let count = loop {
            match batch.fill(self.fd.as_fd(), false, usize::MAX) {
                Ok(count) => break count,
                Err(error) => match errno(&error) {
                    libc::EAGAIN => return Ok(0),
                    libc::EINTR => {}
                    _ => return Err(Error::system("receive forwarded packets", error)),
                },
            }
        };
        for index in 0..count {
            let taken = batch.taken(index);
            let trusted = taken.marks.user == Some(self.user) || taken.marks.user == Some(0);
            let arrival = forward::decode(batch.buffer(index, taken.length));
            match arrival.filter(|_| trusted && !taken.truncated) {
                Some(arrival) => batch.keep(index, forward::LENGTH, arrival),
                None => drop(self.rejected.fetch_add(1, Ordering::Relaxed)),
            }
        }
        Ok(batch.len())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// The name of a socket, without the zero byte that makes it abstract: `ferroce/<address>/<slot>` or
/// `ferroce/<address>/svc/<service>`. A scope or an unusual port are part of the address.
fn text(address: SocketAddr, name: Name) -> String {
    let mut place = address.ip().to_string();
    match scope(address) {
        0 => {}
        scope => place.push_str(&format!("%{scope}")),
    }
    if address.port() != ROCE_PORT {
        place.push_str(&format!(":{}", address.port()));
    }
    match name {
        Name::Mailbox(Recipient::Slot(slot)) => format!("ferroce/{place}/{slot}"),
        Name::Mailbox(Recipient::Service(service)) => {
            format!("ferroce/{place}/svc/{service:016x}")
        }
        Name::Door => format!("ferroce/{place}/door"),
    }
}

/// The same in the kernel's form, and its length.
pub(crate) fn name_of(address: SocketAddr, name: Name) -> (sockaddr_un, socklen_t) {
    // SAFETY: a sockaddr_un is numbers.
    let mut raw: sockaddr_un = unsafe { zeroed() };
    raw.sun_family = libc::AF_UNIX as sa_family_t;
    let text = text(address, name);
    // The longest name is that of a service on a scoped IPv6 address: 90 bytes of 107.
    for (to, from) in raw.sun_path[1..].iter_mut().zip(text.bytes()) {
        *to = from as _;
    }
    let length = offset_of!(sockaddr_un, sun_path) + 1 + text.len();
    (raw, length.min(size_of::<sockaddr_un>()) as socklen_t)
}
