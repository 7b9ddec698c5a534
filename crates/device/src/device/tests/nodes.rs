//! Devices whose ways out end in memory.

use std::boxed::Box;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::convert::Infallible;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::{Deref, DerefMut};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;
use std::vec::Vec;

use ferroce_proto::congestion::Congestion;
use ferroce_proto::endpoint::{Event, Settings};
use ferroce_proto::memory::{AccessFlags, NoContents, PdId, Sge};
use ferroce_proto::qp::{
    AckTimeout, AddressVector, AttributeMask, Capabilities, PathMtu, QueuePairAttributes, RnrRetry,
    RnrTimer, ServiceType, rule,
};
use ferroce_proto::reason::Reason;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::ud;
use ferroce_proto::work::{Completion, ReceiveRequest, SgList, Status, WorkId};
use ferroce_sync::Mutex;
use ferroce_wire::address::Gid;
use ferroce_wire::number::{LKey, PKey, Psn, QKey, Qpn, VirtualAddress};
use ferroce_wire::packet::Packet;
use ferroce_wire::transport::{Aeth, Bth};

use crate::arrival::{Arrival, Refusal};
use crate::credit::probe::ProbePacket;
use crate::device::*;
use crate::handle::Marks;
use crate::memory_queue::MemoryQueue;
use crate::queue_pair::ReceiveSource;
use crate::receive::{Burst, admit};
use crate::tables::Tables;

/// A part of the memory that every access is to.
pub(super) fn sge(length: u32) -> Sge {
    Sge { key: LKey(1), address: VirtualAddress(0), length }
}

/// Packets for which a transmit queue, and the link, have room.
pub(super) const ROOM: usize = 5;

pub(super) const QUEUE_PAIRS: usize = 6;

/// The first of the QPs whose packets are not acknowledged.
pub(super) const DATAGRAMS: usize = 4;

/// A QP, and the number of its completions.
#[derive(Debug)]
pub(super) struct Qp {
    pub(super) number: Qpn,
    pub(super) marks: Marks,
    pub(super) state: Mutex<Inner>,
    pub(super) receives: Rc<Receives>,
}

/// The RQ of a QP.
#[derive(Debug)]
pub(super) struct Receives(Mutex<ReceiveQueue>);

impl ReceiveSource for Receives {
    fn number(&self) -> Option<Qpn> {
        None
    }

    fn queue(&self) -> &Mutex<ReceiveQueue> {
        &self.0
    }
}

#[derive(Debug)]
pub(super) struct Inner {
    pub(super) queue_pair: QueuePair<usize, MemoryQueue>,
    pub(super) sent: Vec<Status>,
    pub(super) received: usize,
    pub(super) flushed: usize,
    /// Packets that were committed to the link, and those that the device core has reported.
    committed: usize,
    counted: usize,
}

impl Schedulable for Qp {
    fn number(&self) -> Qpn {
        self.number
    }

    fn marks(&self) -> &Marks {
        &self.marks
    }
}

impl Object for Qp {
    type State = Inner;
    type ReceiveQueue = Rc<Receives>;

    fn state(&self) -> &Mutex<Inner> {
        &self.state
    }

    fn receives(&self) -> &Rc<Receives> {
        &self.receives
    }
}

impl Deref for Inner {
    type Target = QueuePair<usize, MemoryQueue>;

    fn deref(&self) -> &Self::Target {
        &self.queue_pair
    }
}

impl DerefMut for Inner {
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.queue_pair
    }
}

/// A link whose frames are taken by the other side.
#[derive(Debug)]
pub(super) struct Frames {
    pub(super) frames: VecDeque<Vec<u8>>,
    pub(super) buffer: Vec<u8>,
    pub(super) taken: u64,
}

/// What a device shares with the program.
#[derive(Debug)]
pub(super) struct Side {
    pub(super) index: usize,
    pub(super) queue_pairs: Vec<Rc<Qp>>,
    pub(super) tables: Tables<Rc<Qp>, Rc<Receives>>,
    pub(super) own: RefCell<VecDeque<ProbePacket<usize>>>,
    /// The transmit queue to the other side.
    pub(super) queue: MemoryQueue,
    /// The QPs of every multicast group.
    pub(super) members: Vec<usize>,
    /// The QPNs of packets for other processes.
    pub(super) forwarded: RefCell<Vec<Qpn>>,
    /// Why packets were dropped.
    pub(super) refused: RefCell<Vec<Refusal>>,
    /// How many packets were not from the peer of their QP.
    pub(super) strangers: Cell<u32>,
    /// Datagrams go through the transmit queue.
    pub(super) queues_datagrams: bool,
}

pub(super) fn address(side: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, side as u8)
}

impl Host for Side {
    type Handle = Rc<Qp>;
    type State = Inner;
    type Route = usize;
    type Queue = MemoryQueue;
    type ReceiveQueue = Rc<Receives>;
    type Memory<'a> = NoContents;
    type Arrival<'a> = Arrived<'a>;
    type Overrun = Infallible;

    fn memory(&self, _: Instant) -> NoContents {
        NoContents
    }

    fn tables(&self) -> &Tables<Rc<Qp>, Rc<Receives>> {
        &self.tables
    }

    fn is_awaited(&self) -> bool {
        false
    }

    fn is_captured(&self) -> bool {
        true
    }

    fn sent(&self, inner: &mut Inner, _: &Bth, _: Option<Aeth>, _: usize, packets: u32) {
        inner.counted += packets as usize;
    }

    fn is_peer(&self, inner: &Inner, source: IpAddr) -> bool {
        inner.queue_pair.receiver.is_some_and(|receiver| receiver.host == source)
    }

    fn record(&self, _: &Arrived<'_>, _: Option<&Inner>) -> bool {
        true
    }

    fn accepted(&self, _: &mut Inner, _: &Arrived<'_>) {}

    fn refuse(&self, refusal: Refusal, _: Option<&Bth>) {
        self.refused.borrow_mut().push(refusal);
    }

    fn refuse_stranger(&self, _: &Rc<Qp>, _: &Inner, _: &Bth) {
        self.strangers.set(self.strangers.get() + 1);
    }

    fn handle_management(&self, _: &Arrived<'_>) -> bool {
        false
    }

    fn members(&self, _: Gid) -> Vec<Rc<Qp>> {
        self.members.iter().map(|&index| Rc::clone(&self.queue_pairs[index])).collect()
    }

    fn route_back(&self, _: &Arrived<'_>) -> Option<usize> {
        Some(1 - self.index)
    }

    fn complete_send(
        &self,
        _: &Rc<Qp>,
        inner: &mut Inner,
        completion: Completion,
        _: Instant,
    ) -> Result<(), Infallible> {
        inner.sent.push(completion.status);
        Ok(())
    }

    fn complete_receive(
        &self,
        _: &Rc<Qp>,
        inner: &mut Inner,
        _: Option<&Rc<Receives>>,
        completion: Completion,
        _: Instant,
    ) -> Result<(), Infallible> {
        match completion.status {
            Status::Flushed => inner.flushed += 1,
            status => {
                assert_eq!(status, Status::Success);
                inner.received += 1;
            }
        }
        Ok(())
    }

    fn overrun(&self, _: &mut Inner, overrun: Infallible) -> Reason {
        match overrun {}
    }

    fn raise(&self, _: &Rc<Qp>, _: Event) {}

    fn limit_reached(&self, _: &Rc<Receives>) {}

    fn published(&self, _: &Rc<Qp>, inner: &mut Inner, _: Instant) {
        // The transmit queue counts messages that it takes as a whole itself.
        if inner.queue_pair.queue.is_none() && inner.queue_pair.datagrams.is_none() {
            assert_eq!(inner.counted, inner.committed, "packets for the statistics of the QP");
        }
    }

    fn local_receiver(&self, inner: &Inner) -> Option<(Receiver, usize)> {
        let (destination, route) = inner.queue_pair.endpoint.next_unacknowledged()?;
        let to = route?;
        Some((Receiver::new(address(to).into(), destination), to))
    }

    fn datagram_queue(
        &self,
        _: &Inner,
        (receiver, _): (Receiver, usize),
        last: Option<MemoryQueue>,
    ) -> Option<MemoryQueue> {
        assert_eq!(receiver.host, address(1 - self.index));
        last.or_else(|| self.queues_datagrams.then(|| self.queue.clone()))
    }

    fn next_own(&self, _: u64) -> Option<(usize, Box<[u8]>)> {
        self.own.borrow_mut().pop_front().map(|(route, packet)| (route, packet.into()))
    }

    fn push_probe(&self, probe: ProbePacket<usize>) {
        self.own.borrow_mut().push_back(probe);
    }

    fn resume_queues(&self, resume: impl FnMut(u64, usize) -> bool) {
        self.queue.resume(resume);
    }
}

impl Frames {
    fn add(&mut self, length: usize) -> bool {
        assert!(self.frames.len() < ROOM, "a packet after there was no more room");
        self.frames.push_back(self.buffer[..length + 4].to_vec());
        self.frames.len() < ROOM
    }
}

impl Tx<Side> for Frames {
    fn room(&mut self) -> Room {
        Room::Some
    }

    fn space(&mut self, _: usize) -> &mut [u8] {
        &mut self.buffer
    }

    fn commit(&mut self, _: &Side, inner: &mut Inner, packet: &Outgoing<'_, usize>) -> Committed {
        inner.committed += 1;
        Committed { packets: 1, has_room: self.add(packet.length) }
    }
}

impl Link<Side> for Frames {
    type Guard = ();

    fn guard(&self) {}

    fn unblock(&mut self, _: &Side) -> bool {
        self.frames.len() < ROOM
    }

    fn flush(&mut self, _: &Side) -> bool {
        true
    }

    fn push(&mut self, _: &Side, _: usize, packet: &[u8]) -> bool {
        self.buffer[..packet.len()].copy_from_slice(packet);
        self.add(packet.len())
    }

    fn own_taken(&mut self) -> &mut u64 {
        &mut self.taken
    }
}

/// A packet that has arrived.
pub(super) struct Arrived<'a> {
    packet: &'a Packet<'a>,
    packets: u32,
    from: IpAddr,
    to: IpAddr,
    now: Instant,
}

impl Arrival for Arrived<'_> {
    fn packet(&self) -> &Packet<'_> {
        self.packet
    }

    fn packets(&self) -> u32 {
        self.packets
    }

    fn time(&self) -> Instant {
        self.now
    }

    fn source(&self) -> IpAddr {
        self.from
    }

    fn destination(&self) -> IpAddr {
        self.to
    }

    fn is_marked(&self) -> bool {
        false
    }

    fn may_be_queued(&self) -> bool {
        false
    }

    fn envelope(&self) -> ud::Envelope {
        ud::Envelope { destination: Gid::from_ip(self.to), header: None }
    }
}

/// A burst of one packet.
struct Single<'a>(Option<&'a Arrived<'a>>);

impl Burst<Side> for Single<'_> {
    fn destination(&mut self, _: &Side) -> Option<Qpn> {
        self.0.map(|arrived| arrived.packet.bth.destination)
    }

    fn forward(&mut self, side: &Side, number: Qpn) {
        self.0 = None;
        side.forwarded.borrow_mut().push(number);
    }

    fn deliver(
        &mut self,
        device: &mut Device<Side>,
        side: &Side,
        handle: &Rc<Qp>,
        inner: &mut Inner,
        _: Instant,
    ) -> bool {
        let arrived = self.0.take().filter(|arrived| admit(side, &arrived.packet.bth));
        arrived.is_some_and(|arrived| device.arrive(side, handle, inner, arrived, &mut NoContents))
    }

    fn stray(&mut self, device: &mut Device<Side>, side: &Side, _: Instant) -> bool {
        let arrived = self.0.take().filter(|arrived| admit(side, &arrived.packet.bth));
        arrived.is_some_and(|arrived| device.arrive_elsewhere(side, arrived))
    }
}

/// A device with its link.
pub(super) struct Node {
    pub(super) side: Side,
    pub(super) device: Device<Side>,
    pub(super) link: Frames,
}

impl Node {
    /// Handles a packet, or a run of packets, from the other side.
    pub(super) fn receive(&mut self, bytes: &[u8], packets: u32, now: Instant) {
        let packet = Packet::parse(bytes).unwrap();
        let sides = [1 - self.side.index, self.side.index].map(|side| IpAddr::V4(address(side)));
        self.arrive(&packet, packets, sides, now);
    }

    /// Handles a packet between these addresses.
    pub(super) fn arrive(
        &mut self,
        packet: &Packet<'_>,
        packets: u32,
        [from, to]: [IpAddr; 2],
        now: Instant,
    ) {
        let arrived = Arrived { packet, packets, from, to, now };
        self.device.receive(&self.side, &mut Single(Some(&arrived)), now);
    }

    pub(super) fn serve(&mut self, now: Instant) {
        self.device.resume(&self.side);
        self.device.schedule.release_owed();
        self.device.transmit_all(&mut self.link, &self.side, now, 4);
        self.device.check_invariants();
    }
}

pub(super) fn number(index: usize) -> Qpn {
    Qpn(16 + index as u32)
}

pub(super) fn queue_pair(index: usize, peer: usize, queue: Option<MemoryQueue>) -> Rc<Qp> {
    let service = match index {
        DATAGRAMS.. => ServiceType::UnreliableDatagram,
        _ => ServiceType::ReliableConnection,
    };
    let settings = Settings {
        service,
        number: number(index),
        pd: PdId(1),
        capabilities: Capabilities { max_send_wr: 64, ..Capabilities::default() },
        signal_all: true,
        shared_receives: false,
        xrc: Default::default(),
        partition: PKey(0xffff),
        port_mtu: 1024,
        groups: 1,
        congestion: Congestion::default(),
        keepalive: None,
    };
    let mut qp = QueuePair::new(settings);
    let attributes = QueuePairAttributes {
        access: Some(AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ),
        partition: Some(0),
        port: Some(1),
        queue_key: Some(QKey(7)),
        path: Some(AddressVector { port: 1, ..AddressVector::default() }),
        path_mtu: PathMtu::from_bytes(1024),
        timeout: Some(AckTimeout(8)),
        retry_count: Some(7),
        rnr_retry: Some(RnrRetry(7)),
        min_rnr_timer: Some(RnrTimer::at_least(Duration::from_micros(20))),
        max_rd_atomic: Some(4),
        max_dest_rd_atomic: Some(4),
        send_psn: Some(Psn(5)),
        receive_psn: Some(Psn(5)),
        destination: Some(number(index)),
        ..QueuePairAttributes::default()
    };
    for to in [
        ferroce_proto::qp::State::Init,
        ferroce_proto::qp::State::ReadyToReceive,
        ferroce_proto::qp::State::ReadyToSend,
    ] {
        let mut change = attributes;
        if let Some(rule) = rule(service, qp.endpoint.state(), to) {
            change.clear(AttributeMask::ALL - rule.required - rule.optional);
        }
        change.state = Some(to);
        qp.endpoint.modify(&change).unwrap();
    }
    qp.endpoint.set_lossless(queue.is_some());
    qp.receiver = (index < DATAGRAMS).then(|| Receiver::new(address(peer).into(), number(index)));
    qp.queue = queue.filter(|_| index < DATAGRAMS);
    let mut receives = ReceiveQueue::new(64);
    let sge = sge(8192);
    for id in 0..64 {
        receives.post(ReceiveRequest { id: WorkId(id), sg_list: SgList::from(sge) }).unwrap();
    }
    let inner = Inner {
        queue_pair: qp,
        sent: Vec::new(),
        received: 0,
        flushed: 0,
        committed: 0,
        counted: 0,
    };
    let (number, marks) = (number(index), Marks::default());
    let receives = Rc::new(Receives(Mutex::new(receives)));
    Rc::new(Qp { number, marks, state: Mutex::new(inner), receives })
}

/// `queued`: a bit for each QP that sends through the transmit queue.
/// `max_packets`: of a message that one record may hold.
pub(super) fn nodes(queued: u8, max_packets: u32) -> [Node; 2] {
    [0, 1].map(|index| {
        let queue = MemoryQueue::new(1, ROOM, max_packets);
        let of = |pair: usize| (queued >> pair & 1 == 1).then(|| queue.clone());
        let queue_pairs = (0..QUEUE_PAIRS).map(|pair| queue_pair(pair, 1 - index, of(pair)));
        let queue_pairs: Vec<_> = queue_pairs.collect();
        let tables = Tables::new(0, Arc::default());
        queue_pairs.iter().for_each(|queue_pair| tables.add_queue_pair(queue_pair));
        let side = Side {
            index,
            queue_pairs,
            tables,
            members: Vec::new(),
            forwarded: RefCell::default(),
            refused: RefCell::default(),
            strangers: Cell::default(),
            own: RefCell::default(),
            queues_datagrams: queued >> DATAGRAMS & 1 == 1,
            queue,
        };
        let link = Frames { frames: VecDeque::new(), buffer: std::vec![0; 8192], taken: 0 };
        // Credit for two packets.
        Node { side, device: Device::new(1, 0), link }
    })
}
