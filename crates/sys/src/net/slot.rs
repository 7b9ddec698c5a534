//! A process's share of an address: the QPNs that it owns, and the services that it listens for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;

use rustix::net::{AddressFamily, SocketType};

use crate::error::Error;
use crate::net::device_fd::DeviceFd;
use crate::net::mailbox::{self, Slot};
use crate::net::options::Options;
use crate::net::socket::Socket;
use crate::net::start_lock::StartLock;
use crate::net::steering::Table;
use crate::net::unix_name::{self, Directory, Role};
use crate::random;

/// The number of slots of an address: one less than 8 bits allow, because the last would own the QPN of multicast
/// (0xffffff).
pub(crate) const SLOTS: u8 = u8::MAX;

/// Attempts to claim a slot or service that another process claims at the same time.
const MAX_ATTEMPTS: u32 = 64;

const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// Waits for a random time after two processes claimed the same slot and both released it, so that their next attempts do
/// not collide.
fn back_off(attempt: u32) {
    for _ in 0..random::number() % (1 << attempt.min(10)) {
        std::thread::yield_now();
    }
}

impl Slot {
    /// Claims the lowest slot that is free on all addresses of a device, and opens a socket for each address. The slot has
    /// the same number on all of them, because queue pairs belong to the device and not to an address. The start-up lock
    /// is held meanwhile, so that the sockets are bound in the order of the slots, which [`crate::steering`] relies on.
    pub fn open_all(
        addresses: &[SocketAddr],
        options: &Options,
    ) -> Result<Vec<(Self, Socket)>, Error> {
        // All processes use the same order, so that two cannot deadlock.
        let mut order: Vec<_> = addresses.to_vec();
        order.sort_unstable();
        let locks: Vec<_> =
            order.iter().map(|address| StartLock::acquire(*address)).collect::<Result<_, _>>()?;
        let mut opened = Vec::new();
        for slot in Self::claim_all(addresses)? {
            let socket = Socket::open(slot.address(), options)?;
            slot.attach(&socket)?;
            opened.push((slot, socket));
        }
        drop(locks);
        Ok(opened)
    }

    /// Claims the lowest slot that is free on all addresses, without sockets. The scope of an IPv6 link-local address and
    /// the port are part of the address.
    pub(crate) fn claim_all(addresses: &[SocketAddr]) -> Result<Vec<Self>, Error> {
        let full = Error::NoFreeSlot { address: addresses.first().copied().unwrap_or(UNSPECIFIED) };
        for attempt in 0..MAX_ATTEMPTS {
            let mut free = [true; SLOTS as usize];
            for address in addresses {
                for slot in Directory::read(*address)?.slots() {
                    if let Some(free) = free.get_mut(usize::from(slot)) {
                        *free = false;
                    }
                }
            }
            let Some(number) = (0..SLOTS).find(|&number| free[usize::from(number)]) else {
                return Err(full);
            };
            let bind_index = free.iter().filter(|&&free| !free).count() as u8;
            let slots = addresses
                .iter()
                .map(|&address| Self::bind(address, number, bind_index))
                .collect::<Result<Vec<_>, Error>>()?;
            // Each process binds its name before it reads the directory, so at least one of two that claim the same slot
            // sees the other. Both release it, because neither knows whether it was seen.
            let mut exclusive = true;
            for address in addresses {
                exclusive &=
                    Directory::read(*address)?.claims(Role::Slot { slot: number, bind_index }) == 1;
            }
            if exclusive {
                return Ok(slots);
            }
            drop(slots);
            back_off(attempt);
        }
        Err(full)
    }

    /// Updates the kernel's steering to the current slots and services of the address; call it when they changed. Returns
    /// false if another process is updating it, and the call must be repeated.
    pub fn steer(&self, socket: &Socket) -> Result<bool, Error> {
        if !socket.features().steering {
            return Ok(true);
        }
        // One at a time, so that an older state does not replace a newer one.
        let Some(_lock) = StartLock::try_acquire(self.address())? else { return Ok(false) };
        self.attach(socket)?;
        Ok(true)
    }

    fn attach(&self, socket: &Socket) -> Result<(), Error> {
        if socket.features().steering {
            let directory = Directory::read(self.address())?;
            let mut table = Table::new(directory.slots().count(), directory.services());
            table.in_order = directory.is_in_order();
            // If the kernel refuses the program, the previous one stays.
            let _ = table.attach(socket.as_fd());
        }
        Ok(())
    }
}

/// A service of the connection manager that this process listens for, until it is dropped or the process ends. Packets
/// that other processes forward to it arrive at the slot.
#[derive(Debug)]
pub struct Service {
    id: u64,
    address: SocketAddr,
    _fd: DeviceFd,
}

impl Service {
    /// Claims a service for the owner of a slot. [`Error::ServiceTaken`] if it already has a listener.
    pub fn claim(address: SocketAddr, id: u64, slot: u8) -> Result<Self, Error> {
        let role = Role::Service { id, slot };
        let taken = Error::ServiceTaken { address, service: id };
        for attempt in 0..MAX_ATTEMPTS {
            if Directory::read(address)?.claims(role) > 0 {
                return Err(taken);
            }
            // A stream socket that does not listen cannot be sent to.
            let fd = DeviceFd::socket(AddressFamily::UNIX, SocketType::STREAM, None)
                .map_err(|error| Error::system("open a Unix socket", error))?;
            mailbox::bind(&fd, &unix_name::new(address, role))?;
            // As in `Slot::claim_all`.
            if Directory::read(address)?.claims(role) == 1 {
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
