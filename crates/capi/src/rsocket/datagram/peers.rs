//! Those that a socket has sent to, or heard of.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::time::Instant;

use ferroce::{AddressHandle, Qpn};

use super::super::service::SILENCE;

/// As many are known at a time: whoever can reach the port can make us know one more. The first of them is forgotten for
/// the next, and asked again when it is sent to.
const MOST: usize = 4096;

pub(super) struct Peer {
    /// Which of our queue pairs leads there.
    pub(super) queue: usize,
    /// Bytes of a datagram, at most.
    pub(super) longest: usize,
    /// Its queue pair, when it has told of it.
    pub(super) known: Option<(AddressHandle, Qpn)>,
    /// When it was last known that it is there, or was asked.
    heard: Instant,
}

impl Peer {
    pub(super) fn new(queue: usize, longest: usize) -> Self {
        Self { queue, longest, known: None, heard: Instant::now() }
    }

    /// It is there.
    pub(super) fn hear(&mut self) {
        self.heard = Instant::now();
    }

    /// Its queue pair, to send to. One that has been silent may have been started anew since then, with another: it is
    /// asked by the next datagram, which goes by UDP, and meanwhile taken for there.
    pub(super) fn direct(&mut self) -> Option<(&AddressHandle, Qpn)> {
        if self.heard.elapsed() > SILENCE {
            self.hear();
            return None;
        }
        self.known.as_ref().map(|(address, number)| (address, *number))
    }
}

#[derive(Default)]
pub(super) struct Peers {
    known: HashMap<SocketAddr, Peer>,
    order: VecDeque<SocketAddr>,
}

impl Peers {
    pub(super) fn get(&mut self, at: SocketAddr) -> Option<&mut Peer> {
        self.known.get_mut(&at)
    }

    pub(super) fn add(&mut self, at: SocketAddr, peer: Peer) {
        if self.known.insert(at, peer).is_some() {
            return;
        }
        self.order.push_back(at);
        if self.order.len() > MOST {
            if let Some(first) = self.order.pop_front() {
                self.known.remove(&first);
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests;
