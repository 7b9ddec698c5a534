//! The probes by which UC and UD senders ask local receivers how far they are: see [`ferroce_device::credit`].

use std::net::SocketAddr;

use ferroce_device::credit::Receiver;
use ferroce_device::credit::probe::{self, Message};
use ferroce_proto::time::Instant;
use ferroce_wire::number::Qpn;

use super::adapter::Adapter;
use super::driver::Driver;
use super::link::Route;
use super::port::Port;
use super::queue_pair::Inner;
use super::rx::ReceivedPacket;

impl Inner {
    /// The local process that the next packet of a QP goes to, if that packet is not acknowledged.
    pub(super) fn local_receiver_of_next(&self, port: &Port) -> Option<Receiver> {
        let (destination, route) = self.endpoint.next_unacknowledged()?;
        let host = route.or(self.route)?.destination.ip();
        let process = Receiver::new(host, destination);
        (destination != Qpn::MULTICAST && port.is_here(host)).then_some(process)
    }
}

impl Driver {
    /// Repeats probes or gives them up.
    pub(super) fn expire_probes(&mut self, adapter: &Adapter, now: Instant) {
        if self.credit.next_timer().is_none_or(|due| due > now) {
            return;
        }
        let send = |(route, packet): (Route, [u8; probe::LENGTH])| {
            adapter.outbox.push(route, packet.into())
        };
        self.credit.expire(now, &mut self.schedule, send);
    }

    /// Handles a probe to this process, or the acknowledgement of one of its own.
    pub(super) fn handle_probe(
        &mut self,
        adapter: &Adapter,
        received: &ReceivedPacket<'_>,
        local: SocketAddr,
    ) {
        let source = received.info.source.ip();
        match Message::parse(received.packet).filter(|_| adapter.port.is_here(source)) {
            Some(Message::Probe { number, sender }) => {
                let links = &adapter.port.links;
                let index = links.iter().position(|link| link.address == local).unwrap_or(0);
                let route = Route {
                    link: index as u8,
                    sender: 0,
                    flow_label: 0,
                    destination: SocketAddr::new(source, local.port()),
                    traffic_class: 0,
                    hop_limit: None,
                };
                let ack = probe::ack(number, sender, adapter.tables.slot());
                adapter.outbox.push(route, ack.into());
            }
            Some(Message::Ack { number, sender }) => {
                let Self { credit, schedule, .. } = self;
                let receiver = Receiver::new(source, sender);
                let next = credit.handle_probe_ack(receiver, number, received.now, schedule);
                if let Some((route, packet)) = next {
                    adapter.outbox.push(route, packet.into());
                }
            }
            None => {}
        }
    }
}
