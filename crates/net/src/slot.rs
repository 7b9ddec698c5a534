//! A process's share of an address: the queue pair numbers that are its own, and the services it listens for.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd};

use crate::door::Door;
use crate::error::Error;
use crate::mailbox::{Mailbox, Recipient};
use crate::options::Options;
use crate::receive::{Arrival, ReceiveBatch};
use crate::socket::Socket;

/// How many slots an address has: one less than 8 bits give, for the last would own the queue pair number that stands
/// for multicast.
pub(crate) const SLOTS: u8 = u8::MAX;

const UNSPECIFIED: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A slot of an address: queue pair numbers from `number << 16` on belong to its owner, until it is dropped or the
/// process ends.
#[derive(Debug)]
pub struct Slot {
    number: u8,
    mailbox: Mailbox,
}

impl Slot {
    /// Claims the lowest free slot of an address and opens its socket, one process after the other: the sockets are
    /// then in the order of the slots, which is what [`crate::steering`] goes by.
    pub fn open(address: SocketAddr, options: &Options) -> Result<(Self, Socket), Error> {
        let _door = Door::enter(address)?;
        let slot = Self::claim(address)?;
        let socket = Socket::open(address, options)?;
        Ok((slot, socket))
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
        let _doors = order.iter().map(|one| Door::enter(*one)).collect::<Result<Vec<_>, _>>()?;
        for number in 0..SLOTS {
            let claim = |address: &SocketAddr| Mailbox::claim(*address, Recipient::Slot(number));
            let claimed = addresses.iter().map(claim).collect::<Result<Option<Vec<_>>, _>>()?;
            let Some(mailboxes) = claimed else { continue };
            let open = |mailbox: Mailbox| {
                let socket = Socket::open(mailbox.address(), options)?;
                Ok((Self { number, mailbox }, socket))
            };
            return mailboxes.into_iter().map(open).collect();
        }
        Err(Error::NoFreeSlot { address: addresses.first().copied().unwrap_or(UNSPECIFIED) })
    }

    /// Claims the lowest free slot of an address, without a socket. For an IPv6 link-local address the scope is part of
    /// it, and so is the port.
    pub fn claim(address: SocketAddr) -> Result<Self, Error> {
        for number in 0..SLOTS {
            if let Some(mailbox) = Mailbox::claim(address, Recipient::Slot(number))? {
                return Ok(Self { number, mailbox });
            }
        }
        Err(Error::NoFreeSlot { address })
    }

    /// The high 8 bits of the owner's queue pair numbers.
    #[inline]
    pub fn number(&self) -> u8 {
        self.number
    }

    /// The address it is a slot of.
    pub fn address(&self) -> SocketAddr {
        self.mailbox.address()
    }

    /// Forwards packets that reached this process to the one they belong to, at once or not at all:
    /// [`Error::NoOwner`] and [`Error::OwnerBusy`] mean that they are dropped, as a network would.
    ///
    /// A message whose packets all have one owner is best forwarded whole: few messages fit into a mailbox
    /// (`net.unix.max_dgram_qlen`, often 10), whatever their size. For a single packet of it, `arrival.segment` and
    /// `arrival.length` need not be changed: only the data's own length counts.
    pub fn forward(&self, to: Recipient, arrival: &Arrival, data: &[u8]) -> Result<(), Error> {
        self.mailbox.forward(to, arrival, data)
    }

    /// Receives what other processes forwarded to this slot, with what the kernel told them about it, and returns how
    /// many messages that are: none when nothing waits.
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

/// A service of the connection manager that this process listens for, until it is dropped or the process ends.
#[derive(Debug)]
pub struct Service {
    id: u64,
    mailbox: Mailbox,
}

impl Service {
    /// Claims a service on an address: [`Error::ServiceTaken`] if it has a listener.
    pub fn claim(address: SocketAddr, id: u64) -> Result<Self, Error> {
        match Mailbox::claim(address, Recipient::Service(id))? {
            Some(mailbox) => Ok(Self { id, mailbox }),
            None => Err(Error::ServiceTaken { address, service: id }),
        }
    }

    /// The service identifier.
    pub fn id(&self) -> u64 {
        self.id
    }

    /// The address it listens on.
    pub fn address(&self) -> SocketAddr {
        self.mailbox.address()
    }

    /// As [`Slot::receive`].
    pub fn receive(&self, batch: &mut ReceiveBatch) -> Result<usize, Error> {
        self.mailbox.receive(batch)
    }

    /// As [`Slot::rejected`].
    pub fn rejected(&self) -> u64 {
        self.mailbox.rejected()
    }
}

impl AsFd for Service {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.mailbox.fd()
    }
}
