//! A process's share of an address: the queue pair numbers that are its own, and the services it listens for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::mailbox::{self, Mailbox, Recipient};
use crate::net::options::Options;
use crate::net::receive::{ReceiveBatch, RxInfo};
use crate::net::socket::Socket;
use crate::net::start_lock::StartLock;
use crate::net::steering::Table;
use crate::net::unix_name::{self, Directory, Role};
use crate::random;

/// How many slots an address has: one less than 8 bits give, for the last would own the queue pair number that stands
/// for multicast.
pub(crate) const SLOTS: u8 = u8::MAX;

/// How often a claim is tried that another process made at the same time.
const TRIES: u32 = 64;

const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

fn directory(address: SocketAddr) -> Result<Directory, Error> {
    Directory::read(address).map_err(|error| Error::system("read the table of Unix sockets", error))
}

/// Two processes wanted the same and both gave it up: the next try shall not be at the same time again.
fn back_off(attempt: u32) {
    for _ in 0..random::number() % (1 << attempt.min(10)) {
        std::thread::yield_now();
    }
}

/// A slot of an address: queue pair numbers from `number << 16` on belong to its owner, until it is dropped or the
/// process ends.
#[derive(Debug)]
pub struct Slot {
    mailbox: Mailbox,
}

impl Slot {
    /// Claims the lowest free slot of an address and opens its socket, one process after the other: the sockets are
    /// then in the order of the slots, which is what [`crate::net::steering`] goes by.
    pub fn open(address: SocketAddr, options: &Options) -> Result<(Self, Socket), Error> {
        let mut opened = Self::open_all(&[address], options)?;
        opened.pop().ok_or(Error::NoFreeSlot { address })
    }

    /// As [`Slot::open`] for several addresses of one device: the slot has the same number on all of them, for queue
    /// pairs belong to the device and not to an address.
    pub fn open_all(
        addresses: &[SocketAddr],
        options: &Options,
    ) -> Result<Vec<(Self, Socket)>, Error> {
        // In one order everywhere, or two processes could wait for each other.
        let mut order: Vec<_> = addresses.to_vec();
        order.sort_unstable();
        let locks: Vec<_> =
            order.iter().map(|one| StartLock::acquire(*one)).collect::<Result<_, _>>()?;
        let mut opened = Vec::new();
        for slot in Self::claim_all(addresses)? {
            let socket = Socket::open(slot.address(), options)?;
            slot.attach(&socket)?;
            opened.push((slot, socket));
        }
        drop(locks);
        Ok(opened)
    }

    /// Claims the lowest free slot of an address, without a socket. For an IPv6 link-local address the scope is part of
    /// it, and so is the port.
    pub fn claim(address: SocketAddr) -> Result<Self, Error> {
        Self::claim_all(&[address])?.pop().ok_or(Error::NoFreeSlot { address })
    }

    fn claim_all(addresses: &[SocketAddr]) -> Result<Vec<Self>, Error> {
        let full = Error::NoFreeSlot { address: addresses.first().copied().unwrap_or(UNSPECIFIED) };
        for attempt in 0..TRIES {
            let mut free = [true; SLOTS as usize];
            for address in addresses {
                for slot in directory(*address)?.slots() {
                    if let Some(free) = free.get_mut(usize::from(slot)) {
                        *free = false;
                    }
                }
            }
            let Some(number) = (0..SLOTS).find(|&number| free[usize::from(number)]) else {
                return Err(full);
            };
            let place = free.iter().filter(|&&free| !free).count() as u8;
            let slots = addresses
                .iter()
                .map(|&address| Ok(Self { mailbox: Mailbox::bind(address, number, place)? }))
                .collect::<Result<Vec<_>, Error>>()?;
            // Whoever wants the same slot has bound its name before it looks, so one of both sees the other at least. Both
            // give way, for neither knows whether it was seen.
            let mut alone = true;
            for address in addresses {
                alone &= directory(*address)?.claims(Role::Slot { slot: number, place }) == 1;
            }
            if alone {
                return Ok(slots);
            }
            drop(slots);
            back_off(attempt);
        }
        Err(full)
    }

    /// Makes the kernel steer packets by what the address's processes have now: their slots and services. To be called
    /// when that has changed. False when another process is at it, and the call is to be repeated.
    pub fn steer(&self, socket: &Socket) -> Result<bool, Error> {
        if !socket.features().steering {
            return Ok(true);
        }
        // One at a time, or an older state could replace a newer one.
        let Some(_lock) = StartLock::try_acquire(self.address())? else { return Ok(false) };
        self.attach(socket)?;
        Ok(true)
    }

    fn attach(&self, socket: &Socket) -> Result<(), Error> {
        if socket.features().steering {
            let directory = directory(self.address())?;
            let mut table = Table::new(directory.slots().count(), directory.services());
            table.in_order = directory.is_in_order();
            // The program from before stays where this one is refused.
            let _ = table.attach(socket.as_fd());
        }
        Ok(())
    }

    /// The high 8 bits of the owner's queue pair numbers.
    #[inline]
    pub fn number(&self) -> u8 {
        self.mailbox.slot()
    }

    /// The address it is a slot of.
    pub fn address(&self) -> SocketAddr {
        self.mailbox.address()
    }

    /// The slots of the other processes of this address.
    pub fn others(&self) -> Result<Vec<u8>, Error> {
        self.mailbox.others()
    }

    /// Forwards packets that reached this process to the one they belong to, at once or not at all:
    /// [`Error::NoOwner`] and [`Error::OwnerBusy`] mean that they are dropped, as a network would.
    ///
    /// A message whose packets all have one owner is best forwarded whole: few messages fit into a mailbox
    /// (`net.unix.max_dgram_qlen`, often 10), whatever their size. For a single packet of it, `arrival.segment` and
    /// `arrival.length` need not be changed: only the data's own length counts.
    pub fn forward(&self, to: Recipient, info: &RxInfo, data: &[u8]) -> Result<(), Error> {
        self.mailbox.forward(to, info, data)
    }

    /// Receives what other processes forwarded to this slot and its owner's services, with what the kernel told them
    /// about it, and returns how many messages that are: none when nothing waits.
    pub fn receive(&self, batch: &mut ReceiveBatch) -> Result<usize, Error> {
        self.mailbox.receive(batch)
    }

    /// How many messages were dropped because another user sent them or they were not understood.
    pub fn rejected(&self) -> u64 {
        self.mailbox.rejected()
    }
}

impl AsFd for Slot {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.fd()
    }
}

/// A service of the connection manager that this process listens for, until it is dropped or the process ends. What
/// other processes forward to it arrives at the slot.
#[derive(Debug)]
pub struct Service {
    id: u64,
    address: SocketAddr,
    _fd: DeviceFd,
}

impl Service {
    /// Claims a service for the owner of a slot: [`Error::ServiceTaken`] if it has a listener.
    pub fn claim(address: SocketAddr, id: u64, slot: u8) -> Result<Self, Error> {
        let role = Role::Service { id, slot };
        let taken = Error::ServiceTaken { address, service: id };
        for attempt in 0..TRIES {
            if directory(address)?.claims(role) > 0 {
                return Err(taken);
            }
            // Nothing can be sent to a stream socket that does not listen.
            let fd = DeviceFd::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0)
                .map_err(|error| Error::system("open a Unix socket", error))?;
            mailbox::bind(&fd, &unix_name::new(address, role))?;
            // As for slots.
            if directory(address)?.claims(role) == 1 {
                return Ok(Self { id, address, _fd: fd });
            }
            drop(fd);
            back_off(attempt);
        }
        Err(taken)
    }

    /// The service identifier.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}
