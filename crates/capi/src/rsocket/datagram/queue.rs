//! A queue pair for datagrams of one of our addresses, with places to send from and to receive to.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce::cm::{CmId, EventChannel, EventKind, PortSpace};
use ferroce::{
    AccessFlags, AddressHandle, AddressVector, Capabilities, Data, Gid, MemoryRegion,
    ProtectionDomain, QKey, Qpn, QueuePair, QueuePairOptions, ReceiveRequest, ServiceType, Status,
    UdSendRequest, WorkId,
};

use super::super::completions::Completions;
use super::super::settings::Settings;
use super::wire::Source;
use crate::entry::{Errno, Result};

/// Bytes of a place, and thereby of a datagram with its header. rdma-core has as many, and nobody sends more.
pub(super) const PLACE: usize = 2048;
/// What a device puts before each datagram (IBA 11.4.1.2).
const GRH: usize = 40;
/// That of all queue pairs of the UDP port space (`RDMA_UDP_QKEY`).
const KEY: QKey = QKey(0x0123_4567);
/// IP's usual one.
const HOPS: u8 = 64;

const SEND: WorkId = WorkId(u64::MAX);

/// The way to a peer, as the system has it: the address of ours that leads there, and how much a packet carries.
pub(super) struct Route {
    id: CmId,
    /// Where its events come out.
    _channel: EventChannel,
    pub(super) local: IpAddr,
    pub(super) packet_bytes: usize,
}

impl Route {
    /// Finds it, from this address of ours if that is a certain one.
    pub(super) fn find(from: IpAddr, to: SocketAddr) -> Result<Self> {
        let channel = EventChannel::from_env()?;
        let id = CmId::new(&channel, PortSpace::Udp)?;
        let source = Some(SocketAddr::new(from, 0)).filter(|_| !from.is_unspecified());
        id.resolve_address(source, to, Duration::ZERO)?;
        expect(&channel)?;
        id.resolve_route(Duration::ZERO)?;
        expect(&channel)?;
        let local = id.local_address().ok_or(Errno(libc::ENODEV))?.ip();
        let path = id.path_mtu().bytes().unwrap_or(0);
        let device = id.context().and_then(|context| context.mtu().bytes()).unwrap_or(0);
        Ok(Self { id, _channel: channel, local, packet_bytes: path.min(device) })
    }

    fn source_index(&self) -> u8 {
        self.id.source_index().unwrap_or(0)
    }
}

/// The answer is there at once: routes are the system's.
fn expect(channel: &EventChannel) -> Result<()> {
    match channel.try_event()?.map(|event| event.kind) {
        Some(EventKind::AddressResolved | EventKind::RouteResolved) => Ok(()),
        Some(EventKind::AddressError(error) | EventKind::RouteError(error)) => Err(error.into()),
        _ => Err(Errno(libc::ENETUNREACH)),
    }
}

/// A datagram that is in one of the places.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    slot: usize,
    /// Where the program's bytes begin, and how many there are.
    start: usize,
    pub(super) length: usize,
}

pub(super) struct Queue {
    queue_pair: QueuePair,
    /// The device, the address, and one more owner of the queue pair, which ends before its completions.
    route: Route,
    pub(super) completions: Completions,
    domain: ProtectionDomain,
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
    /// Places to send from, that which is next, and how many are under way.
    places: usize,
    next: usize,
    under_way: usize,
}

impl Queue {
    /// Makes it, with all receives posted.
    pub(super) fn new(route: Route, settings: &Settings) -> Result<Self> {
        let context = route.id.context().ok_or(Errno(libc::ENODEV))?;
        let (sends, receives) = settings.datagrams(PLACE as u32);
        let completions = Completions::new(&context, usize::from(sends) + usize::from(receives))?;
        let domain = context.protection_domain();
        let capabilities = Capabilities {
            max_send_wr: sends.into(),
            max_recv_wr: receives.into(),
            max_send_sge: 1,
            max_recv_sge: 1,
            max_inline_data: 0,
        };
        let options = QueuePairOptions::new(ServiceType::UnreliableDatagram, &completions.queue)
            .with_capabilities(capabilities)
            .with_signal_all(true);
        let queue_pair = route.id.create_queue_pair(&domain, &options)?;
        let (places, slots) = (usize::from(sends), usize::from(receives));
        let queue = Self {
            queue_pair,
            route,
            completions,
            outgoing: domain.allocate(places * PLACE, AccessFlags::LOCAL_WRITE)?,
            incoming: domain.allocate(slots * (GRH + PLACE), AccessFlags::LOCAL_WRITE)?,
            domain,
            places,
            next: 0,
            under_way: 0,
        };
        for slot in 0..slots {
            queue.post_receive(slot)?;
        }
        Ok(queue)
    }

    /// Our address.
    pub(super) fn local(&self) -> IpAddr {
        self.route.local
    }

    pub(super) fn number(&self) -> Qpn {
        self.queue_pair.number()
    }

    /// The way to a peer's queue pair.
    pub(super) fn address(&self, to: IpAddr) -> Result<AddressHandle> {
        let vector = AddressVector {
            port: 1,
            source_index: self.route.source_index(),
            destination: Gid::from_ip(to),
            hop_limit: HOPS,
            ..AddressVector::default()
        };
        Ok(self.domain.address_handle(&vector)?)
    }

    fn post_receive(&self, slot: usize) -> Result<()> {
        let sge = self.incoming.sge((slot * (GRH + PLACE)) as u64, (GRH + PLACE) as u32);
        let request = ReceiveRequest { id: WorkId(slot as u64), sg_list: sge.into() };
        Ok(self.queue_pair.post_receive(request)?)
    }

    pub(super) fn can_send(&self) -> bool {
        self.under_way < self.places
    }

    pub(super) fn is_idle(&self) -> bool {
        self.under_way == 0
    }

    /// Sends a datagram of these parts, which fit into a place, if one is free.
    pub(super) fn send(&mut self, parts: &[&[u8]], to: &AddressHandle, queue: Qpn) -> Result<bool> {
        if !self.can_send() {
            return Ok(false);
        }
        let start = self.next * PLACE;
        let mut length = 0;
        for part in parts {
            let written = self.outgoing.write(start + length, part);
            written.map_err(|_| Errno(libc::EMSGSIZE))?;
            length += part.len();
        }
        self.queue_pair.post_datagram(UdSendRequest {
            id: SEND,
            address: to,
            destination: queue,
            queue_key: KEY,
            immediate: None,
            data: Data::SgList(self.outgoing.sge(start as u64, length as u32).into()),
            signaled: true,
            solicited: false,
        })?;
        self.next = (self.next + 1) % self.places;
        self.under_way += 1;
        Ok(true)
    }

    /// Looks at what has completed: places that are free again, and datagrams that came. Returns whether anything has.
    pub(super) fn progress(&mut self, mut arrived: impl FnMut(SocketAddr, Place) -> bool) -> bool {
        let mut any = false;
        loop {
            let found = self.completions.poll();
            if found[0].is_none() {
                return any;
            }
            any = true;
            for one in found.iter().flatten() {
                if one.id == SEND {
                    self.under_way -= 1;
                    continue;
                }
                // A queue pair that was destroyed has none to post to.
                if one.status == Status::Flushed {
                    continue;
                }
                let slot = one.id.0 as usize;
                let length = one.length as usize;
                let taken = match self.look(slot, length) {
                    Some((from, place)) if one.status == Status::Success => arrived(from, place),
                    _ => false,
                };
                if !taken {
                    self.release(slot);
                }
            }
        }
    }

    /// Whose datagram is in a place, if it is one of an rsocket's.
    fn look(&self, slot: usize, length: usize) -> Option<(SocketAddr, Place)> {
        let length = length.checked_sub(GRH)?.min(PLACE);
        let start = slot * (GRH + PLACE) + GRH;
        let mut header = [0; Source::MOST_BYTES];
        let header = &mut header[..length.min(Source::MOST_BYTES)];
        self.incoming.read(start, header).ok()?;
        let (Source(mut from), bytes) = Source::read(header)?;
        if let SocketAddr::V6(address) = &mut from {
            // A link has addresses of its own, which its interface is a part of.
            if address.ip().is_unicast_link_local() {
                let context = self.completions.context();
                address.set_scope_id(context.device().interface().index);
            }
        }
        Some((from, Place { slot, start: start + bytes, length: length - bytes }))
    }

    /// Copies what is in a place, as much as there is room for.
    pub(super) fn copy(&self, place: &Place, out: &mut [&mut [u8]]) {
        let mut done = 0;
        for part in out {
            let length = part.len().min(place.length - done);
            // All of it is within.
            let _ = self.incoming.read(place.start + done, &mut part[..length]);
            done += length;
        }
    }

    /// A place is free for the next datagram.
    pub(super) fn free(&self, place: &Place) {
        self.release(place.slot);
    }

    fn release(&self, slot: usize) {
        // There is room for as many as there are places; a device that is gone takes none.
        let _ = self.post_receive(slot);
    }
}
