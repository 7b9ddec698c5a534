//! Mailboxes: Unix datagram sockets by which the processes of one address forward packets to each other.
//!
//! Processes of one user trust each other and no others. Packets from another user are dropped, since they could carry any
//! source address, and nothing is sent to a mailbox of another user. (The kernel lets only processes of one user share a
//! port, so this loses nothing.) The receiver is verified once, after connecting to it: a connected socket never sends to
//! another socket that is bound to the same name later.

use std::collections::HashMap;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use rustix::io::{Errno, retry_on_intr};
use rustix::net::{AddressFamily, SendAncillaryBuffer, SendFlags, SocketType, sockopt};

use crate::clock;
use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::receive::{ReceiveBatch, RxInfo};
use crate::net::socket::set_send_buffer;
use crate::net::unix_name::{self, Directory, Role};
use crate::net::{forward_header, unix_diag};
use crate::syscall::errno;

/// The process to forward a packet to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Recipient {
    /// The owner of a slot: the upper 8 bits of the QPN.
    Slot(u8),
    /// The listener of a service of the connection manager.
    Service(u64),
}

/// A slot of an address: its owner has the QPNs from `number << 16` on, until it is dropped or the process ends. Other
/// processes forward packets to its mailbox, a named socket.
#[derive(Debug)]
pub struct Slot {
    fd: DeviceFd,
    /// The address whose mailboxes it forwards to.
    address: SocketAddr,
    number: u8,
    /// The user whose packets are accepted, besides root; none if others cannot be told from it.
    user: Option<u32>,
    rejected: AtomicU64,
    peers: Mutex<Peers>,
}

/// The mailboxes that this one forwards to.
#[derive(Debug)]
struct Peers {
    /// A connected socket for each slot.
    connected: HashMap<u8, DeviceFd>,
    lookups: LookupBudget,
}

impl Slot {
    /// Binds a mailbox for a slot, which claims the slot if no other process has it.
    pub(super) fn bind(address: SocketAddr, number: u8, bind_index: u8) -> Result<Self, Error> {
        let fd = open()?;
        // Before binding, so that no message is queued without the credentials of its sender.
        sockopt::set_socket_passcred(&fd, true).map_err(open_failed)?;
        bind(&fd, &unix_name::new(address, Role::Slot { slot: number, bind_index }))?;
        let peers = Peers { connected: HashMap::new(), lookups: LookupBudget::new(clock::now()) };
        Ok(Self {
            fd,
            address,
            number,
            user: Some(unix_name::user()).filter(|&user| unix_name::is_certainly_this_user(user)),
            rejected: AtomicU64::new(0),
            peers: Mutex::new(peers),
        })
    }

    /// Forwards packets that this process received to the process that owns them, without blocking. [`Error::NoOwner`] and
    /// [`Error::OwnerBusy`] mean that they are dropped, as a network would.
    ///
    /// Forward a datagram whole if all its packets have one owner: a mailbox holds few datagrams
    /// (`net.unix.max_dgram_qlen`, often 10), whatever their size. For a single packet of it, `info.segment` and
    /// `info.length` need not be changed: only the length of `data` counts.
    pub fn forward(&self, to: Recipient, info: &RxInfo, data: &[u8]) -> Result<(), Error> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let (slot, directory) = match to {
            Recipient::Slot(slot) => (slot, None),
            Recipient::Service(id) => {
                let directory = peers.look_up(self.address)?;
                let found = directory.services().find(|&(service, _)| service == id);
                // A service of this process is not forwarded to: it was closed just now.
                let slot = found.map(|(_, slot)| slot).filter(|&slot| slot != self.number);
                (slot.ok_or(Error::NoOwner)?, Some(directory))
            }
        };
        if let Some(peer) = peers.connected.get(&slot) {
            match send(peer, info, data) {
                // The process has ended; another one may own the slot.
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
    pub fn others(&self) -> Result<Vec<u8>, Error> {
        let mut peers = self.peers.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = peers.look_up(self.address)?;
        Ok(directory.slots().filter(|&slot| slot != self.number).collect())
    }

    /// Receives datagrams that other processes forwarded to this slot and its owner's services, with their original
    /// [`RxInfo`], and returns how many: zero if none are queued.
    pub fn receive(&self, batch: &mut ReceiveBatch) -> Result<usize, Error> {
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
            let raw = batch.raw(index);
            let sender = raw.control.user;
            let trusted = sender.is_some() && (sender == self.user || sender == Some(0));
            let info = forward_header::decode(batch.buffer(index, raw.length));
            match info.filter(|_| trusted && !raw.truncated) {
                Some(info) => batch.accept(index, forward_header::LENGTH, info),
                None => drop(self.rejected.fetch_add(1, Ordering::Relaxed)),
            }
        }
        Ok(batch.len())
    }

    /// The address that it is a slot of.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The upper 8 bits of the owner's QPNs.
    #[inline]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The number of datagrams dropped because another user sent them or their header is unknown.
    pub fn rejected(&self) -> u64 {
        self.rejected.load(Ordering::Relaxed)
    }
}

impl AsFd for Slot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Peers {
    fn look_up(&mut self, address: SocketAddr) -> Result<Directory, Error> {
        if !self.lookups.spend(clock::now()) {
            return Err(Error::TooManyLookups);
        }
        Directory::read(address)
    }
}

fn open_failed(error: impl Into<std::io::Error>) -> Error {
    Error::system("open a Unix socket", error)
}

fn open() -> Result<DeviceFd, Error> {
    DeviceFd::socket(AddressFamily::UNIX, SocketType::DGRAM, None).map_err(open_failed)
}

pub(crate) fn bind(fd: &DeviceFd, name: &str) -> Result<(), Error> {
    unix_name::socket_address(name)
        .and_then(|address| Ok(rustix::net::bind(fd, &address)?))
        .map_err(|error| Error::system("bind a Unix socket", error))
}

/// Connects to the mailbox of a slot.
fn connect(directory: &Directory, slot: u8) -> Result<DeviceFd, Error> {
    let owner = directory.mailbox(slot).ok_or(Error::NoOwner)?;
    let fd = open()?;
    set_send_buffer(fd.as_fd(), 4 << 20, true);
    unix_name::socket_address(&owner.name)
        .and_then(|address| Ok(rustix::net::connect(&fd, &address)?))
        .map_err(|_| Error::NoOwner)?;
    // The name may be bound by another process since the table was read. A kernel that does not report owners does not
    // report the peer either.
    let verified = match owner.user {
        None => true,
        Some(_) => unix_diag::peer(fd.as_fd()).is_ok_and(|peer| peer == Some(owner.inode)),
    };
    if verified { Ok(fd) } else { Err(Error::NoOwner) }
}

fn send(to: &DeviceFd, info: &RxInfo, data: &[u8]) -> Result<(), Error> {
    let header = forward_header::encode(info);
    let pieces = [IoSlice::new(&header), IoSlice::new(data)];
    let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
    let mut control = SendAncillaryBuffer::default();
    match retry_on_intr(|| rustix::net::sendmsg(to, &pieces, &mut control, flags)) {
        Ok(_) => Ok(()),
        Err(Errno::CONNREFUSED | Errno::NOTCONN | Errno::CONNRESET) => Err(Error::NoOwner),
        Err(Errno::AGAIN | Errno::NOBUFS) => Err(Error::OwnerBusy),
        Err(error) => Err(Error::system("forward a packet", error)),
    }
}

/// Rate limit for reading the table of sockets: each packet of a remote attacker for an owner that does not exist causes
/// a look-up.
#[derive(Debug)]
struct LookupBudget {
    left: u64,
    /// When it was last refilled, in nanoseconds.
    refilled: u64,
}

impl LookupBudget {
    /// Maximum burst: more than there are slots.
    const MAX_BURST: u64 = 512;
    /// Nanoseconds until one more look-up is allowed.
    const REFILL_INTERVAL: u64 = 1_000_000;

    fn new(now: u64) -> Self {
        Self { left: Self::MAX_BURST, refilled: now }
    }

    fn spend(&mut self, now: u64) -> bool {
        let more = now.saturating_sub(self.refilled) / Self::REFILL_INTERVAL;
        self.left = (self.left + more).min(Self::MAX_BURST);
        self.refilled += more * Self::REFILL_INTERVAL;
        let allowed = self.left > 0;
        self.left -= u64::from(allowed);
        allowed
    }
}

#[cfg(test)]
mod tests {
    use super::LookupBudget;

    #[test]
    fn lookups_are_rate_limited() {
        let mut budget = LookupBudget::new(1000);
        assert_eq!((0..10_000).filter(|_| budget.spend(1000)).count(), 512);
        let later = 1000 + 5 * LookupBudget::REFILL_INTERVAL;
        assert_eq!((0..10_000).filter(|_| budget.spend(later)).count(), 5);
        assert_eq!((0..10_000).filter(|_| budget.spend(u64::MAX / 2)).count(), 512);
    }
}
