//! The way of a host to the fabric, and back: whole frames.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::{
    Burst, Committed, Device, Host, Link, Outgoing, Room, TransmitQueue, Tx, admit,
};
use ferroce_proto::time::Instant;
use ferroce_wire::ip::Ecn;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::{ICRC_LEN, Packet};

use super::shared::{Core, Served};
use crate::rdma::frame::{ECT0, ReceivedPacket, emit};
use crate::rdma::layout::FIRST_QPN;

/// The frames of a host that the fabric has not taken yet, in order.
#[derive(Debug)]
pub(in crate::rdma) struct Wire {
    address: Ipv4Addr,
    /// The ECN bits of its frames.
    ecn: Ecn,
    /// The UDP source ports of its QPs, by index. Others derive from the QPN.
    ports: Vec<u16>,
    frames: VecDeque<Vec<u8>>,
    /// Memory of frames that were taken, for the next ones.
    spare: Vec<Vec<u8>>,
    /// The frames that it takes before it is full, as a send buffer is.
    capacity: usize,
    /// Where the next packet is written, with room for its ICRC.
    buffer: Vec<u8>,
    taken: u64,
}

impl Wire {
    pub(super) fn new(address: Ipv4Addr) -> Self {
        Self::with_ports(address, ECT0, Vec::new(), 16)
    }

    pub(in crate::rdma) fn with_ports(
        address: Ipv4Addr,
        ecn: Ecn,
        ports: Vec<u16>,
        capacity: usize,
    ) -> Self {
        let (frames, spare, buffer) = (VecDeque::new(), Vec::new(), vec![0; 8192]);
        Self { address, ecn, ports, frames, spare, capacity, buffer, taken: 0 }
    }

    /// Takes the next frame in exchange for the memory of another. Returns whether there was one.
    pub(in crate::rdma) fn pop(&mut self, out: &mut Vec<u8>) -> bool {
        let Some(frame) = self.frames.pop_front() else { return false };
        self.spare.push(std::mem::replace(out, frame));
        true
    }

    fn has_room(&self) -> bool {
        self.frames.len() < self.capacity
    }

    /// Makes a frame of the packet in the buffer.
    fn add(&mut self, from: Qpn, to: Ipv4Addr, length: usize) {
        if let Ok(packet) = Packet::parse(&self.buffer[..length + ICRC_LEN]) {
            // The frame computes it.
            let packet = Packet { icrc: None, ..packet };
            let mut frame = self.spare.pop().unwrap_or_default();
            let index = from.0.wrapping_sub(FIRST_QPN);
            let port = self.ports.get(index as usize).copied();
            let port = port.unwrap_or(0xc000 | index as u16 & 0x3fff);
            emit(&packet, self.address, to, port, self.ecn, &mut frame);
            self.frames.push_back(frame);
        }
    }
}

impl<H: Host<State = Served, Route = Ipv4Addr>> Tx<H> for Wire {
    fn room(&mut self) -> Room {
        Room::Some
    }

    fn space(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }

    fn commit(&mut self, _: &H, served: &mut Served, packet: &Outgoing<'_, Ipv4Addr>) -> Committed {
        if let Some(to) = packet.route.or(served.queue_pair.route) {
            self.add(packet.number, to, packet.length);
        }
        Committed { packets: 1, has_room: self.has_room() }
    }
}

impl<H: Host<State = Served, Route = Ipv4Addr>> Link<H> for Wire {
    type Guard = ();

    fn guard(&self) {}

    fn unblock(&mut self, _: &H) -> bool {
        self.has_room()
    }

    fn flush(&mut self, _: &H) -> bool {
        true
    }

    fn push(&mut self, _: &H, route: Ipv4Addr, packet: &[u8]) -> bool {
        self.buffer[..packet.len()].copy_from_slice(packet);
        self.add(Qpn(FIRST_QPN), route, packet.len());
        self.has_room()
    }

    fn own_taken(&mut self) -> &mut u64 {
        &mut self.taken
    }
}

/// A burst of one frame.
pub(in crate::rdma) struct SingleFrame<'a>(pub(in crate::rdma) Option<&'a ReceivedPacket<'a>>);

impl<H> Burst<H> for SingleFrame<'_>
where
    H: for<'a> Host<Handle = Arc<Core>, State = Served, Arrival<'a> = ReceivedPacket<'a>>,
    H::Queue: TransmitQueue<H>,
{
    fn destination(&mut self, _: &H) -> Option<Qpn> {
        self.0.map(|received| received.packet.bth.destination)
    }

    fn forward(&mut self, _: &H, _: Qpn) {
        self.0 = None;
    }

    fn deliver(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        core: &Arc<Core>,
        served: &mut Served,
        now: Instant,
    ) -> bool {
        let received = self.0.take().filter(|received| admit(host, &received.packet.bth));
        received.is_some_and(|received| {
            device.arrive(host, core, served, received, &mut host.memory(now))
        })
    }

    fn stray(&mut self, device: &mut Device<H>, host: &H, _: Instant) -> bool {
        let received = self.0.take().filter(|received| admit(host, &received.packet.bth));
        received.is_some_and(|received| device.arrive_elsewhere(host, received))
    }
}
