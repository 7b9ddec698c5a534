//! ICMP port unreachable: the peer's host has no process with an open device.

use ferroce_device::tuning::tx::MAX_REPORTS_PER_SOCKET;
use ferroce_sys::{Interest, Poller, Socket};
use ferroce_wire::address::Gid;
use ferroce_wire::transport::{Bth, Deth};

use super::adapter::{Adapter, now};
use super::link::Route;
use super::management::MANAGEMENT;

/// The bytes read of the packet quoted by a report: enough to identify it.
const QUOTED: usize = 64;

impl Adapter {
    /// Watches the send sockets for reports and returns their indices.
    pub(super) fn watch_reports(&self, poller: &mut Poller) -> Vec<usize> {
        self.sources().map(|(_, socket)| poller.watch(socket, Interest::Nothing)).collect()
    }

    /// Reads the reports of all sockets and notifies the connections and QPs concerned.
    pub(super) fn handle_reports(&self) {
        let mut quoted = [0; QUOTED];
        // The last reported packet of each QP.
        let mut reported: Vec<(Route, Bth)> = Vec::new();
        for (route, socket) in self.sources() {
            for _ in 0..MAX_REPORTS_PER_SOCKET {
                let Some((destination, length)) = socket.take_port_unreachable(&mut quoted) else {
                    break;
                };
                let quoted = &quoted[..length];
                let Some((bth, rest)) = Bth::split(quoted) else { continue };
                let route = Route { destination, ..route };
                if bth.destination == MANAGEMENT {
                    let mad = rest.get(Deth::LEN..).unwrap_or_default();
                    let peer = Gid::from_ip(destination.ip());
                    let connections = &self.management.connections;
                    connections.handle_unreachable(self.mads(), route.link, peer, mad);
                    continue;
                }
                // Unreachable responses are ignored: the requester repeats its request, or is gone.
                if !bth.opcode.info().is_some_and(|info| info.request) {
                    continue;
                }
                let same = |one: &&mut (Route, Bth)| {
                    one.0 == route && one.1.destination == bth.destination
                };
                match reported.iter_mut().find(same) {
                    Some(one) => one.1 = bth,
                    None => reported.push((route, bth)),
                }
            }
        }
        if !reported.is_empty() {
            self.end_unreachable(&reported);
        }
    }

    /// Notifies the QPs that sent these packets.
    fn end_unreachable(&self, reported: &[(Route, Bth)]) {
        for core in self.tables.queue_pairs() {
            let mut inner = core.inner.lock();
            let Some(route) = inner.route.filter(|_| !inner.destroyed) else { continue };
            let peer = inner.endpoint.attributes().destination;
            let found = reported.iter().find(|(to, bth)| {
                (to.link, to.sender, to.destination)
                    == (route.link, route.sender, route.destination)
                    && peer == Some(bth.destination)
            });
            let Some((_, bth)) = found else { continue };
            let now = now();
            inner.endpoint.handle_unreachable(now, bth.psn);
            self.publish(&core, &mut inner, now);
            drop(inner);
            self.kick(&core);
        }
    }

    /// The send sockets, each with the fields its routes have in common.
    fn sources(&self) -> impl Iterator<Item = (Route, &Socket)> {
        self.port.links.iter().enumerate().flat_map(|(index, link)| {
            link.senders.iter().map(move |(sender, socket)| {
                let route = Route {
                    link: index as u8,
                    sender,
                    flow_label: 0,
                    destination: link.address,
                    traffic_class: 0,
                    hop_limit: None,
                };
                (route, socket)
            })
        })
    }
}
