//! The send sockets of one address.
//!
//! Routers, bonded links and receive queues of hosts distribute traffic by a hash of addresses and ports, so packets
//! with one UDP source port take one path. QPs therefore use different source ports, one per socket, and keep them, so
//! that their packets stay in order.

#[cfg(test)]
mod tests;

use std::net::SocketAddr;
use std::sync::OnceLock;

use ferroce_device::tuning::tx::MAX_SENDERS;
use ferroce_sync::Mutex;
use ferroce_sys::{SOURCE_PORTS, Socket};
use ferroce_wire::number::Qpn;

/// The send sockets of one address. The first is opened with the device, the others when a QP needs them.
#[derive(Debug)]
pub struct Senders {
    first: Socket,
    /// The further sockets, each with the port that was requested; the actual port may differ.
    more: [OnceLock<(u16, Socket)>; MAX_SENDERS - 1],
    /// Held while a socket is added.
    growing: Mutex<()>,
}

impl Senders {
    /// One socket.
    pub fn new(first: Socket) -> Self {
        let more = [const { OnceLock::new() }; MAX_SENDERS - 1];
        Self { first, more, growing: Mutex::default() }
    }

    /// The socket with this index, as returned by the lookup of a source port; 0 is the first, for management datagrams and traffic
    /// that needs no port of its own.
    #[inline]
    pub fn get(&self, index: u8) -> &Socket {
        let behind = usize::from(index).checked_sub(1).and_then(|index| self.more.get(index));
        behind.and_then(OnceLock::get).map_or(&self.first, |(_, socket)| socket)
    }

    /// The index of the socket for packets from this source port: the socket opened for it, a new one at this port or
    /// the next free one, or, if the maximum is reached, one of the existing. The same port always gives the same
    /// socket.
    pub(super) fn index_of(&self, port: u16, open: impl FnOnce(u16) -> Option<Socket>) -> u8 {
        if let Some(index) = self.find(port) {
            return index;
        }
        let _growing = self.growing.lock();
        if let Some(index) = self.find(port) {
            return index;
        }
        let Some(free) = self.more.iter().position(|one| one.get().is_none()) else { return 0 };
        // Without a free descriptor or port, the first socket is used.
        let Some(socket) = open(port) else { return 0 };
        self.more[free].get_or_init(|| (port, socket));
        free as u8 + 1
    }

    fn find(&self, port: u16) -> Option<u8> {
        if port == self.first.port() {
            return Some(0);
        }
        let mut opened = self.more.iter().map_while(OnceLock::get);
        let found = opened.position(|&(wanted, _)| wanted == port).map(|index| index + 1);
        let full = self.more.last().is_some_and(|last| last.get().is_some());
        let shared = full.then(|| usize::from(port) % MAX_SENDERS);
        found.or(shared).map(|index| index as u8)
    }

    /// The open sockets with their indices.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u8, &Socket)> {
        let more = self.more.iter().map_while(OnceLock::get).map(|(_, socket)| socket);
        (0..).zip(std::iter::once(&self.first).chain(more))
    }
}

/// The source port of packets between two QPs: from the flow label if there is one, otherwise from both QPNs. Linux
/// computes it the same way, so both directions of a connection use the same port.
pub(super) fn source_port(flow_label: u32, local: Qpn, remote: Qpn) -> u16 {
    const BITS_20: u64 = (1 << 20) - 1;
    let label = match u64::from(flow_label) & BITS_20 {
        0 => {
            let product = u64::from(local.0) * u64::from(remote.0);
            let folded = product ^ product >> 20;
            (folded ^ folded >> 40) & BITS_20
        }
        label => label,
    };
    SOURCE_PORTS.start() | ((label ^ label >> 14) & 0x3fff) as u16
}

/// The first port to try for the first socket.
pub fn first_port(mut address: SocketAddr) -> SocketAddr {
    address.set_port(*SOURCE_PORTS.start());
    address
}
