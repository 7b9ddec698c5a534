//! Datagrams received by UDP: announcements of peers, and the first datagrams of their programs. Handled by the service
//! thread.

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Instant;

use ferroce::Qpn;

use super::queue::SLOT_BYTES;
use super::socket::DatagramSocket;
use super::wire::{Announcement, Kind};
use crate::error::{Errno, Result};
use crate::service::Served;

/// Datagrams of one socket that are received before other sockets are handled.
const MAX_DATAGRAMS_PER_PASS: usize = 64;

impl Served for DatagramSocket {
    fn descriptor(&self) -> RawFd {
        self.udp.fd()
    }

    fn handle_ready(self: Arc<Self>) {
        for _ in 0..MAX_DATAGRAMS_PER_PASS {
            let mut buffer = [0; SLOT_BYTES];
            match self.udp.receive(&mut buffer) {
                Ok((length, from)) => {
                    // A truncated datagram is not from an rsocket. If the peer cannot be added, the datagram is lost,
                    // as any datagram may be.
                    if let Some(datagram) = buffer.get(..length) {
                        let _ = self.handle_datagram(datagram, from);
                    }
                }
                Err(Errno(libc::EAGAIN)) => return,
                Err(error) => return self.report(error),
            }
        }
    }
}

impl DatagramSocket {
    /// Reports an ICMP error, such as a closed port, to the next call, as udp(7) specifies for connected sockets.
    fn report(&self, error: Errno) {
        let mut state = self.state();
        if state.peer.is_some() {
            state.error = error.0;
            state.wake();
        }
    }

    fn handle_datagram(&self, datagram: &[u8], from: SocketAddr) -> Result<()> {
        let Some((announcement, data)) = Announcement::read(datagram, from.ip()) else {
            return Ok(());
        };
        let local = self.udp.local()?;
        let mut state = self.state();
        if state.peer.is_some_and(|peer| peer != from) {
            return Ok(()); // It arrived before the socket was connected.
        }
        let (peer, queue) = state.peer_at(local, from)?;
        peer.hear(Instant::now());
        let number = Qpn(announcement.queue_pair);
        if peer.remote.as_ref().is_none_or(|(_, known)| *known != number) {
            peer.remote = Some((queue.address_handle(from.ip())?, number));
        }
        if announcement.kind == Kind::Data {
            let reply = Announcement { kind: Kind::Reply, queue_pair: queue.number().0 };
            let header = reply.write(queue.local());
            // If the reply is lost, the peer's next datagram requests another.
            let _ = self.udp.send(&[&header], from);
            state.keep_copy(from, data);
        }
        Ok(())
    }
}
