//! Two queue pairs over a link that loses, doubles, delays and reorders, all from one seed, in virtual time.

use std::collections::BinaryHeap;
use std::vec;
use std::vec::Vec;

use ferroce_wire::number::{LKey, PKey, Psn, Qpn, RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::RnrTimer;

use core::cmp::Reverse;
use core::time::Duration;

use crate::memory::{AccessFlags, Atomic, Denied, Domain, LocalSpan, Memory, RemoteSpan};
use crate::rc::{Config, QueuePair};
use crate::receive::ReceiveQueue;
use crate::time::Instant;
use crate::transmit::EncodeError;
use crate::work::{Completion, ReceiveRequest, Spans, WorkId};

/// A small generator of numbers: splitmix64.
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(super) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    pub(super) fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }
}

pub(super) const REGION: u64 = 0x10_0000;
pub(super) const BASE: u64 = 0x7f00_0000_0000;
pub(super) const KEY: u32 = 0x1234;
pub(super) const DOMAIN: Domain = Domain(1);

/// One region of memory under one key.
pub(super) struct TestMemory {
    pub(super) bytes: Vec<u8>,
    pub(super) access: AccessFlags,
    pub(super) valid: bool,
    pub(super) atomics: u64,
}

impl TestMemory {
    fn new(random: &mut Random) -> Self {
        let access = AccessFlags::LOCAL_WRITE
            | AccessFlags::REMOTE_WRITE
            | AccessFlags::REMOTE_READ
            | AccessFlags::REMOTE_ATOMIC;
        let bytes = (0..REGION / 8).flat_map(|_| random.next().to_ne_bytes()).collect();
        Self { bytes, access, valid: true, atomics: 0 }
    }

    fn range(
        &self,
        domain: Domain,
        key: u32,
        address: VirtualAddress,
        length: u64,
        access: AccessFlags,
    ) -> Result<core::ops::Range<usize>, Denied> {
        if key != KEY || !self.valid {
            return Err(Denied::Key);
        }
        if domain != DOMAIN {
            return Err(Denied::Domain);
        }
        if !self.access.contains(access) {
            return Err(Denied::Access);
        }
        let start = address.0.checked_sub(BASE).ok_or(Denied::Bounds)?;
        let end = start.checked_add(length).filter(|&end| end <= REGION).ok_or(Denied::Bounds)?;
        Ok(start as usize..end as usize)
    }
}

impl Memory for TestMemory {
    fn check_local(&self, domain: Domain, span: LocalSpan, write: bool) -> Result<(), Denied> {
        let access = if write { AccessFlags::LOCAL_WRITE } else { AccessFlags::default() };
        self.range(domain, span.key.0, span.address, u64::from(span.length), access).map(drop)
    }

    fn read_local(&self, domain: Domain, span: LocalSpan, out: &mut [u8]) -> Result<(), Denied> {
        let none = AccessFlags::default();
        let range = self.range(domain, span.key.0, span.address, u64::from(span.length), none)?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write_local(&mut self, domain: Domain, span: LocalSpan, data: &[u8]) -> Result<(), Denied> {
        if data.len() > span.length as usize {
            return Err(Denied::Bounds);
        }
        let write = AccessFlags::LOCAL_WRITE;
        let range = self.range(domain, span.key.0, span.address, data.len() as u64, write)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn check_remote(
        &self,
        domain: Domain,
        span: RemoteSpan,
        access: AccessFlags,
    ) -> Result<(), Denied> {
        self.range(domain, span.key.0, span.address, u64::from(span.length), access).map(drop)
    }

    fn read_remote(&self, domain: Domain, span: RemoteSpan, out: &mut [u8]) -> Result<(), Denied> {
        let read = AccessFlags::REMOTE_READ;
        let range = self.range(domain, span.key.0, span.address, u64::from(span.length), read)?;
        out.copy_from_slice(&self.bytes[range]);
        Ok(())
    }

    fn write_remote(
        &mut self,
        domain: Domain,
        span: RemoteSpan,
        data: &[u8],
    ) -> Result<(), Denied> {
        let write = AccessFlags::REMOTE_WRITE;
        let range = self.range(domain, span.key.0, span.address, u64::from(span.length), write)?;
        self.bytes[range].copy_from_slice(data);
        Ok(())
    }

    fn atomic(&mut self, domain: Domain, span: RemoteSpan, what: Atomic) -> Result<u64, Denied> {
        let access = match what {
            Atomic::Write(_) => AccessFlags::REMOTE_WRITE,
            _ => AccessFlags::REMOTE_ATOMIC,
        };
        let range = self.range(domain, span.key.0, span.address, 8, access)?;
        let place = &mut self.bytes[range];
        let original = u64::from_ne_bytes(place.try_into().unwrap());
        self.atomics += 1;
        self.bytes[(span.address.0 - BASE) as usize..][..8]
            .copy_from_slice(&what.apply(original).to_ne_bytes());
        Ok(original)
    }

    fn invalidate(&mut self, _domain: Domain, key: RKey) -> Result<(), Denied> {
        if key.0 != KEY || !self.valid {
            return Err(Denied::Key);
        }
        self.valid = false;
        Ok(())
    }
}

/// Faults in a thousand packets.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Faults {
    pub(super) loss: u64,
    pub(super) duplication: u64,
    pub(super) reordering: u64,
}

pub(super) struct Host {
    pub(super) qp: QueuePair,
    pub(super) receives: ReceiveQueue,
    pub(super) memory: TestMemory,
    pub(super) sent: Vec<Completion>,
    pub(super) received: Vec<Completion>,
}

/// A packet on its way: when it arrives, its number, to whom, its bytes.
type Flight = (Instant, u64, usize, Vec<u8>);

pub(super) struct Pair {
    pub(super) hosts: [Host; 2],
    pub(super) now: Instant,
    pub(super) random: Random,
    pub(super) faults: Faults,
    flying: BinaryHeap<Reverse<Flight>>,
    number: u64,
    /// Every packet that was sent: by whom, and its bytes.
    pub(super) log: Vec<(usize, Vec<u8>)>,
    /// Packets to lose, by their place in the log.
    pub(super) lost: Vec<usize>,
}

/// A configuration for tests, with the peer's first PSN.
pub(super) fn config(mtu: u16, send_psn: u32, receive_psn: u32) -> Config {
    Config {
        destination: Qpn(0x11),
        partition: PKey(0xffff),
        domain: DOMAIN,
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
        window: 64,
        send_capacity: 1024,
    }
}

pub(super) fn span(offset: u64, length: u32) -> LocalSpan {
    LocalSpan { key: LKey(KEY), address: VirtualAddress(BASE + offset), length }
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
        Self { hosts, now, random, faults, flying, number: 0, log: Vec::new(), lost: Vec::new() }
    }

    pub(super) fn post_receive(&mut self, side: usize, id: u64, offset: u64, length: u32) {
        let request = ReceiveRequest { id: WorkId(id), spans: Spans::from(span(offset, length)) };
        self.hosts[side].receives.post(request).unwrap();
    }

    /// Sends everything that may be sent, and collects completions.
    pub(super) fn drain(&mut self) {
        for side in 0..2 {
            let mut buffer = vec![0; 8192];
            loop {
                let host = &mut self.hosts[side];
                let Some(transmit) = host.qp.poll_transmit(self.now) else { break };
                let psn = transmit.bth.psn;
                match transmit.encode(DOMAIN, &host.memory, &mut buffer) {
                    Ok(length) => {
                        let mut bytes = buffer[..length].to_vec();
                        bytes.extend([0; 4]); // where the ICRC would be
                        self.log.push((side, bytes.clone()));
                        if !self.lost.contains(&(self.log.len() - 1)) {
                            self.fly(1 - side, bytes);
                        }
                    }
                    Err(EncodeError::Local(_)) => host.qp.handle_denied(psn, true),
                    Err(_) => host.qp.handle_denied(psn, false),
                }
            }
            let host = &mut self.hosts[side];
            while let Some(completion) = host.qp.poll_send_completion() {
                host.sent.push(completion);
            }
            while let Some(completion) = host.qp.poll_receive_completion() {
                host.received.push(completion);
            }
        }
    }

    fn fly(&mut self, to: usize, bytes: Vec<u8>) {
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

    /// What was sent, in a form to compare: side, opcode, PSN after that side's first.
    pub(super) fn story(&self) -> Vec<(usize, Opcode, u32)> {
        let first = |side: usize| self.hosts[side].qp.config().send_psn;
        let told = self.log.iter().map(|(side, bytes)| {
            let packet = Packet::parse(bytes).unwrap();
            let request = packet.bth.opcode.info().unwrap().request;
            let base = if request { first(*side) } else { first(1 - *side) };
            (*side, packet.bth.opcode, packet.bth.psn.distance(base) as u32)
        });
        told.collect()
    }

    /// Runs until nothing is left to do. Ends always: what never ends is a bug that the limit finds.
    pub(super) fn run(&mut self) {
        for _ in 0..2_000_000 {
            self.drain();
            if !self.step() {
                return;
            }
        }
        panic!("the connection never comes to rest");
    }

    /// The next thing happens: a packet arrives, or a timer runs out. False when nothing will.
    pub(super) fn step(&mut self) -> bool {
        let timers = self.hosts.iter().filter_map(|host| host.qp.poll_timeout());
        let arrival = self.flying.peek().map(|Reverse((time, ..))| *time);
        let Some(next) = timers.chain(arrival).min() else { return false };
        self.now = self.now.max(next);
        if arrival == Some(next) {
            let Some(Reverse((_, _, to, bytes))) = self.flying.pop() else { return false };
            let packet = Packet::parse(&bytes).expect("what we send can be read");
            let Host { qp, receives, memory, .. } = &mut self.hosts[to];
            qp.handle_packet(self.now, &packet, receives, memory);
        } else {
            self.hosts.iter_mut().for_each(|host| host.qp.handle_timeout(self.now));
        }
        true
    }
}
