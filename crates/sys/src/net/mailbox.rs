//! Mailboxes: Unix datagram sockets by which the processes of one address hand each other packets.
//!
//! A user's processes trust each other and nobody else. What another user sends to a mailbox is dropped, since it could
//! name any sender, and nothing is sent to a mailbox of another user. (The kernel lets only processes of one user share a
//! port, so nothing is lost.) The receiver is verified once, after connecting to it: a connected socket sends to the one
//! it was connected to, and never to another that was given the same name later.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use libc::{SOL_SOCKET, c_int, iovec, msghdr};

use crate::clock;
use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::receive::{ReceiveBatch, RxInfo};
use crate::net::socket::buffer;
use crate::net::unix_name::{self, Directory, Role};
use crate::net::{forward_header, unix_diag};
use crate::syscall::{check, check_length, errno, set_option, zeroed};

/// Whom to forward a packet to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Recipient {
    /// The process that has a slot: a queue pair's number divided by 65,536.
    Slot(u8),
    /// The process that listens for a service of the connection manager.
    Service(u64),
}

/// A named socket, which packets are forwarded to and from.
#[derive(Debug)]
pub(crate) struct Mailbox {
    fd: DeviceFd,
    /// Whose mailboxes it forwards to.
    address: SocketAddr,
    slot: u8,
    user: u32,
    rejected: AtomicU64,
    peers: Mutex<Peers>,
}

/// The mailboxes that this one has sent to.
#[derive(Debug)]
struct Peers {
    /// A connected socket for each.
    connected: HashMap<u8, DeviceFd>,
    lookups: Budget,
}

impl Mailbox {
    /// Binds a mailbox for a slot, which is claimed then if nobody else has it. The place is how many others there are.
    pub(crate) fn bind(address: SocketAddr, slot: u8, place: u8) -> Result<Self, Error> {
        let fd = open()?;
        // Before binding: no message without its sender's credentials may be waiting.
        set_option::<c_int>(fd.as_fd(), SOL_SOCKET, libc::SO_PASSCRED, 1).map_err(failed)?;
        bind(&fd, &unix_name::new(address, Role::Slot { slot, place }))?;
        let peers = Peers { connected: HashMap::new(), lookups: Budget::new(clock::now()) };
        Ok(Self {
            fd,
            address,
            slot,
            user: unix_name::user(),
            rejected: AtomicU64::new(0),
            peers: Mutex::new(peers),
        })
    }

    /// Hands packets to their owner: all those of one message, if they all are its. It does not wait.
    pub(crate) fn forward(&self, to: Recipient, info: &RxInfo, data: &[u8]) -> Result<(), Error> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, directory) = match to {
            Recipient::Slot(slot) => (slot, None),
            Recipient::Service(id) => {
                let directory = peers.look_up(self.address)?;
                let found = directory.services().find(|&(service, _)| service == id);
                // One of our own would not be looked for: it was given up just now.
                let slot = found.map(|(_, slot)| slot).filter(|&slot| slot != self.slot);
                (slot.ok_or(Error::NoOwner)?, Some(directory))
            }
        };
        if let Some(peer) = peers.connected.get(&slot) {
            match send(peer, info, data) {
                // It has ended; another may have its slot.
                Err(Error::NoOwner) => drop(peers.connected.remove(&slot)),
                sent => return sent,
            }
        }
        let directory = match directory {
            Some(directory) => directory,
            None => peers.look_up(self.address)?,
        };
        let peer = connect(&directory, slot)?;
        let sent = send(&peer, info, data);
        peers.connected.insert(slot, peer);
        sent
    }

    /// The slots of the other processes of this address.
    pub(crate) fn others(&self) -> Result<Vec<u8>, Error> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = peers.look_up(self.address)?;
        Ok(directory.slots().filter(|&slot| slot != self.slot).collect())
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
            let info = forward_header::decode(batch.buffer(index, taken.length));
            match info.filter(|_| trusted && !taken.truncated) {
                Some(info) => batch.keep(index, forward_header::LENGTH, info),
                None => drop(self.rejected.fetch_add(1, Ordering::Relaxed)),
            }
        }
        Ok(batch.len())
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn slot(&self) -> u8 {
        self.slot
    }

    pub(crate) fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }

    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Peers {
    fn look_up(&mut self, address: SocketAddr) -> Result<Directory, Error> {
        if !self.lookups.spend(clock::now()) {
            return Err(Error::TooManyLookups);
        }
        Directory::read(address)
            .map_err(|error| Error::system("read the table of Unix sockets", error))
    }
}

fn failed(error: std::io::Error) -> Error {
    Error::system("open a Unix socket", error)
}

fn open() -> Result<DeviceFd, Error> {
    DeviceFd::socket(libc::AF_UNIX, libc::SOCK_DGRAM, 0).map_err(failed)
}

pub(crate) fn bind(fd: &DeviceFd, name: &str) -> Result<(), Error> {
    let (raw, length) = unix_name::raw(name);
    // SAFETY: the name is a local, as long as said.
    check(unsafe { libc::bind(fd.as_raw_fd(), (&raw const raw).cast(), length) })
        .map(drop)
        .map_err(|error| Error::system("bind a Unix socket", error))
}

/// Connects to the mailbox of a slot.
fn connect(directory: &Directory, slot: u8) -> Result<DeviceFd, Error> {
    let owner = directory.mailbox(slot).ok_or(Error::NoOwner)?;
    let fd = open()?;
    buffer(fd.as_fd(), 4 << 20, Some(libc::SO_SNDBUFFORCE), libc::SO_SNDBUF);
    let (raw, length) = unix_name::raw(&owner.name);
    // SAFETY: the name is a local, as long as said.
    check(unsafe { libc::connect(fd.as_raw_fd(), (&raw const raw).cast(), length) })
        .map_err(|_| Error::NoOwner)?;
    // The name may have changed hands since the table was read. A kernel that does not tell the owner does not tell this.
    let proven = match owner.user {
        None => true,
        Some(_) => unix_diag::peer(fd.as_fd()).is_ok_and(|peer| peer == Some(owner.inode)),
    };
    if proven { Ok(fd) } else { Err(Error::NoOwner) }
}

fn send(to: &DeviceFd, info: &RxInfo, data: &[u8]) -> Result<(), Error> {
    let mut header = forward_header::encode(info);
    let mut pieces = [
        iovec { iov_base: header.as_mut_ptr().cast(), iov_len: header.len() },
        iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() },
    ];
    // SAFETY: a msghdr is numbers and pointers.
    let mut message: msghdr = unsafe { zeroed() };
    message.msg_iov = pieces.as_mut_ptr();
    message.msg_iovlen = pieces.len() as _;
    loop {
        // SAFETY: the message refers to locals and to `data`, which the kernel only reads.
        let sent = check_length(unsafe {
            libc::sendmsg(
                to.as_raw_fd(),
                &raw const message,
                libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL,
            )
        });
        return match sent {
            Ok(_) => Ok(()),
            Err(error) => match errno(&error) {
                libc::EINTR => continue,
                libc::ECONNREFUSED | libc::ENOTCONN | libc::ECONNRESET => Err(Error::NoOwner),
                libc::EAGAIN | libc::ENOBUFS => Err(Error::OwnerBusy),
                _ => Err(Error::system("forward a packet", error)),
            },
        };
    }
}

/// How often the table of sockets is read: a stranger's packets for owners that do not exist lead to a look-up each.
#[derive(Debug)]
struct Budget {
    left: u64,
    /// When it was last added to, nanoseconds.
    since: u64,
}

impl Budget {
    /// Look-ups at once: more than there are slots.
    const MOST: u64 = 512;
    /// Nanoseconds until there is one more.
    const EACH: u64 = 1_000_000;

    fn new(now: u64) -> Self {
        Self { left: Self::MOST, since: now }
    }

    fn spend(&mut self, now: u64) -> bool {
        let more = now.saturating_sub(self.since) / Self::EACH;
        self.left = (self.left + more).min(Self::MOST);
        self.since += more * Self::EACH;
        let some = self.left > 0;
        self.left -= u64::from(some);
        some
    }
}

#[cfg(test)]
mod tests {
    use super::Budget;

    #[test]
    fn lookups_are_bounded() {
        let mut budget = Budget::new(1000);
        assert_eq!((0..10_000).filter(|_| budget.spend(1000)).count(), 512);
        let later = 1000 + 5 * Budget::EACH;
        assert_eq!((0..10_000).filter(|_| budget.spend(later)).count(), 5);
        assert_eq!((0..10_000).filter(|_| budget.spend(u64::MAX / 2)).count(), 512);
    }
}
