//! The send sockets of one address.
//!
//! Routers, bonded links and receive queues of hosts distribute traffic by a hash of addresses and ports, so packets
//! with one UDP source port take one path. QPs therefore use different source ports, one per socket, and keep them, so
//! that their packets stay in order.

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

    /// The first socket: for management datagrams and traffic that needs no port of its own.
    pub fn first(&self) -> &Socket {
        &self.first
    }

    /// The socket with this index, as returned by [`Senders::index_of`]; 0 is the first.
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

    /// The number of open sockets.
    pub(super) fn len(&self) -> usize {
        1 + self.more.iter().map_while(OnceLock::get).count()
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

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use ferroce_test_support as _;

    use super::*;

    fn at(port: u16) -> Option<Socket> {
        let local = SocketAddr::from(([127, 0, 0, 1], port));
        Socket::source(local, &ferroce_sys::Options::default()).ok()
    }

    fn senders() -> Senders {
        Senders::new(at(0xc000).unwrap())
    }

    #[test]
    fn ports_come_from_the_flow_label_or_from_both_numbers() {
        assert_eq!(source_port(0x0_0001, Qpn(5), Qpn(6)), 0xc001);
        // The six high bits of the label are folded into the fourteen low ones.
        assert_eq!(source_port(0xf_c001, Qpn(5), Qpn(6)), 0xc001 ^ 0x3f);
        assert_eq!(source_port(0, Qpn(0x11), Qpn(0x12)), 0xc000 + 0x11 * 0x12);
        let (one, other) = (Qpn(0x01_2345), Qpn(0x02_6789));
        assert_eq!(source_port(0, one, other), source_port(0, other, one));
        let ports: HashSet<_> =
            (16..116).map(|n| source_port(0, Qpn(0x1_0000 | n), other)).collect();
        assert!(ports.len() > 80, "{} ports for 100 queue pairs", ports.len());
        assert!(ports.iter().all(|port| SOURCE_PORTS.contains(port)));
    }

    #[test]
    fn sockets_are_opened_when_needed_and_found_again() {
        let senders = senders();
        assert_eq!(senders.len(), 1);
        let index = senders.index_of(0xd123, at);
        assert_eq!((index, senders.len()), (1, 2));
        assert_eq!(senders.get(index).port(), 0xd123);
        assert_eq!(senders.index_of(0xd123, |_| panic!("it is open")), index);
        assert_eq!(senders.index_of(0xd124, at), 2);
    }

    #[test]
    fn a_port_that_is_taken_is_replaced_by_another() {
        let other = at(0xd200).unwrap();
        let senders = senders();
        let index = senders.index_of(other.port(), at);
        let port = senders.get(index).port();
        assert!(port != other.port() && SOURCE_PORTS.contains(&port));
        assert_eq!(senders.index_of(other.port(), |_| panic!("it is open")), index);
    }

    #[test]
    fn there_are_no_more_than_the_most() {
        let senders = senders();
        let indices: Vec<_> = (0..200).map(|n| senders.index_of(0xe000 + n, at)).collect();
        assert_eq!(senders.len(), MAX_SENDERS);
        let used: HashSet<_> = indices.iter().collect();
        assert_eq!(used.len(), MAX_SENDERS, "all of them are used");
        let again: Vec<_> = (0..200).map(|n| senders.index_of(0xe000 + n, at)).collect();
        assert_eq!(indices, again, "a port keeps its socket");
    }

    #[test]
    fn without_another_socket_the_first_does() {
        let senders = senders();
        assert_eq!(senders.index_of(0xe000, |_| None), 0);
        assert_eq!(senders.len(), 1);
    }
}
