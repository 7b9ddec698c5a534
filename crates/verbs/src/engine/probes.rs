//! The probes by which UC and UD senders ask local receivers how far they are: see [`ferroce_device::credit`].

use std::net::SocketAddr;

use ferroce_device::Device;
use ferroce_device::credit::Receiver;
use ferroce_device::credit::probe::{self, Message};

use super::adapter::Adapter;
use super::driver::Driver;
use super::link::Route;
use super::rx::ReceivedPacket;

impl Driver {
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
                let Device { credit, schedule } = &mut self.device;
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
