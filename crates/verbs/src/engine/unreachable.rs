//! ICMP port unreachable: the peer's host has no process with an open device.

use ferroce_links::route::Route;
use ferroce_wire::address::Gid;
use ferroce_wire::transport::{Bth, Deth};

use super::adapter::Adapter;
use super::management::{CmLink, MANAGEMENT};
use crate::time::now;

impl Adapter {
    /// Reads the reports of all sockets and notifies the connections and QPs concerned.
    pub(super) fn handle_reports(&self) {
        let mut reported: Vec<(Route, Bth)> = Vec::new();
        self.port.links.read_reports(|route, quoted| {
            let Some((bth, rest)) = Bth::split(quoted) else { return };
            if bth.destination == MANAGEMENT {
                let mad = rest.get(Deth::LEN..).unwrap_or_default();
                let peer = Gid::from_ip(route.destination.ip());
                let (connections, transport) = (&self.management.connections, self.mads());
                // A quote of anything else is forged, or belongs to another process.
                let link = CmLink { connections, transport, index: route.link };
                link.act(|manager, now| manager.cm.handle_unreachable(now, peer, mad).ok());
                connections.deliver_events(transport);
            } else if bth.opcode.info().is_some_and(|info| info.request) {
                // Unreachable responses are ignored: the requester repeats its request, or is gone.
                reported.push((route, bth));
            }
        });
        if reported.is_empty() {
            return;
        }
        for core in self.tables.queue_pairs() {
            let mut inner = core.inner.lock();
            let Some(route) = inner.route.filter(|_| !inner.destroyed) else { continue };
            let peer = inner.endpoint.attributes().destination;
            // The last one.
            let found = reported.iter().rfind(|(to, bth)| {
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
}
