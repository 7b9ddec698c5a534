//! The UD queue pair of one local address, with slots to send from and to receive into.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce::cm::{CmId, EventChannel, EventKind, PortSpace};
use ferroce::{
    AccessFlags, AddressHandle, AddressVector, Capabilities, Data, Gid, MemoryRegion,
    ProtectionDomain, QKey, Qpn, QueuePair, QueuePairOptions, ReceiveRequest, ServiceType, Status,
    WorkId,
};

use super::wire::SourceHeader;
use crate::completions::Completions;
use crate::error::{Errno, Result};
use crate::settings::Settings;

/// Length of a slot, and thereby of a datagram with its header. rdma-core uses the same length, and no peer sends more.
pub(crate) const SLOT_BYTES: usize = 2048;
/// Length of the GRH that a device writes before each datagram (IBA 11.4.1.2).
const GRH_BYTES: usize = 40;
/// Length of a receive slot.
const RECEIVE_SLOT_BYTES: usize = GRH_BYTES + SLOT_BYTES;
/// The Q_Key of all QPs in the UDP port space (`RDMA_UDP_QKEY`).
const UDP_QKEY: QKey = QKey(0x0123_4567);
/// The usual initial hop limit of IP.
const HOP_LIMIT: u8 = 64;

const SEND: WorkId = WorkId(u64::MAX);

/// The route to a peer: the local address it starts from, and the payload of a packet.
pub(crate) struct Route {
    id: CmId,
    /// The channel of the id's events.
    _channel: EventChannel,
    pub(crate) local: IpAddr,
    pub(crate) packet_bytes: usize,
}

impl Route {
    /// Finds the route from a local address, or from any if it is unspecified.
    pub(crate) fn find(from: IpAddr, to: SocketAddr) -> Result<Self> {
        let channel = EventChannel::from_env()?;
        let id = CmId::new(&channel, PortSpace::Udp)?;
        let source = Some(SocketAddr::new(from, 0)).filter(|_| !from.is_unspecified());
        id.resolve_address(source, to, Duration::ZERO)?;
        expect_resolved(&channel)?;
        id.resolve_route(Duration::ZERO)?;
        expect_resolved(&channel)?;
        let local = id.local_address().ok_or(Errno(libc::ENODEV))?.ip();
        let path = id.path_mtu().bytes().unwrap_or(0);
        let device = id.context().and_then(|context| context.mtu().bytes()).unwrap_or(0);
        Ok(Self { id, _channel: channel, local, packet_bytes: path.min(device) })
    }

    fn source_index(&self) -> u8 {
        self.id.source_index().unwrap_or(0)
    }
}

/// Takes the event of a resolution, which is available immediately: the kernel knows the routes.
fn expect_resolved(channel: &EventChannel) -> Result<()> {
    match channel.try_event()?.map(|event| event.kind) {
        Some(EventKind::AddressResolved | EventKind::RouteResolved) => Ok(()),
        Some(EventKind::AddressError(error) | EventKind::RouteError(error)) => Err(error.into()),
        _ => Err(Errno(libc::ENETUNREACH)),
    }
}

/// A received datagram in its slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct SlotDatagram {
    slot: usize,
    /// Offset of the payload in the receive buffer.
    start: usize,
    pub(crate) length: usize,
}

/// Parses the datagram of `length` bytes in a slot, GRH included. Returns `None` if its header is malformed.
fn parse_slot(
    slot: usize,
    length: usize,
    read: impl FnOnce(usize, &mut [u8]) -> bool,
) -> Option<(SocketAddr, SlotDatagram)> {
    let length = length.checked_sub(GRH_BYTES)?.min(SLOT_BYTES);
    let start = slot * RECEIVE_SLOT_BYTES + GRH_BYTES;
    let mut header = [0; SourceHeader::MAX_BYTES];
    let header = &mut header[..length.min(SourceHeader::MAX_BYTES)];
    if !read(start, header) {
        return None;
    }
    let (SourceHeader(from), bytes) = SourceHeader::read(header)?;
    Some((from, SlotDatagram { slot, start: start + bytes, length: length - bytes }))
}

pub(crate) struct Queue {
    queue_pair: QueuePair,
    /// The device and the address. Holds a reference to the QP, so it is dropped before the completions.
    route: Route,
    pub(crate) completions: Completions,
    pd: ProtectionDomain,
    send_buffer: MemoryRegion,
    receive_buffer: MemoryRegion,
    /// Number of send slots, the next one, and the number in flight.
    send_slots: usize,
    next_slot: usize,
    in_flight: usize,
}

impl Queue {
    /// Creates the QP and posts all receives.
    pub(crate) fn new(route: Route, settings: &Settings) -> Result<Self> {
        let context = route.id.context().ok_or(Errno(libc::ENODEV))?;
        let (sends, receives) = settings.datagram_queues(SLOT_BYTES as u32);
        let completions = Completions::new(&context, usize::from(sends) + usize::from(receives))?;
        let pd = context.protection_domain();
        let capabilities = Capabilities {
            max_send_wr: sends.into(),
            max_recv_wr: receives.into(),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let options = QueuePairOptions {
            capabilities,
            signal_all: true,
            ..QueuePairOptions::new(ServiceType::UnreliableDatagram, &completions.queue)
        };
        let queue_pair = route.id.create_queue_pair(&pd, &options)?;
        let (send_slots, receive_slots) = (usize::from(sends), usize::from(receives));
        let local = AccessFlags::LOCAL_WRITE;
        let queue = Self {
            queue_pair,
            route,
            completions,
            send_buffer: pd.allocate(send_slots * SLOT_BYTES, local)?,
            receive_buffer: pd.allocate(receive_slots * RECEIVE_SLOT_BYTES, local)?,
            pd,
            send_slots,
            next_slot: 0,
            in_flight: 0,
        };
        for slot in 0..receive_slots {
            queue.post_receive(slot)?;
        }
        Ok(queue)
    }

    /// The local address.
    pub(crate) fn local(&self) -> IpAddr {
        self.route.local
    }

    pub(crate) fn number(&self) -> Qpn {
        self.queue_pair.number()
    }

    /// Creates an AH for a peer's address.
    pub(crate) fn address_handle(&self, to: IpAddr) -> Result<AddressHandle> {
        let vector = AddressVector {
            port: 1,
            source_index: self.route.source_index(),
            destination: Gid::from_ip(to),
            hop_limit: HOP_LIMIT,
            ..AddressVector::default()
        };
        Ok(self.pd.address_handle(&vector)?)
    }

    fn post_receive(&self, slot: usize) -> Result<()> {
        let start = (slot * RECEIVE_SLOT_BYTES) as u64;
        let sge = self.receive_buffer.sge(start, RECEIVE_SLOT_BYTES as u32);
        let request = ReceiveRequest { id: WorkId(slot as u64), sg_list: sge.into() };
        Ok(self.queue_pair.post_receive(request)?)
    }

    pub(crate) fn can_send(&self) -> bool {
        self.in_flight < self.send_slots
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.in_flight == 0
    }

    /// Sends a datagram of these parts, which must fit into a slot. Returns false if no slot is free.
    pub(crate) fn send(&mut self, parts: &[&[u8]], to: &AddressHandle, queue: Qpn) -> Result<bool> {
        if !self.can_send() {
            return Ok(false);
        }
        let start = self.next_slot * SLOT_BYTES;
        let mut length = 0;
        for part in parts {
            let written = self.send_buffer.write(start + length, part);
            written.map_err(|_| Errno(libc::EMSGSIZE))?;
            length += part.len();
        }
        let data = Data::SgList(self.send_buffer.sge(start as u64, length as u32).into());
        self.queue_pair.post_datagram(to.request(SEND, queue, UDP_QKEY, data))?;
        self.next_slot = (self.next_slot + 1) % self.send_slots;
        self.in_flight += 1;
        Ok(true)
    }

    /// Polls the CQ: frees send slots, and calls `keep` with each datagram received. A slot is posted again if `keep`
    /// returns false. Returns whether there were completions.
    pub(crate) fn process_completions(
        &mut self,
        mut keep: impl FnMut(SocketAddr, SlotDatagram) -> bool,
    ) -> bool {
        let mut any = false;
        loop {
            let batch = self.completions.poll();
            if batch[0].is_none() {
                return any;
            }
            any = true;
            for completion in batch.iter().flatten() {
                if completion.id == SEND {
                    self.in_flight -= 1;
                    continue;
                }
                // The QP is destroyed: nothing can be posted.
                if completion.status == Status::Flushed {
                    continue;
                }
                let slot = completion.id.0 as usize;
                let kept = match self.datagram_in(slot, completion.length as usize) {
                    Some((from, datagram)) if completion.status == Status::Success => {
                        keep(from, datagram)
                    }
                    _ => false,
                };
                if !kept {
                    self.repost(slot);
                }
            }
        }
    }

    fn datagram_in(&self, slot: usize, length: usize) -> Option<(SocketAddr, SlotDatagram)> {
        let read = |start: usize, out: &mut [u8]| self.receive_buffer.read(start, out).is_ok();
        let (mut from, datagram) = parse_slot(slot, length, read)?;
        if let SocketAddr::V6(address) = &mut from {
            // A link-local address is valid on its interface only.
            if address.ip().is_unicast_link_local() {
                let context = self.completions.context();
                address.set_scope_id(context.device().interface().index);
            }
        }
        Some((from, datagram))
    }

    /// Copies a datagram out of its slot, truncated to the length of `out`.
    pub(crate) fn copy(&self, datagram: &SlotDatagram, out: &mut [&mut [u8]]) {
        let mut done = 0;
        for part in out {
            let length = part.len().min(datagram.length - done);
            // The slot is within the region.
            let _ = self.receive_buffer.read(datagram.start + done, &mut part[..length]);
            done += length;
        }
    }

    /// Frees the slot of a datagram.
    pub(crate) fn free(&self, datagram: &SlotDatagram) {
        self.repost(datagram.slot);
    }

    fn repost(&self, slot: usize) {
        // The RQ has space for all slots; a device that is gone accepts none.
        let _ = self.post_receive(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parses a slot whose memory, from the end of the GRH on, is `bytes`.
    fn parse(slot: usize, length: usize, bytes: &[u8]) -> Option<(SocketAddr, SlotDatagram)> {
        parse_slot(slot, length, |start, out| {
            assert_eq!(start, slot * 2088 + 40);
            out.copy_from_slice(&bytes[..out.len()]);
            true
        })
    }

    #[test]
    fn a_datagram_begins_after_grh_and_header() {
        let from: SocketAddr = "10.1.2.3:513".parse().unwrap();
        let mut bytes = SourceHeader(from).write();
        bytes.extend([0; 100]);
        let (found, datagram) = parse(3, 40 + 8 + 100, &bytes).unwrap();
        assert_eq!(found, from);
        assert_eq!(datagram, SlotDatagram { slot: 3, start: 3 * 2088 + 48, length: 100 });
    }

    #[test]
    fn a_datagram_may_be_empty() {
        let bytes = SourceHeader("[fd00::9]:7".parse().unwrap()).write();
        let (_, datagram) = parse(0, 40 + 24, &bytes).unwrap();
        assert_eq!((datagram.start, datagram.length), (64, 0));
    }

    #[test]
    fn a_completion_without_a_whole_header_is_ignored() {
        let bytes = SourceHeader("10.1.2.3:513".parse().unwrap()).write();
        for length in 0..48 {
            assert_eq!(parse(0, length, &bytes), None, "{length} bytes");
        }
    }

    #[test]
    fn a_length_beyond_the_slot_is_cut() {
        let mut bytes = SourceHeader("10.1.2.3:513".parse().unwrap()).write();
        bytes.extend([0; 16]);
        let (_, datagram) = parse(0, 100_000, &bytes).unwrap();
        assert_eq!(datagram.length, SLOT_BYTES - 8);
    }

    #[test]
    fn a_slot_that_cannot_be_read_is_ignored() {
        assert_eq!(parse_slot(0, 100, |_, _| false), None);
    }
}
