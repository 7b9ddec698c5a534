//! The peers that a socket has sent to or received from.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use ferroce::{AddressHandle, Qpn};

use crate::service::KEEPALIVE_INTERVAL;

/// Maximum number of known peers: anyone who can reach the port can add one. The oldest is removed for the next, and
/// announced to again when the program sends to it.
const MAX_PEERS: usize = 4096;

pub(crate) struct Peer {
    /// Index of the local QP whose route leads to the peer.
    pub(crate) queue: usize,
    /// Maximum length of a datagram.
    pub(crate) max_payload: usize,
    /// Its AH and QPN, once it announced them.
    pub(crate) remote: Option<(AddressHandle, Qpn)>,
    /// When it was last heard, or last sent an announcement.
    last_heard: Instant,
}

impl Peer {
    pub(crate) fn new(queue: usize, max_payload: usize, now: Instant) -> Self {
        Self { queue, max_payload, remote: None, last_heard: now }
    }

    /// Records that the peer was heard.
    pub(crate) fn hear(&mut self, now: Instant) {
        self.last_heard = now;
    }

    /// Whether the next datagram has to announce our QPN by UDP. A peer that was silent may have been restarted with
    /// another QPN. One announcement is sent per interval; meanwhile the known QPN is used.
    fn needs_announcement(&mut self, now: Instant) -> bool {
        let silent = now.saturating_duration_since(self.last_heard) > KEEPALIVE_INTERVAL;
        if silent {
            self.hear(now);
        }
        silent || self.remote.is_none()
    }

    /// The remote QP to send to, or `None` if the next datagram has to be sent by UDP.
    pub(crate) fn direct(&mut self, now: Instant) -> Option<(&AddressHandle, Qpn)> {
        if self.needs_announcement(now) {
            return None;
        }
        self.remote.as_ref().map(|(address, number)| (address, *number))
    }
}

#[derive(Default)]
pub(crate) struct Peers {
    known: HashMap<SocketAddr, Peer>,
    order: VecDeque<SocketAddr>,
}

impl Peers {
    pub(crate) fn get(&mut self, address: SocketAddr) -> Option<&mut Peer> {
        self.known.get_mut(&address)
    }

    pub(crate) fn add(&mut self, address: SocketAddr, peer: Peer) {
        if self.known.insert(address, peer).is_some() {
            return;
        }
        self.order.push_back(address);
        if self.order.len() > MAX_PEERS {
            if let Some(oldest) = self.order.pop_front() {
                self.known.remove(&oldest);
            }
        }
    }

    pub(crate) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn address(number: usize) -> SocketAddr {
        let [_, _, high, low] = (number as u32).to_be_bytes();
        ([10, 0, high, low], 1).into()
    }

    fn peer(max_payload: usize) -> Peer {
        Peer::new(0, max_payload, Instant::now())
    }

    #[test]
    fn the_oldest_peer_is_removed_at_the_limit() {
        let mut peers = Peers::default();
        for number in 0..2 * MAX_PEERS {
            peers.add(address(number), peer(number));
            assert!(peers.known.len() <= MAX_PEERS && peers.order.len() == peers.known.len());
        }
        assert!(peers.get(address(MAX_PEERS - 1)).is_none());
        let oldest = peers.get(address(MAX_PEERS));
        assert_eq!(oldest.map(|peer| peer.max_payload), Some(MAX_PEERS));
        assert!(peers.get(address(2 * MAX_PEERS - 1)).is_some());
    }

    #[test]
    fn adding_a_known_peer_replaces_it() {
        let mut peers = Peers::default();
        for max_payload in 0..3 {
            peers.add(address(1), peer(max_payload));
        }
        assert_eq!((peers.known.len(), peers.order.len()), (1, 1));
        assert_eq!(peers.get(address(1)).map(|peer| peer.max_payload), Some(2));
    }

    #[test]
    fn clearing_forgets_all_peers() {
        let mut peers = Peers::default();
        peers.add(address(1), peer(1));
        peers.clear();
        assert!(peers.get(address(1)).is_none() && peers.order.is_empty());
    }

    #[test]
    fn a_peer_without_a_qpn_is_sent_announcements() {
        let start = Instant::now();
        let mut peer = Peer::new(0, 1, start);
        assert!(peer.needs_announcement(start));
        assert!(peer.direct(start).is_none());
    }

    #[test]
    fn silence_is_measured_from_the_last_datagram_or_announcement() {
        let start = Instant::now();
        let mut peer = Peer::new(0, 1, start);
        // An announcement because of silence restarts the interval.
        let is_silent = |peer: &mut Peer, now: Instant| {
            let before = peer.last_heard;
            peer.needs_announcement(now);
            peer.last_heard != before
        };
        assert!(!is_silent(&mut peer, start + KEEPALIVE_INTERVAL));
        peer.hear(start + Duration::from_secs(2));
        assert!(!is_silent(&mut peer, start + Duration::from_secs(5)));
        let late = start + Duration::from_millis(5001);
        assert!(is_silent(&mut peer, late));
        assert!(!is_silent(&mut peer, late + KEEPALIVE_INTERVAL));
    }
}
