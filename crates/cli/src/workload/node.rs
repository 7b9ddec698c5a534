//! A rank as a workload sees it: memory that all ranks can access, requests to other ranks, and what comes from them.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use ferroce::{Buffer, LKey, ProtectionDomain, clock};
use ferroce_sys::usage::cpu_time;

use super::fault::Fault;
use super::link::{DEPTH, Event, Link, Request};

/// The immediates of [`Node::barrier`]; workloads use those below.
const BARRIER: u32 = 1 << 31;

/// A request in flight.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Ticket(u64);

/// A rank.
pub(super) struct Node {
    pub(super) rank: usize,
    pub(super) ranks: usize,
    /// The memory that the other ranks may access; its layout is the same on all ranks.
    pub(super) memory: Arc<Buffer>,
    /// How long to wait for another rank.
    pub(super) timeout: Duration,
    link: Box<dyn Link>,
    progress: Arc<AtomicU64>,
    next: u64,
    in_flight: HashSet<Ticket>,
    /// Their number by peer.
    load: Vec<usize>,
    immediates: VecDeque<(usize, u32)>,
    barriers: VecDeque<(usize, u32)>,
    messages: VecDeque<(usize, Vec<u8>)>,
    /// Barriers passed.
    epoch: u32,
    /// Since when the clock is stopped.
    paused: Option<Moment>,
    /// Time and CPU time that do not count.
    unmeasured: (u64, u64),
}

/// A moment, on the clock and in CPU time of the process.
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    time: u64,
    cpu: Duration,
}

impl Moment {
    pub(super) fn now() -> Self {
        let cpu = cpu_time();
        Self { time: clock::now(), cpu: cpu.user + cpu.system }
    }

    fn elapsed(self) -> (u64, u64) {
        let now = Self::now();
        (now.time - self.time, now.cpu.saturating_sub(self.cpu).as_nanos() as u64)
    }
}

/// The peer of a ticket.
fn peer(ticket: u64) -> usize {
    (ticket >> 40) as usize
}

impl Node {
    pub(super) fn new(
        (rank, ranks): (usize, usize),
        memory: Arc<Buffer>,
        link: Box<dyn Link>,
        timeout: Duration,
        progress: Arc<AtomicU64>,
    ) -> Self {
        Self {
            rank,
            ranks,
            memory,
            link,
            timeout,
            progress,
            next: 0,
            in_flight: HashSet::new(),
            load: vec![0; ranks],
            immediates: VecDeque::new(),
            barriers: VecDeque::new(),
            messages: VecDeque::new(),
            epoch: 0,
            paused: None,
            unmeasured: (0, 0),
        }
    }

    /// All other ranks.
    pub(super) fn peers(&self) -> Vec<usize> {
        (0..self.ranks).filter(|rank| *rank != self.rank).collect()
    }

    /// Counts a finished operation, for the progress line.
    pub(super) fn tick(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    /// Stops the clock: what follows is preparation or verification, which is not measured.
    pub(super) fn pause(&mut self) {
        self.paused = Some(Moment::now());
    }

    /// Starts the clock again.
    pub(super) fn resume(&mut self) {
        if let Some(paused) = self.paused.take() {
            let (time, cpu) = paused.elapsed();
            self.unmeasured.0 += time;
            self.unmeasured.1 += cpu;
        }
    }

    /// The measured time and CPU time since a moment, in nanoseconds.
    pub(super) fn measured_since(&mut self, start: Moment) -> (u64, u64) {
        self.resume();
        let (time, cpu) = start.elapsed();
        (time.saturating_sub(self.unmeasured.0), cpu.saturating_sub(self.unmeasured.1))
    }

    /// The PD to register memory in; `None` for TCP.
    pub(super) fn pd(&self) -> Option<&ProtectionDomain> {
        self.link.pd()
    }

    /// Copies bytes out of the memory.
    pub(super) fn load(&self, offset: usize, length: usize) -> Result<Vec<u8>, Fault> {
        let mut bytes = vec![0; length];
        self.memory.read(offset, &mut bytes)?;
        Ok(bytes)
    }

    /// Reads a number of 8 bytes.
    pub(super) fn word(&self, offset: usize) -> Result<u64, Fault> {
        let mut bytes = [0; 8];
        self.memory.read(offset, &mut bytes)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    /// Writes a number of 8 bytes.
    pub(super) fn set_word(&self, offset: usize, value: u64) -> Result<(), Fault> {
        Ok(self.memory.write(offset, &value.to_ne_bytes())?)
    }

    /// Posts a request; waits while too many are in flight to the peer.
    pub(super) fn post(&mut self, peer: usize, request: Request) -> Result<Ticket, Fault> {
        while self.load[peer] >= DEPTH {
            self.progress(&[peer], "completion")?;
        }
        let ticket = (peer as u64) << 40 | self.next;
        self.next += 1;
        self.link.post(peer, ticket, request)?;
        self.load[peer] += 1;
        self.in_flight.insert(Ticket(ticket));
        Ok(Ticket(ticket))
    }

    /// RDMA WRITE.
    pub(super) fn write(
        &mut self,
        peer: usize,
        local: usize,
        remote: usize,
        length: usize,
    ) -> Result<Ticket, Fault> {
        let (immediate, lkey) = (None, None);
        self.post(peer, Request::Write { local, remote, length, immediate, lkey })
    }

    /// RDMA WRITE from memory that was registered with this lkey.
    pub(super) fn write_from(
        &mut self,
        peer: usize,
        (local, lkey): (usize, Option<LKey>),
        remote: usize,
        length: usize,
    ) -> Result<Ticket, Fault> {
        self.post(peer, Request::Write { local, remote, length, immediate: None, lkey })
    }

    /// RDMA WRITE_WITH_IMM.
    pub(super) fn write_imm(
        &mut self,
        peer: usize,
        (local, remote, length): (usize, usize, usize),
        immediate: u32,
    ) -> Result<Ticket, Fault> {
        let (immediate, lkey) = (Some(immediate & !BARRIER), None);
        self.post(peer, Request::Write { local, remote, length, immediate, lkey })
    }

    /// RDMA READ.
    pub(super) fn read(
        &mut self,
        peer: usize,
        local: usize,
        remote: usize,
        length: usize,
    ) -> Result<Ticket, Fault> {
        self.post(peer, Request::Read { local, remote, length })
    }

    /// SEND.
    pub(super) fn send(
        &mut self,
        peer: usize,
        local: usize,
        length: usize,
    ) -> Result<Ticket, Fault> {
        self.post(peer, Request::Send { local, length })
    }

    /// Whether a request has completed.
    pub(super) fn is_done(&self, ticket: Ticket) -> bool {
        !self.in_flight.contains(&ticket)
    }

    /// Waits until a request has completed.
    pub(super) fn finish(&mut self, ticket: Ticket) -> Result<(), Fault> {
        while !self.is_done(ticket) {
            self.progress(&[peer(ticket.0)], "completion")?;
        }
        Ok(())
    }

    /// Waits until all requests have completed.
    pub(super) fn finish_all(&mut self) -> Result<(), Fault> {
        while let Some(ticket) = self.in_flight.iter().next().copied() {
            self.finish(ticket)?;
        }
        Ok(())
    }

    /// Performs an atomic operation, and returns the original value, which is stored at `local`.
    pub(super) fn atomic(&mut self, peer: usize, request: Request) -> Result<u64, Fault> {
        let ticket = self.post(peer, request)?;
        self.finish(ticket)?;
        match request {
            Request::CompareSwap { local, .. } | Request::FetchAdd { local, .. } => {
                self.word(local)
            }
            _ => Ok(0),
        }
    }

    /// Waits for the next immediate of any rank. `missing` are the ranks that are waited for.
    pub(super) fn immediate(
        &mut self,
        missing: &[usize],
        what: &'static str,
    ) -> Result<(usize, u32), Fault> {
        loop {
            if let Some(found) = self.immediates.pop_front() {
                return Ok(found);
            }
            self.progress(missing, what)?;
        }
    }

    /// Waits for the next immediate of one rank.
    pub(super) fn immediate_from(&mut self, rank: usize, what: &'static str) -> Result<u32, Fault> {
        loop {
            if let Some(at) = self.immediates.iter().position(|(from, _)| *from == rank) {
                return Ok(self.immediates.remove(at).map_or(0, |(_, value)| value));
            }
            self.progress(&[rank], what)?;
        }
    }

    /// Takes an immediate that has arrived already, of any rank.
    pub(super) fn try_immediate(&mut self) -> Result<Option<(usize, u32)>, Fault> {
        while self.immediates.is_empty() && self.poll(Instant::now())? {}
        Ok(self.immediates.pop_front())
    }

    /// Takes a message that has arrived already.
    pub(super) fn try_message(&mut self) -> Option<(usize, Vec<u8>)> {
        self.messages.pop_front()
    }

    /// Waits for the next message. `missing` are the ranks that are waited for.
    pub(super) fn message(
        &mut self,
        missing: &[usize],
        what: &'static str,
    ) -> Result<(usize, Vec<u8>), Fault> {
        loop {
            if let Some(found) = self.messages.pop_front() {
                return Ok(found);
            }
            self.progress(missing, what)?;
        }
    }

    /// Waits until anything happens: a completion, an immediate or a message. The timeout names the ranks that are waited
    /// for.
    pub(super) fn progress(&mut self, ranks: &[usize], what: &'static str) -> Result<(), Fault> {
        match self.poll(Instant::now() + self.timeout)? {
            true => Ok(()),
            false => Err(Fault::Late { ranks: ranks.to_vec(), what, timeout: self.timeout }),
        }
    }

    /// Waits for an event until the deadline, and files it.
    pub(super) fn poll(&mut self, deadline: Instant) -> Result<bool, Fault> {
        let Some(event) = self.link.wait(deadline)? else { return Ok(false) };
        match event {
            Event::Done { ticket } => {
                if self.in_flight.remove(&Ticket(ticket)) {
                    self.load[peer(ticket)] -= 1;
                }
            }
            Event::Immediate { peer, value } if value & BARRIER != 0 => {
                self.barriers.push_back((peer, value & !BARRIER));
            }
            Event::Immediate { peer, value } => self.immediates.push_back((peer, value)),
            Event::Message { peer, bytes } => self.messages.push_back((peer, bytes)),
        }
        Ok(true)
    }

    /// Waits until all ranks have called this as often as this one. Rank 0 counts.
    pub(super) fn barrier(&mut self) -> Result<(), Fault> {
        self.epoch += 1;
        let signal = Request::Write {
            local: 0,
            remote: 0,
            length: 0,
            immediate: Some(BARRIER | self.epoch),
            lkey: None,
        };
        let mut missing = if self.rank == 0 { self.peers() } else { vec![0] };
        if self.rank != 0 {
            self.post(0, signal)?;
        }
        while !missing.is_empty() {
            match self.barriers.pop_front() {
                Some((peer, _)) => missing.retain(|rank| *rank != peer),
                None => self.progress(&missing, "barrier signal")?,
            }
        }
        if self.rank == 0 {
            for peer in self.peers() {
                self.post(peer, signal)?;
            }
        }
        Ok(())
    }
}
