//! A machine: what processes with one address share. Transmit queues and mailboxes between them, in memory.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use ferroce_device::forwarding::{Backlog, Busy, Cost, Forwarded};
use ferroce_device::memory_queue::{End, MemoryQueue, Record};
use ferroce_proto::time::Instant;
use ferroce_sync::Mutex;
use ferroce_wire::cm::ServiceId;
use ferroce_wire::number::Qpn;

use crate::host::HostId;
use crate::random::Random;

/// What the processes of a machine share.
#[derive(Debug)]
pub(in crate::rdma) struct Machine {
    shared: Mutex<Board>,
}

#[derive(Debug)]
struct Board {
    /// By slot.
    processes: BTreeMap<u8, Process>,
    /// How many records each transmit queue had when a QP was destroyed, by QPN.
    destroyed: BTreeMap<u32, BTreeMap<u64, u64>>,
    /// How many processes have begun.
    begun: u64,
    /// The number of the last transmit queue.
    queues: u64,
    random: Random,
}

#[derive(Debug)]
struct Process {
    host: HostId,
    is_up: bool,
    mailbox: VecDeque<Message>,
    /// Messages for which the mailbox has space.
    capacity: usize,
    /// Transmit queues to it that it has not accepted.
    offered: Vec<(u8, MemoryQueue)>,
}

/// A frame that another process has received.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The process that forwards it, by how many have begun before.
    from: u64,
    /// How many that process has forwarded to this one before.
    number: u64,
    pub(super) frame: Vec<u8>,
}

impl Cost for Message {
    fn cost(&self) -> usize {
        self.frame.len()
    }
}

impl Machine {
    pub(in crate::rdma) fn new(random: Random) -> Arc<Self> {
        let board = Board {
            processes: BTreeMap::new(),
            destroyed: BTreeMap::new(),
            begun: 0,
            queues: 0,
            random,
        };
        Arc::new(Self { shared: Mutex::new(board) })
    }

    /// A process begins: the host with this number gets the slot, and what is in its mailbox is lost.
    pub(in crate::rdma) fn begin(self: &Arc<Self>, slot: u8, host: HostId) -> Member {
        let mut board = self.shared.lock();
        let random = board.random.stream("process").substream(board.random.next_u64());
        let capacity = board.random.between(1..=4) as usize;
        board.begun += 1;
        let (mailbox, offered) = (VecDeque::new(), Vec::new());
        let process = Process { host, is_up: true, mailbox, capacity, offered };
        board.processes.insert(slot, process);
        Member {
            machine: Arc::clone(self),
            slot,
            begun: board.begun,
            incoming: Vec::new(),
            outgoing: Vec::new(),
            waited_for: Vec::new(),
            backlog: Backlog::new(MAX_BACKLOG_BYTES),
            forwarded: BTreeMap::new(),
            received: BTreeMap::new(),
            reads_at: None,
            retries_at: None,
            notifications: VecDeque::new(),
            random,
            counted: Counted::default(),
            violations: Vec::new(),
        }
    }

    /// A process has ended. Returns the hosts of the others, which notice it.
    pub(in crate::rdma) fn end(&self, member: &Member) -> Vec<HostId> {
        let mut board = self.shared.lock();
        if let Some(process) = board.processes.get_mut(&member.slot) {
            process.is_up = false;
            process.mailbox.clear();
            process.offered.drain(..).for_each(|(_, queue)| queue.leave(End::Reader));
        }
        member.incoming.iter().for_each(|(_, queue)| queue.leave(End::Reader));
        member.outgoing.iter().for_each(|(_, queue)| queue.leave(End::Writer));
        let others = board.processes.iter().filter(|(slot, _)| **slot != member.slot);
        others.map(|(_, process)| process.host).collect()
    }
}

/// The bytes of frames that wait for busy processes. Few, so that some are dropped.
const MAX_BACKLOG_BYTES: usize = 16 << 10;

/// The longest time from a notification to its arrival.
const MAX_DELAY: u64 = 3_000;

/// What a process did, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::rdma) struct Counted {
    /// Records read from transmit queues.
    pub(in crate::rdma) records: u64,
    /// Those that a fast path handled.
    pub(in crate::rdma) fast: u64,
    /// Frames that reached this process and belong to another one.
    pub(in crate::rdma) forwarded: u64,
    /// Those that were dropped, because too many waited or the owner was down.
    pub(in crate::rdma) not_forwarded: u64,
}

impl Counted {
    pub(in crate::rdma) fn plus(self, other: Self) -> Self {
        Self {
            records: self.records + other.records,
            fast: self.fast + other.fast,
            forwarded: self.forwarded + other.forwarded,
            not_forwarded: self.not_forwarded + other.not_forwarded,
        }
    }
}

/// A process of a machine: its ends of transmit queues, and its mailbox.
#[derive(Debug)]
pub(in crate::rdma) struct Member {
    pub(super) machine: Arc<Machine>,
    pub(super) slot: u8,
    begun: u64,
    /// The transmit queues to this process, by the slots of their writers.
    incoming: Vec<(u8, MemoryQueue)>,
    /// Those of this process, by the slots of their readers.
    outgoing: Vec<(u8, MemoryQueue)>,
    /// Those that QPs may wait for, also if their readers have ended.
    waited_for: Vec<MemoryQueue>,
    backlog: Backlog<u8, Message>,
    /// Frames forwarded to each process.
    forwarded: BTreeMap<u8, u64>,
    /// The number of the next frame that each process may forward to this one.
    received: BTreeMap<u64, u64>,
    /// When it goes on reading.
    pub(super) reads_at: Option<Instant>,
    /// When it tries again to forward.
    retries_at: Option<Instant>,
    notifications: VecDeque<(HostId, Duration)>,
    pub(super) random: Random,
    pub(in crate::rdma) counted: Counted,
    pub(in crate::rdma) violations: Vec<String>,
}

impl Member {
    /// The transmit queue to a process, created if there is none. `None` if there is no such process.
    pub(super) fn connect(&mut self, to: u8) -> Option<MemoryQueue> {
        if let Some(queue) = self.existing(to) {
            // Another process may have the slot by now.
            if !queue.has_left(End::Reader) {
                return Some(queue);
            }
        }
        let machine = Arc::clone(&self.machine);
        let mut board = machine.shared.lock();
        if to == self.slot || !board.processes.get(&to).is_some_and(|process| process.is_up) {
            return None;
        }
        board.queues += 1;
        let capacity = [1, 2, 5, 16, 64][board.random.below(5) as usize];
        let max_packets = [1, 4, 16][board.random.below(3) as usize];
        let queue = MemoryQueue::new(board.queues, capacity, max_packets);
        // The reader accepts it when the first record wakes it up.
        queue.request_wakeup(End::Reader);
        let process = board.processes.get_mut(&to)?;
        process.offered.push((self.slot, queue.clone()));
        drop(board);
        self.waited_for.push(queue.clone());
        self.outgoing.push((to, queue.clone()));
        Some(queue)
    }

    /// The transmit queue to a process, if there is one that has not ended.
    pub(super) fn existing(&self, to: u8) -> Option<MemoryQueue> {
        // The newest: those before it were to processes that have ended.
        let found = self.outgoing.iter().rfind(|(slot, queue)| *slot == to && !queue.has_ended());
        found.map(|(_, queue)| queue.clone())
    }

    /// Calls `resume` for the queues that have room again, or have ended.
    pub(super) fn resume(&self, mut resume: impl FnMut(u64, usize) -> bool) {
        self.waited_for.iter().for_each(|queue| queue.resume(&mut resume));
    }

    /// Accepts the transmit queues to this process. Wakeups of it have arrived.
    pub(super) fn woken(&mut self) {
        let mut board = self.machine.shared.lock();
        if let Some(process) = board.processes.get_mut(&self.slot) {
            self.incoming.append(&mut process.offered);
        }
        self.incoming.iter().for_each(|(_, queue)| queue.woken(End::Reader));
        self.waited_for.iter().for_each(|queue| queue.woken(End::Writer));
    }

    /// The transmit queues to processes that have ended, which end now: everything that these have sent was read.
    pub(super) fn end_queues(&mut self) -> Vec<MemoryQueue> {
        let unread = |to: u8| {
            let left = |(from, queue): &(u8, MemoryQueue)| {
                *from == to && queue.has_left(End::Writer) && !queue.is_empty()
            };
            self.incoming.iter().any(left)
        };
        let ended = |(to, queue): &(u8, MemoryQueue)| {
            let ends = queue.has_left(End::Reader) && !unread(*to);
            ends.then(|| queue.clone())
        };
        let ending: Vec<_> = self.outgoing.iter().filter_map(ended).collect();
        ending.iter().for_each(MemoryQueue::end);
        self.outgoing.retain(|(_, queue)| !queue.has_ended());
        self.incoming.retain(|(_, queue)| !queue.has_left(End::Writer) || !queue.is_empty());
        self.waited_for.retain(|queue| !queue.has_ended() || queue.is_awaited());
        ending
    }

    /// The transmit queues to this process.
    pub(super) fn readable(&self) -> Vec<MemoryQueue> {
        self.incoming.iter().map(|(_, queue)| queue.clone()).collect()
    }

    /// Forwards a frame to its owner, now or when its mailbox has space.
    pub(super) fn forward(&mut self, now: Instant, to: u8, frame: &[u8]) {
        let number = self.forwarded.entry(to).or_default();
        let message = Message { from: self.begun, number: *number, frame: frame.to_vec() };
        *number += 1;
        let machine = Arc::clone(&self.machine);
        let sent = self.backlog.forward(to, || machine.post(to, &message), || message.clone());
        match sent {
            Forwarded::Sent(owner) => self.posted(owner),
            Forwarded::Queued => {
                let pause = self.random.between(500..=20_000);
                self.retries_at.get_or_insert(now + Duration::from_nanos(pause));
            }
            Forwarded::Dropped => self.counted.not_forwarded += 1,
        }
    }

    /// Forwards a frame to all other processes.
    pub(super) fn forward_to_all(&mut self, now: Instant, frame: &[u8]) {
        let slots: Vec<u8> = self.machine.shared.lock().processes.keys().copied().collect();
        for slot in slots {
            if slot != self.slot {
                self.forward(now, slot, frame);
            }
        }
    }

    /// Tries again to forward the frames that wait.
    fn retry(&mut self, now: Instant) {
        let machine = Arc::clone(&self.machine);
        let mut owners = Vec::new();
        self.backlog.retry(|to, message| machine.post(to, message).map(|owner| owners.push(owner)));
        owners.into_iter().for_each(|owner| self.posted(owner));
        self.backlog.check_invariants();
        let pause = Duration::from_nanos(self.random.between(500..=20_000));
        self.retries_at = (!self.backlog.is_empty()).then(|| now + pause);
    }

    /// A frame was put into a mailbox, or has no owner any more.
    fn posted(&mut self, owner: Option<HostId>) {
        match owner {
            Some(host) => {
                self.counted.forwarded += 1;
                self.notify(host);
            }
            None => self.counted.not_forwarded += 1,
        }
    }

    /// Takes the next frame from the mailbox. Frames of a process must arrive in order, although some may be dropped.
    pub(super) fn next_message(&mut self) -> Option<Vec<u8>> {
        let mut board = self.machine.shared.lock();
        let message = board.processes.get_mut(&self.slot)?.mailbox.pop_front()?;
        drop(board);
        let expected = self.received.entry(message.from).or_default();
        if message.number < *expected {
            let Message { from, number, .. } = message;
            self.violations.push(format!(
                "slot {}: frame {number} of process {from} was forwarded after frame {}",
                self.slot,
                *expected - 1
            ));
        }
        *expected = message.number + 1;
        Some(message.frame)
    }

    pub(super) fn notify(&mut self, host: HostId) {
        let delay = Duration::from_nanos(self.random.between(1..=MAX_DELAY));
        self.notifications.push_back((host, delay));
    }

    /// The next process to notify.
    pub(super) fn poll_notification(&mut self) -> Option<(HostId, Duration)> {
        if self.notifications.is_empty() {
            self.collect_wakeups();
        }
        self.notifications.pop_front()
    }

    /// Delivers the wakeups that are due at the other ends of its transmit queues.
    fn collect_wakeups(&mut self) {
        let machine = Arc::clone(&self.machine);
        let board = machine.shared.lock();
        let host_of = |slot: &u8| board.processes.get(slot).map(|process| process.host);
        let written = self.outgoing.iter().filter(|(_, queue)| queue.take_wakeup(End::Reader));
        let read = self.incoming.iter().filter(|(_, queue)| queue.take_wakeup(End::Writer));
        let slots = written.map(|(slot, _)| *slot).chain(read.map(|(slot, _)| *slot));
        let hosts: Vec<HostId> = slots.filter_map(|slot| host_of(&slot)).collect();
        drop(board);
        hosts.into_iter().for_each(|host| self.notify(host));
    }

    /// Forwards what waits. Returns whether it is time to read.
    pub(super) fn handle_timeout(&mut self, now: Instant) -> bool {
        if self.retries_at.is_some_and(|at| at <= now) {
            self.retry(now);
        }
        self.reads_at.is_some_and(|at| at <= now)
    }

    pub(super) fn poll_timeout(&self) -> Option<Instant> {
        self.reads_at.into_iter().chain(self.retries_at).min()
    }

    /// What must hold when the process has nothing to do now.
    pub(super) fn check(&self) -> Option<String> {
        let queues = self.waited_for.iter().chain(self.incoming.iter().map(|(_, queue)| queue));
        queues.for_each(MemoryQueue::check_invariants);
        self.backlog.check_invariants();
        let is_forgotten = |queue: &&MemoryQueue| {
            let goes_on = queue.room() > 0 || queue.has_ended();
            queue.is_awaited() && goes_on && !queue.has_wakeup(End::Writer)
        };
        let forgotten = self.waited_for.iter().find(is_forgotten)?;
        Some(format!(
            "slot {}: QPs wait for room in transmit queue {}, which has room for {} records",
            self.slot,
            forgotten.number(),
            forgotten.room()
        ))
    }
}

impl Machine {
    /// Puts a frame into the mailbox of a process. Returns its host, or none if it is down.
    fn post(&self, to: u8, message: &Message) -> Result<Option<HostId>, Busy> {
        let mut board = self.shared.lock();
        let Some(process) = board.processes.get_mut(&to).filter(|process| process.is_up) else {
            return Ok(None);
        };
        if process.mailbox.len() >= process.capacity {
            return Err(Busy);
        }
        process.mailbox.push_back(message.clone());
        Ok(Some(process.host))
    }
}

/// The slot of the process that owns a QPN.
pub(super) fn slot_of(number: Qpn) -> u8 {
    (number.0 >> 16) as u8
}

/// The service of an attempt to connect, of the process with this slot.
pub(in crate::rdma) fn service(slot: u8, attempt: u64) -> u64 {
    u64::from(slot) << 48 | attempt
}

pub(super) fn service_slot(service: ServiceId) -> u8 {
    (service.0 >> 48) as u8
}

impl Member {
    /// A QP of this process is destroyed: nothing of it may be written from now on.
    pub(super) fn destroyed(&self, number: Qpn) {
        let written = self.waited_for.iter().map(|queue| (queue.number(), queue.written()));
        self.machine.shared.lock().destroyed.insert(number.0, written.collect());
    }

    /// Checks that a record was written before its sender was destroyed.
    pub(super) fn check_sender(&mut self, queue: &MemoryQueue, record: &Record) {
        let board = self.machine.shared.lock();
        let Some(written) = board.destroyed.get(&record.sender.0) else { return };
        // A queue that was created since has nothing of it.
        let before = written.get(&queue.number()).copied().unwrap_or(0);
        drop(board);
        if record.position >= before {
            let sender = record.sender;
            self.violations
                .push(format!("{sender:?} has written to a queue after its destruction"));
        }
    }
}
