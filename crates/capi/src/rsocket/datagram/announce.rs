//! What comes by UDP: who peers are, and their first datagrams. The service's thread sees to it.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;

use ferroce::Qpn;

use super::super::service::Served;
use super::queue::PLACE;
use super::socket::Datagram;
use super::wire::{Announcement, Kind};
use crate::entry::{Errno, Result};

/// Datagrams of one socket that are looked at before those of another.
const AT_ONCE: usize = 64;

impl Served for Datagram {
    fn descriptor(&self) -> RawFd {
        self.udp.fd()
    }

    fn ready(self: Arc<Self>) {
        for _ in 0..AT_ONCE {
            let mut room = [0; PLACE];
            match self.udp.receive(&mut room) {
                Ok((length, from)) => {
                    // One that was cut is none of ours. What cannot be taken is lost, as any datagram may be.
                    if let Some(datagram) = room.get(..length) {
                        let _ = self.came(datagram, from);
                    }
                }
                Err(Errno(libc::EAGAIN)) => return,
                Err(error) => return self.refused(error),
            }
        }
    }
}

impl Datagram {
    /// The peer's system says that nobody is there: the next call is told, as udp(7) has it of sockets that have a peer.
    fn refused(&self, error: Errno) {
        let mut state = self.state();
        if state.peer.is_some() {
            state.error = error.0;
            state.wake();
        }
    }

    fn came(&self, datagram: &[u8], from: SocketAddr) -> Result<()> {
        let Some((said, data)) = Announcement::read(datagram, from.ip()) else { return Ok(()) };
        let local = self.udp.local()?;
        let mut state = self.state();
        if state.peer.is_some_and(|peer| peer != from) {
            return Ok(()); // It came before there was a peer.
        }
        let (peer, queue) = state.meet(local, from)?;
        peer.hear();
        let number = Qpn(said.queue_pair);
        if peer.known.as_ref().is_none_or(|(_, known)| *known != number) {
            peer.known = Some((queue.address(from.ip())?, number));
        }
        if said.kind == Kind::Data {
            let answer = Announcement { kind: Kind::Answer, queue_pair: queue.number().0 };
            let header = answer.write(queue.local());
            // One that is lost is asked for again by the next datagram.
            let _ = self.udp.send(&[&header], from);
            state.hold(from, data);
        }
        Ok(())
    }
}
