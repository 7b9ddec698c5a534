//! Receiving datagrams: the checks of a packet before the device core gives it to its QP.

use std::iter::Peekable;
use std::net::SocketAddr;

use ferroce_device::{Burst, Device, Refusal, admit, destination};
use ferroce_proto::time::Instant;
use ferroce_sys::{Recipient, RxDatagram, RxInfo};
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;
use ferroce_wire::udp_headers::Headers;

use super::histories::{Histories, History};
use crate::embedder::Embedder;
use crate::faults::{FaultInjector, Faults};
use crate::packet::ReceivedPacket;

/// The process that owns a QPN.
fn owner_of(number: Qpn) -> Recipient {
    Recipient::Slot((number.0 >> 16) as u8)
}

/// Receives datagrams, after faults are injected: those of sockets, and with injected faults also the records of rings.
#[derive(Debug)]
pub struct DatagramReceiver {
    histories: Histories,
    pub(crate) faults: Option<FaultInjector>,
}

impl DatagramReceiver {
    /// A receiver that injects these faults.
    pub fn new(faults: Option<Faults>) -> Self {
        Self { histories: Histories::default(), faults: faults.map(FaultInjector::new) }
    }

    /// Receives the packets of a datagram that arrived at the address `local`. Returns whether there were completions.
    #[inline]
    pub fn receive<H: Embedder>(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        datagram: &RxDatagram<'_>,
        local: SocketAddr,
        now: Instant,
    ) -> bool {
        let Self { histories, faults } = self;
        let may_be_queued = faults.is_some();
        let mut completed = false;
        let mut receive = |datagram: &RxDatagram<'_>| {
            let info = datagram.info;
            // A mailbox holds few messages, so a datagram whose packets all belong to one process is forwarded whole.
            if let Some(owner) = sole_owner(host, datagram) {
                return host.forward(local, owner, info, datagram.data);
            }
            let destination = SocketAddr::new(info.destination, local.port());
            let mut burst = Segments {
                packets: datagram.packets().enumerate().peekable(),
                info,
                local: &local,
                headers: Headers { source: info.source, destination },
                history: histories.of(info),
                may_be_queued,
            };
            completed |= device.receive(host, &mut burst, now);
        };
        match faults {
            None => receive(datagram),
            Some(faults) => host.faults_injected(faults.inject(datagram, receive)),
        }
        completed
    }
}

/// The other process that all packets of a datagram belong to, if there is one.
fn sole_owner<H: Embedder>(host: &H, datagram: &RxDatagram<'_>) -> Option<Recipient> {
    let mut owners = datagram.packets().map(|packet| {
        destination(packet).filter(|&number| host.tables().is_foreign(number)).map(owner_of)
    });
    let first = owners.next()??;
    owners.all(|owner| owner == Some(first)).then_some(first)
}

/// The packets of one datagram.
struct Segments<'a, I: Iterator<Item = (usize, &'a [u8])>> {
    packets: Peekable<I>,
    info: &'a RxInfo,
    local: &'a SocketAddr,
    headers: Headers,
    history: Option<History<'a>>,
    /// Injected faults lose the origin of a packet.
    may_be_queued: bool,
}

impl<'a, I: Iterator<Item = (usize, &'a [u8])>> Segments<'a, I> {
    /// Takes the next packet, checks it, and passes it to `handle`.
    #[inline]
    fn next<H: Embedder, T>(
        &mut self,
        host: &H,
        now: Instant,
        handle: impl FnOnce(&ReceivedPacket<'_>) -> T,
    ) -> Option<T> {
        let Self { packets, info, local, headers, history, may_be_queued } = self;
        let (index, bytes) = packets.next()?;
        let Ok(packet) = Packet::parse(bytes) else {
            host.refuse(Refusal::Malformed, None);
            return None;
        };
        let Some(identification) = headers.check(bytes, index as u16) else {
            host.received_corrupted(bytes, headers, info, index as u16);
            return None;
        };
        if !admit(host, &packet.bth) {
            return None;
        }
        host.received_from_socket(bytes.len());
        if !history.as_mut().is_none_or(|history| history.accepts(identification, now)) {
            host.received_corrupted(bytes, headers, info, index as u16);
            return None;
        }
        Some(handle(&ReceivedPacket {
            packet: &packet,
            packets: 1,
            bytes,
            headers,
            info,
            local,
            identification,
            may_be_queued: *may_be_queued,
            now,
        }))
    }
}

impl<'a, H: Embedder, I: Iterator<Item = (usize, &'a [u8])>> Burst<H> for Segments<'a, I> {
    #[inline]
    fn destination(&mut self, host: &H) -> Option<Qpn> {
        loop {
            let (_, packet) = self.packets.peek()?;
            if let Some(number) = destination(packet) {
                return Some(number);
            }
            host.refuse(Refusal::Malformed, None);
            self.packets.next();
        }
    }

    fn forward(&mut self, host: &H, number: Qpn) {
        let is_same = |(_, packet): &(usize, &[u8])| destination(packet) == Some(number);
        while let Some((_, packet)) = self.packets.next_if(is_same) {
            host.forward(*self.local, owner_of(number), self.info, packet);
        }
    }

    #[inline]
    fn deliver(
        &mut self,
        device: &mut Device<H>,
        host: &H,
        handle: &H::Handle,
        state: &mut H::State,
        now: Instant,
    ) -> bool {
        let delivered = self.next(host, now, |received| {
            device.arrive(host, handle, state, received, &mut host.memory(now))
        });
        delivered.unwrap_or(false)
    }

    fn stray(&mut self, device: &mut Device<H>, host: &H, now: Instant) -> bool {
        self.next(host, now, |received| device.arrive_elsewhere(host, received)).unwrap_or(false)
    }
}
