//! ICMP port unreachable: the peer's host has no process with an open device.

use ferroce_device::tuning::tx::MAX_REPORTS_PER_SOCKET;
use ferroce_sys::{Interest, Poller};

use super::addresses::Addresses;
use crate::route::Route;

/// The bytes read of the packet quoted by a report: enough to identify it.
const QUOTED: usize = 64;

impl Addresses {
    /// Watches the send sockets for reports and returns their indices.
    pub fn watch_reports(&self, poller: &mut Poller) -> Vec<usize> {
        let sockets = self.send_sockets();
        sockets.map(|(_, socket)| poller.watch(socket, Interest::Nothing)).collect()
    }

    /// Reads the reports of all send sockets. Calls `each` with the route of each packet that did not arrive, and its first
    /// bytes from the BTH on.
    pub fn read_reports(&self, mut each: impl FnMut(Route, &[u8])) {
        let mut quoted = [0; QUOTED];
        for (route, socket) in self.send_sockets() {
            for _ in 0..MAX_REPORTS_PER_SOCKET {
                let Some((destination, length)) = socket.take_port_unreachable(&mut quoted) else {
                    break;
                };
                each(Route { destination, ..route }, &quoted[..length]);
            }
        }
    }
}
