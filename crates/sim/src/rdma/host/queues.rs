//! A process of a machine: reading transmit queues and the mailbox, and forwarding frames of other processes.

use std::sync::Arc;
use std::time::Duration;

use ferroce_device::credit::Credit;
use ferroce_device::memory_queue::{End, MemoryQueue, Record};
use ferroce_device::{Object, ReceiveSource, Schedulable};
use ferroce_proto::endpoint::Pending;
use ferroce_proto::rc::Message;
use ferroce_proto::time::Instant;
use ferroce_wire::address::Ip4;
use ferroce_wire::ip::{IpProtocol, Ipv4};
use ferroce_wire::number::{PKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ICRC_LEN, Packet};
use ferroce_wire::transport::{Aeth, Bth, Reth};

use super::RdmaHost;
use super::machine::{Counted, Member, slot_of};
use super::shared::Core;
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
                if self.management.as_ref().is_some_and(|one| one.concerns(&received)) {
                    return false;
                }
                match member.owner(received.packet.payload) {
                    Some(slot) if slot == member.slot => return false,
                    Some(slot) => member.forward(now, slot, frame),
                    None => member.forward_to_all(now, frame),
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
        let most = self.with_member(|member| member.random.between(1..=16)).unwrap_or(0);
        for _ in 0..most {
            let Some(record) = queue.pop() else { break };
            if let Some(mut member) = self.shared.member() {
                member.counted.records += 1;
                member.check_sender(queue, &record);
            }
            self.handle_record(now, &record);
        }
    }

    /// Handles a record, by a fast path or not, at random: both have the same effect.
    fn handle_record(&mut self, now: Instant, record: &Record) {
        let Some((bth, _)) = Bth::split(&record.bytes) else { return };
        let Some(core) = self.shared.tables.queue_pair(bth.destination) else { return };
        let [tries, acknowledges] = self
            .with_member(|member| [1, 2].map(|share| member.random.below(3) < share))
            .unwrap_or_default();
        if tries && self.handle_fast(now, &core, record) {
            self.with_member(|member| member.counted.fast += 1);
        } else if let Ok(packet) = Packet::parse(&record.bytes) {
            let address = Ip4(self.address.octets());
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
            let record = Some(record.packets);
            self.arrive(now, &ReceivedPacket { packet, ip, time: now, record });
        }
        if acknowledges {
            self.acknowledge(now, &core);
        }
    }

    /// Handles an ACK, or a SEND or WRITE in one record, as the fast path of the library. Returns false, with nothing
    /// changed, if it has to go the general way.
    fn handle_fast(&mut self, now: Instant, core: &Arc<Core>, record: &Record) -> bool {
        let mut served = core.state().lock();
        // The first packet may establish the connection.
        if !served.packet_received || served.queue_pair.destroyed {
            return false;
        }
        let Some((bth, rest)) = Bth::split(&record.bytes) else { return false };
        let behind = usize::from(bth.pad) + ICRC_LEN;
        let is_plain = bth.version == 0 && bth.partition == PKey(0xffff);
        let Some(length) = rest.len().checked_sub(behind).filter(|_| is_plain) else {
            return false;
        };
        let rest = &rest[..length];
        let endpoint = &mut served.queue_pair.endpoint;
        let mut memory = self.shared.memory.access(now);
        let (reth, payload) = match bth.opcode {
            Opcode::RC_ACKNOWLEDGE => {
                let Some((aeth, [])) = Aeth::split(rest) else { return false };
                if !endpoint.handle_ack(now, bth.psn, aeth, &memory) {
                    return false;
                }
                drop(memory);
                self.device.received(&self.shared, core, &mut served, now);
                drop(served);
                self.collect();
                return true;
            }
            Opcode::RC_SEND_ONLY => (None, rest),
            Opcode::RC_RDMA_WRITE_ONLY => match Reth::split(rest) {
                Some((reth, payload)) => (Some(reth), payload),
                None => return false,
            },
            _ => return false,
        };
        let message = Message { bth: &bth, reth: reth.as_ref(), payload };
        let mut receives = core.receives().queue().lock();
        let queue = Some(&mut *receives).filter(|_| reth.is_none());
        if !endpoint.handle_message(&message, record.packets, queue, &mut memory) {
            return false;
        }
        drop((memory, receives));
        self.device.received(&self.shared, core, &mut served, now);
        drop(served);
        self.collect();
        true
    }

    /// Sends the ACK that a QP owes through its transmit queue, if it has nothing else to send, as the engine does.
    fn acknowledge(&mut self, now: Instant, core: &Arc<Core>) {
        let mut served = core.state().lock();
        let queue_pair = &mut served.queue_pair;
        let endpoint = &mut queue_pair.endpoint;
        let is_due = endpoint.pending() == Pending::Ack && !endpoint.has_only_send_completions();
        if !is_due || queue_pair.destroyed {
            return;
        }
        let Some(mut queue) = queue_pair.queue.take() else { return };
        let written = queue.write(core.number(), || {
            let (bth, aeth) = queue_pair.endpoint.take_ack()?;
            Some([&bth.to_bytes()[..], &aeth.to_bytes(), &[0; ICRC_LEN]].concat())
        });
        queue_pair.queue = Some(queue);
        if !written {
            self.device.turn_in_queue(&self.shared, core, &mut served, now);
        }
        self.device.received(&self.shared, core, &mut served, now);
        drop(served);
        self.collect();
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
