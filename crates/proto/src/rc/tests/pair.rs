//! Two QPs over a seeded link that loses, duplicates, delays and reorders, in virtual time.

use std::collections::BinaryHeap;
use std::vec;
use std::vec::Vec;

use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::{Opcode, Position};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::RnrTimer;

use core::cmp::Reverse;
use core::time::Duration;

use crate::budget::Budget;
use crate::congestion::{Congestion, cost};
use crate::memory::{AccessFlags, Finished, PayloadRead};
use crate::rc::{Config, Message, QueuePair, Role};
use crate::receive::ReceiveQueue;
pub(super) use crate::testing::{
    BASE, DOMAIN, Ended, Faults, KEY, REGION, Random, TestMemory, sge,
};
use crate::time::Instant;
use crate::transmit::{EncodeError, Transmit};
use crate::work::{Completion, ReceiveRequest, SgList, WorkId};

pub(super) struct Host {
    pub(super) qp: QueuePair,
    pub(super) receives: ReceiveQueue,
    pub(super) memory: TestMemory,
    pub(super) sent: Vec<Completion>,
    pub(super) received: Vec<Completion>,
}

impl Host {
    pub(super) fn poll(&mut self, now: Instant) -> Option<Transmit<'_>> {
        self.qp.poll_transmit(now, &mut { Budget::UNLIMITED }, &mut self.memory)
    }
}

/// A packet in flight: time of arrival, number, destination, bytes.
type InFlight = (Instant, u64, usize, Vec<u8>);

pub(super) struct Pair {
    pub(super) hosts: [Host; 2],
    pub(super) now: Instant,
    pub(super) random: Random,
    pub(super) faults: Faults,
    flying: BinaryHeap<Reverse<InFlight>>,
    number: u64,
    /// Every sent packet: sender and bytes.
    pub(super) log: Vec<(usize, Vec<u8>)>,
    /// Packets to lose, by position in the log.
    pub(super) lost: Vec<usize>,
    /// Whether the network marks all packets.
    pub(super) marking: bool,
    /// MIDDLE packets may be sent as runs, of random lengths up to this.
    pub(super) max_run: u32,
    /// Messages are sent by [`QueuePair::take_whole`] where possible.
    pub(super) takes_whole: bool,
    /// Bytes of a side that must be in memory when a side gets the completion with this ID: of a send request when
    /// `is_send`.
    pub(super) watched: Vec<Watched>,
}

pub(super) struct Watched {
    pub(super) is_send: bool,
    pub(super) completes_on: usize,
    pub(super) id: u64,
    pub(super) side: usize,
    pub(super) offset: u64,
    pub(super) length: u32,
}

/// A configuration for tests.
pub(super) fn config(mtu: u16, send_psn: u32, receive_psn: u32) -> Config {
    Config {
        role: Role::Both,
        number: Qpn(0x11),
        destination: Qpn(0x11),
        partition: PKey(0xffff),
        pd: DOMAIN,
        mtu,
        send_psn: Psn::new(send_psn),
        receive_psn: Psn::new(receive_psn),
        timeout: Some(Duration::from_micros(500)),
        retry_count: 7,
        rnr_retry: 7,
        rnr_timer: RnrTimer::from_code(1).unwrap(),
        max_rd_atomic: 4,
        max_dest_rd_atomic: 4,
        access: AccessFlags::REMOTE_WRITE | AccessFlags::REMOTE_READ | AccessFlags::REMOTE_ATOMIC,
        congestion: Congestion::Window(64 * cost(usize::from(mtu), 1)),
        keepalive: None,
        send_capacity: 1024,
    }
}

impl Pair {
    pub(super) fn new(seed: u64, faults: Faults, mtu: u16) -> Self {
        Self::with(seed, faults, mtu, |_| ())
    }

    pub(super) fn with(seed: u64, faults: Faults, mtu: u16, edit: impl Fn(&mut Config)) -> Self {
        let mut random = Random(seed);
        let psns = [random.next() as u32 & 0xff_ffff, random.next() as u32 & 0xff_ffff];
        let hosts = [0, 1].map(|side| {
            let mut config = config(mtu, psns[side], psns[1 - side]);
            edit(&mut config);
            Host {
                qp: QueuePair::new(config),
                receives: ReceiveQueue::new(4096),
                memory: TestMemory::new(&mut random),
                sent: Vec::new(),
                received: Vec::new(),
            }
        });
        let (now, flying) = (Instant::ZERO, BinaryHeap::new());
        Self {
            hosts,
            now,
            random,
            faults,
            flying,
            number: 0,
            log: Vec::new(),
            lost: Vec::new(),
            marking: false,
            max_run: 1,
            takes_whole: false,
            watched: Vec::new(),
        }
    }

    pub(super) fn post_receive(&mut self, side: usize, id: u64, offset: u64, length: u32) {
        let request = ReceiveRequest { id: WorkId(id), sg_list: SgList::from(sge(offset, length)) };
        self.hosts[side].receives.post(request).unwrap();
        let watched = Watched { is_send: false, completes_on: side, id, side, offset, length };
        self.watched.push(watched);
    }

    /// The bytes of `side` are in memory when side 0 gets the completion of the send request.
    pub(super) fn watch_send(&mut self, id: u64, side: usize, offset: u64, length: u32) {
        let watched = Watched { is_send: true, completes_on: 0, id, side, offset, length };
        self.watched.push(watched);
    }

    /// The bytes that a completion is about are in memory.
    fn check_placed(&self, completes_on: usize, is_send: bool, id: WorkId) {
        for one in &self.watched {
            if (one.completes_on, one.is_send, one.id) == (completes_on, is_send, id.0) {
                let is_open = self.hosts[one.side].memory.is_open(one.offset, one.length);
                assert!(!is_open, "{id:?} completes, and is still being written");
            }
        }
    }

    /// Sends all packets that may be sent, and collects completions.
    pub(super) fn drain(&mut self) {
        for side in 0..2 {
            let mut buffer = vec![0; 1 << 17];
            loop {
                let host = &mut self.hosts[side];
                host.qp.check_invariants();
                if self.max_run > 1 {
                    host.qp.set_max_run(1 + self.random.below(self.max_run.into()) as u32);
                }
                let Some((psn, encoded)) = self.encode_next(side, &mut buffer) else { break };
                let host = &mut self.hosts[side];
                match encoded {
                    Ok(length) => {
                        let mut bytes = buffer[..length].to_vec();
                        bytes.extend([0; 4]); // Space for the ICRC.
                        self.log.push((side, bytes.clone()));
                        if !self.lost.contains(&(self.log.len() - 1)) {
                            self.transmit(1 - side, bytes);
                        }
                    }
                    Err(EncodeError::Local(_)) => {
                        host.qp.handle_denied(psn, true, crate::testing::DENIED)
                    }
                    Err(EncodeError::Duplicate(_)) => {}
                    Err(_) => host.qp.handle_denied(psn, false, crate::testing::DENIED),
                }
            }
            self.hosts[side].qp.check_invariants();
            while let Some(completion) = self.hosts[side].qp.poll_send_completion() {
                self.check_placed(side, true, completion.id);
                self.hosts[side].sent.push(completion);
            }
            while let Some(completion) = self.hosts[side].qp.poll_receive_completion() {
                self.check_placed(side, false, completion.id);
                self.hosts[side].received.push(completion);
            }
        }
    }

    /// Encodes the next packet of a side, if it has one: its PSN and its length.
    fn encode_next(
        &mut self,
        side: usize,
        out: &mut [u8],
    ) -> Option<(Psn, Result<usize, EncodeError>)> {
        let Host { qp, memory, .. } = &mut self.hosts[side];
        if self.takes_whole {
            if let Some(message) = qp.take_whole(self.now, memory) {
                out.fill(0);
                let whole = message.headers_len() + message.length + usize::from(message.bth.pad);
                let payload = &mut message.encode_headers(out).unwrap()[..message.length];
                let read = message.read(memory, payload).map_err(EncodeError::Local);
                return Some((message.bth.psn, read.map(|()| whole)));
            }
        }
        let transmit = qp.poll_transmit(self.now, &mut { Budget::UNLIMITED }, memory)?;
        Some((transmit.bth.psn, transmit.encode(memory, out)))
    }

    fn transmit(&mut self, to: usize, bytes: Vec<u8>) {
        let copies = if self.random.chance(self.faults.duplication) { 2 } else { 1 };
        for _ in 0..copies {
            if self.random.chance(self.faults.loss) {
                continue;
            }
            let late = if self.random.chance(self.faults.reordering) {
                self.random.below(100_000)
            } else {
                0
            };
            let arrival = self.now + Duration::from_nanos(10_000 + late);
            self.number += 1;
            self.flying.push(Reverse((arrival, self.number, to, bytes.clone())));
        }
    }

    /// The sent packets for comparison: side, opcode, PSN relative to that side's first.
    pub(super) fn sent_packets(&self) -> Vec<(usize, Opcode, u32)> {
        let first = |side: usize| self.hosts[side].qp.config().send_psn;
        let told = self.log.iter().map(|(side, bytes)| {
            let packet = Packet::parse(bytes).unwrap();
            let request = packet.bth.opcode.info().unwrap().request;
            let base = if request { first(*side) } else { first(1 - *side) };
            (*side, packet.bth.opcode, packet.bth.psn.distance(base) as u32)
        });
        told.collect()
    }

    /// Runs until nothing is left to do. A limit detects endless runs.
    pub(super) fn run(&mut self) {
        for _ in 0..2_000_000 {
            self.drain();
            if !self.step() {
                return;
            }
        }
        panic!("the connection never comes to rest");
    }

    /// As [`Pair::run`], without a network: packets are delivered in order, and a run as one. They stay in the log.
    pub(super) fn run_in_runs(&mut self) {
        self.drain();
        let mut taken = 0;
        while taken < self.log.len() {
            let (side, bytes) = self.log[taken].clone();
            taken += 1;
            self.deliver_run(1 - side, &bytes);
            self.drain();
        }
    }

    /// Delivers a packet, or the packets of a run.
    pub(super) fn deliver_run(&mut self, to: usize, bytes: &[u8]) {
        let packet = Packet::parse(bytes).unwrap();
        let Host { qp, receives, memory, .. } = &mut self.hosts[to];
        let packets = run_length(&packet, qp.config().mtu);
        qp.handle_run(self.now, &packet, packets, false, Some(receives), memory);
    }

    /// Sets the clock of both hosts. Packets in flight take as long as before.
    pub(super) fn set_clock(&mut self, now: Instant) {
        let flying = std::mem::take(&mut self.flying).into_iter();
        let moved = flying.map(|Reverse((arrival, number, to, bytes))| {
            Reverse((now + arrival.since(self.now), number, to, bytes))
        });
        self.flying = moved.collect();
        self.now = now;
    }

    fn next_arrival(&self) -> Option<Instant> {
        self.flying.peek().map(|Reverse((time, ..))| *time)
    }

    fn next_event(&mut self) -> Option<Instant> {
        let finish = self.next_finish();
        let timers = self.hosts.iter().filter_map(|host| host.qp.poll_timeout());
        timers.chain(self.next_arrival()).chain(finish).min()
    }

    /// When the next access to memory finishes.
    fn next_finish(&mut self) -> Option<Instant> {
        self.hosts.iter_mut().filter_map(|host| host.memory.next_finish(self.now)).min()
    }

    /// Finishes the accesses to memory that are due.
    fn finish_accesses(&mut self) {
        for side in 0..2 {
            while self.hosts[side].memory.next_finish(self.now).is_some_and(|due| due <= self.now) {
                let ended = self.hosts[side].memory.finish_next();
                self.finish(side, ended);
            }
        }
    }

    /// An access of this host has finished; packets that were held for it are handled.
    pub(super) fn finish(&mut self, side: usize, ended: Ended) {
        let Host { qp, receives, memory, .. } = &mut self.hosts[side];
        assert!(match ended {
            Ended::Access(Finished { token, outcome, .. }) => qp.handle_finished(token, outcome),
            Ended::Read(PayloadRead { token, payload, .. }) => qp.handle_read(token, payload),
        });
        while let Some(held) = qp.take_held::<TestMemory>() {
            qp.handle_run(self.now, &held.packet(), held.packets, false, Some(receives), memory);
        }
    }

    /// Runs for this time.
    pub(super) fn run_for(&mut self, time: Duration) {
        let end = self.now + time;
        self.drain();
        while self.next_event().is_some_and(|next| next <= end) {
            self.step();
            self.drain();
        }
        self.now = end;
    }

    /// Processes the next event: a packet arrives or a timer expires. Returns false when there is none.
    pub(super) fn step(&mut self) -> bool {
        let Some(next) = self.next_event() else { return false };
        self.now = self.now.max(next);
        if self.next_finish() == Some(next) {
            self.finish_accesses();
        } else if self.next_arrival() == Some(next) {
            let Some(Reverse((_, _, to, bytes))) = self.flying.pop() else { return false };
            let packet = Packet::parse(&bytes).expect("what we send can be read");
            let Host { qp, receives, memory, .. } = &mut self.hosts[to];
            let packets = run_length(&packet, qp.config().mtu);
            assert!(packets <= self.max_run);
            if self.takes_whole
                && !self.marking
                && handle_fast(self.now, qp, &packet, packets, receives, memory)
            {
                return true;
            }
            qp.handle_run(self.now, &packet, packets, self.marking, Some(receives), memory);
        } else {
            self.hosts.iter_mut().for_each(|host| host.qp.handle_timeout(self.now));
        }
        true
    }
}

/// Handles a packet by the functions for whole messages and for positive ACKs, as an owner on a lossless link does.
fn handle_fast(
    now: Instant,
    qp: &mut QueuePair,
    packet: &Packet<'_>,
    packets: u32,
    receives: &mut ReceiveQueue,
    memory: &mut TestMemory,
) -> bool {
    if let (Opcode::RC_ACKNOWLEDGE, Some(aeth)) = (packet.bth.opcode, packet.extensions.aeth) {
        return qp.handle_ack(now, packet.bth.psn, aeth, memory);
    }
    let Packet { bth, extensions, payload, .. } = packet;
    let message = Message { bth, reth: extensions.reth.as_ref(), payload };
    qp.handle_message(&message, packets, Some(receives), memory)
}

/// The packets of a run: MIDDLE packets form one, and all packets of a message.
pub(super) fn run_length(packet: &Packet<'_>, mtu: u16) -> u32 {
    match packet.bth.opcode.info().map(|info| info.position) {
        Some(Position::Middle) => (packet.payload_len / usize::from(mtu)) as u32,
        Some(Position::Only) => (packet.payload_len.div_ceil(usize::from(mtu)) as u32).max(1),
        _ => 1,
    }
}
