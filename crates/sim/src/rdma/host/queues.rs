//! A process of a machine: reading transmit queues and the mailbox, and forwarding frames of other processes.

use std::sync::Arc;
use std::time::Duration;

use ferroce_device::credit::Credit;
use ferroce_device::memory_queue::{End, MemoryQueue, Record};
use ferroce_device::{Burst, Device, admit, destination, receive_fast};
use ferroce_proto::cm::Owner;
use ferroce_proto::time::Instant;
use ferroce_wire::address::Ip4;
use ferroce_wire::cm::ServiceId;
use ferroce_wire::ip::{IpProtocol, Ipv4};
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::Packet;

use super::RdmaHost;
use super::machine::{Counted, Member, service_slot, slot_of};
use super::shared::{Core, Served, Shared};
use crate::header;
use crate::host::HostId;
use crate::rdma::frame::ReceivedPacket;

/// The longest time that a process needs from a wakeup to its next read: mostly none, sometimes that of other work, and
/// sometimes that until it gets a processor.
const BUSY: [u64; 8] = [0, 0, 0, 0, 0, 2_000, 20_000, 1_500_000];

impl RdmaHost {
    /// Makes it a process of a machine, whose QPNs begin at `first` in its slot.
    pub(in crate::rdma) fn join(&mut self, member: Member, first: u32) {
        debug_assert!(self.endpoints.is_empty(), "its QPs have other QPNs");
        self.shared.join(member, first);
        self.device.credit = Credit::new(self.share, self.shared.tables.slot());
    }

    /// The process ends. Returns the hosts of the others of its machine, which notice it.
    pub(in crate::rdma) fn leave_machine(&self) -> Vec<HostId> {
        self.with_member(|member| Arc::clone(&member.machine).end(member)).unwrap_or_default()
    }

    /// Acts on the process's part of its machine.
    pub(in crate::rdma) fn with_member<T>(&self, act: impl FnOnce(&mut Member) -> T) -> Option<T> {
        self.shared.member().map(|mut member| act(&mut member))
    }

    /// What the process did as a part of its machine.
    pub(in crate::rdma) fn counted(&self) -> Counted {
        self.with_member(|member| member.counted).unwrap_or_default()
    }

    /// Describes what must not be when the process has nothing to do now.
    pub(in crate::rdma) fn check_machine(&self) -> Option<String> {
        let mut member = self.shared.member()?;
        if let Some(first) = member.violations.pop() {
            return Some(first);
        }
        // What is ready is served when the batch ends, or when the uplink has space.
        if self.device.schedule.has_ready() { None } else { member.check() }
    }

    /// Forwards a frame that belongs to another process of the machine. Returns false if it is of this one.
    pub(super) fn forwards(&mut self, now: Instant, frame: &[u8]) -> bool {
        let Some(mut member) = self.shared.member() else { return false };
        match header::queue_pair(frame).map(Qpn) {
            None | Some(Qpn::MULTICAST) => false,
            Some(Qpn::GENERAL_SERVICES) => {
                let Some(received) = ReceivedPacket::parse(frame, now) else { return false };
                let is_served = |service: ServiceId| service_slot(service) == member.slot;
                let owner = self.management.as_ref().map(|one| one.owner(&received, is_served));
                match owner.unwrap_or(Owner::Us) {
                    Owner::Us => return false,
                    Owner::Slot(slot) => member.forward(now, slot, frame),
                    Owner::Service(service) => member.forward(now, service_slot(service), frame),
                    Owner::Unnamed => member.forward_to_all(now, frame),
                }
                true
            }
            Some(number) if self.shared.tables.is_foreign(number) => {
                member.forward(now, slot_of(number), frame);
                true
            }
            Some(_) => false,
        }
    }

    /// Another process has written to a transmit queue, has made room in one, has forwarded a frame, or has ended.
    pub(super) fn handle_wakeup(&mut self, now: Instant) {
        let Some(mut member) = self.shared.member() else { return };
        member.woken();
        let longest = BUSY[member.random.below(BUSY.len() as u64) as usize];
        if longest > 0 || member.reads_at.is_some() {
            let delay = Duration::from_nanos(member.random.between(0..=longest));
            member.reads_at.get_or_insert(now + delay);
            drop(member);
        } else {
            drop(member);
            self.read_queues(now);
        }
        self.device.resume(&self.shared);
    }

    /// Reads a burst from each transmit queue to this process, and the mailbox.
    pub(super) fn read_queues(&mut self, now: Instant) {
        let Some(mut member) = self.shared.member() else { return };
        member.reads_at = None;
        let queues = member.readable();
        drop(member);
        while let Some(frame) = self.with_member(Member::next_message).flatten() {
            self.receive_own(now, &frame);
        }
        let mut has_more = false;
        for queue in queues {
            self.read_queue(now, &queue);
            has_more |= !queue.request_wakeup(End::Reader);
        }
        let Some(mut member) = self.shared.member() else { return };
        let ended = member.end_queues();
        if has_more {
            let pause = Duration::from_nanos(member.random.between(100..=3_000));
            member.reads_at.get_or_insert(now + pause);
        }
        drop(member);
        if !ended.is_empty() {
            self.end_queues(now, &ended);
        }
    }

    fn read_queue(&mut self, now: Instant, queue: &MemoryQueue) {
        let left = self.with_member(|member| member.random.between(1..=16)).unwrap_or(0);
        self.arrive(now, &mut Records { queue, left, next: None });
    }

    /// Fails the requests in flight to processes that have ended, after everything that these sent was read: the last ACK
    /// may be among it.
    fn end_queues(&mut self, now: Instant, ended: &[MemoryQueue]) {
        let has_ended = |queue: &MemoryQueue| ended.iter().any(|ended| ended.is(queue));
        self.device.end_queues(&self.shared, has_ended, now);
        // Datagrams that wait for them go elsewhere.
        self.device.resume(&self.shared);
        self.collect();
    }
}

/// A burst of records of a transmit queue. Some take the fast path and some of their ACKs are sent at once, at random: both
/// have the same effect as the general way.
struct Records<'a> {
    queue: &'a MemoryQueue,
    /// The records that it may still have.
    left: u64,
    next: Option<Record>,
}

impl Burst<Shared> for Records<'_> {
    fn destination(&mut self, shared: &Shared) -> Option<Qpn> {
        while self.next.is_none() && self.left > 0 {
            let record = self.queue.pop()?;
            self.left -= 1;
            if let Some(mut member) = shared.member() {
                member.counted.records += 1;
                member.check_sender(self.queue, &record);
            }
            self.next = Some(record);
        }
        destination(&self.next.as_ref()?.bytes)
    }

    fn forward(&mut self, _: &Shared, _: Qpn) {
        self.next = None;
    }

    fn deliver(
        &mut self,
        device: &mut Device<Shared>,
        shared: &Shared,
        core: &Arc<Core>,
        served: &mut Served,
        now: Instant,
    ) -> bool {
        let Some(Record { bytes, packets, .. }) = self.next.take() else { return false };
        // The first packet may establish the connection.
        let may_be_fast = served.packet_received && !served.queue_pair.destroyed;
        if may_be_fast
            && shared.happens_in(1, 3)
            && receive_fast(shared, core, served, &bytes, packets, now)
        {
            if let Some(mut member) = shared.member() {
                member.counted.fast += 1;
            }
            return false;
        }
        let Ok(packet) = Packet::parse(&bytes) else { return false };
        let address = Ip4(shared.address.octets());
        let ip = Ipv4 {
            version: 4,
            header_words: 5,
            time_to_live: 64,
            protocol: IpProtocol::UDP,
            source: address,
            destination: address,
            ..Ipv4::default()
        };
        let ip = ip.with_checksum();
        let received = ReceivedPacket { packet, ip, time: now, record: Some(packets) };
        let memory = &mut shared.memory.access(now);
        admit(shared, &packet.bth) && device.arrive(shared, core, served, &received, memory)
    }

    /// Its QP was destroyed.
    fn stray(&mut self, _: &mut Device<Shared>, _: &Shared, _: Instant) -> bool {
        self.next = None;
        false
    }

    fn finish(
        &mut self,
        device: &mut Device<Shared>,
        shared: &Shared,
        core: &Arc<Core>,
        served: &mut Served,
        now: Instant,
    ) {
        if shared.happens_in(2, 3) {
            device.acknowledge(shared, core, served, now);
        }
    }
}
