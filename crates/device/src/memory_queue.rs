//! A transmit queue in memory, for tests and the simulator: records of a limited number, and requested wakeups both ways.
//!
//! It carries no wakeup itself: each end takes those that are due ([`MemoryQueue::take_wakeup`]) and delivers them
//! somehow, and the other end tells that one has arrived ([`MemoryQueue::woken`]).

use alloc::collections::VecDeque;
use alloc::sync::Arc;
use alloc::vec;
use alloc::vec::Vec;

use ferroce_proto::time::Instant;
use ferroce_sync::Mutex;
use ferroce_wire::number::Qpn;
use ferroce_wire::packet::ICRC_LEN;

use crate::host::Host;
use crate::link::{Committed, Outgoing, QueueTurn, Room, TransmitQueue, Tx};

/// The longest headers and padding of a packet, and its ICRC.
const HEADERS: usize = 128;

/// An end of the queue, which waits for the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// The process that writes: it waits for room.
    Writer,
    /// The process that reads: it waits for records.
    Reader,
}

/// A packet, or a run of packets of one message, from the BTH to the space for the ICRC.
#[derive(Debug)]
pub struct Record {
    /// The QP that sent it.
    pub sender: Qpn,
    /// The number of packets.
    pub packets: u32,
    /// Headers, payload, padding and an ICRC that is not computed.
    pub bytes: Vec<u8>,
    /// How many records were written before it.
    pub position: u64,
}

/// How far a wakeup of an end is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Wakeup {
    #[default]
    NotRequested,
    Requested,
    /// What the end waits for is there, and nobody has taken the wakeup yet.
    Due,
    /// On its way.
    Taken,
}

/// What both ends of a queue share.
#[derive(Debug)]
struct Shared {
    records: VecDeque<Record>,
    capacity: usize,
    /// Packets of a message that one record may hold; 1 if none is taken as a whole.
    max_packets: u32,
    written: u64,
    wakeups: [Wakeup; 2],
    /// QPs of the writer may wait for room.
    is_awaited: bool,
    /// The process at this end has ended.
    left: [bool; 2],
    /// The writer has noticed that the reader has ended.
    ended: bool,
    buffer: Vec<u8>,
}

/// A transmit queue in memory, as a QP knows it. A clone is the same queue for another QP.
#[derive(Clone, Debug)]
pub struct MemoryQueue {
    number: u64,
    shared: Arc<Mutex<Shared>>,
    /// The position after the last packet of the QP.
    sent: u64,
}

impl Shared {
    fn has_room(&self) -> bool {
        self.records.len() < self.capacity
    }

    /// Whether what an end waits for is there.
    fn is_ready(&self, end: End) -> bool {
        match end {
            End::Writer => self.has_room(),
            End::Reader => !self.records.is_empty(),
        }
    }

    fn wake(&mut self, end: End) {
        let wakeup = &mut self.wakeups[end as usize];
        if *wakeup == Wakeup::Requested {
            *wakeup = Wakeup::Due;
        }
    }

    fn request(&mut self, end: End) -> bool {
        if self.is_ready(end) {
            return false;
        }
        let wakeup = &mut self.wakeups[end as usize];
        if *wakeup == Wakeup::NotRequested {
            *wakeup = Wakeup::Requested;
        }
        true
    }

    fn push(&mut self, sender: Qpn, packets: u32, bytes: Vec<u8>) {
        assert!(self.has_room(), "a record after the transmit queue was full");
        let position = self.written;
        self.records.push_back(Record { sender, packets, bytes, position });
        self.written += 1;
        self.wake(End::Reader);
    }
}

impl MemoryQueue {
    /// Creates the queue with this number, which is not 0, for `capacity` records, each of which may hold `max_packets`
    /// packets of a message.
    pub fn new(number: u64, capacity: usize, max_packets: u32) -> Self {
        let shared = Shared {
            records: VecDeque::new(),
            capacity,
            max_packets,
            written: 0,
            wakeups: [Wakeup::default(); 2],
            is_awaited: false,
            left: [false; 2],
            ended: false,
            buffer: Vec::new(),
        };
        Self { number, shared: Arc::new(Mutex::new(shared)), sent: 0 }
    }

    /// Its number.
    pub fn number(&self) -> u64 {
        self.number
    }

    /// For how many more records it has room.
    pub fn room(&self) -> usize {
        let shared = self.shared.lock();
        shared.capacity - shared.records.len()
    }

    /// The number of records that were not read.
    pub fn len(&self) -> usize {
        self.shared.lock().records.len()
    }

    /// Whether there is nothing to read.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number of records that were ever written.
    pub fn written(&self) -> u64 {
        self.shared.lock().written
    }

    /// Takes the next record.
    pub fn pop(&self) -> Option<Record> {
        let mut shared = self.shared.lock();
        let record = shared.records.pop_front()?;
        shared.wake(End::Writer);
        Some(record)
    }

    /// Requests a wakeup of an end. Returns false if what it waits for is there by now; then none is requested.
    pub fn request_wakeup(&self, end: End) -> bool {
        self.shared.lock().request(end)
    }

    /// Whether a wakeup of an end is due, which the caller delivers.
    pub fn take_wakeup(&self, end: End) -> bool {
        let wakeup = &mut self.shared.lock().wakeups[end as usize];
        let is_due = *wakeup == Wakeup::Due;
        if is_due {
            *wakeup = Wakeup::Taken;
        }
        is_due
    }

    /// A wakeup may have arrived: another one has to be requested.
    pub fn woken(&self, end: End) {
        let wakeup = &mut self.shared.lock().wakeups[end as usize];
        if matches!(wakeup, Wakeup::Due | Wakeup::Taken) {
            *wakeup = Wakeup::NotRequested;
        }
    }

    /// Whether a wakeup of an end is due or on its way.
    pub fn has_wakeup(&self, end: End) -> bool {
        matches!(self.shared.lock().wakeups[end as usize], Wakeup::Due | Wakeup::Taken)
    }

    /// Whether a wakeup of an end was requested and is not due yet.
    pub fn awaits_wakeup(&self, end: End) -> bool {
        self.shared.lock().wakeups[end as usize] == Wakeup::Requested
    }

    /// Whether QPs of the writer may wait for room.
    pub fn is_awaited(&self) -> bool {
        self.shared.lock().is_awaited
    }

    /// If QPs may wait for it and it has room, or has ended: calls `resume` with its number and for how many QPs there is
    /// room, which returns whether others still wait.
    pub fn resume(&self, resume: impl FnOnce(u64, usize) -> bool) {
        if !self.is_awaited() {
            return;
        }
        let most = match (self.has_ended(), self.room()) {
            (true, _) => usize::MAX,
            (false, 0) if self.request_wakeup(End::Writer) => return,
            (false, room) => room.max(1),
        };
        let waits = resume(self.number, most);
        self.shared.lock().is_awaited = waits;
    }

    /// The process at an end has ended.
    pub fn leave(&self, end: End) {
        self.shared.lock().left[end as usize] = true;
    }

    /// Whether the process at an end has ended.
    pub fn has_left(&self, end: End) -> bool {
        self.shared.lock().left[end as usize]
    }

    /// The writer has noticed that the reader has ended: nothing is written any more.
    pub fn end(&self) {
        self.shared.lock().ended = true;
    }

    /// Whether nothing is written any more.
    pub fn has_ended(&self) -> bool {
        self.shared.lock().ended
    }

    /// Whether this is the same queue as another one.
    pub fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }

    /// Panics if it holds more records than it has room for, or if an end waits for what is there without a wakeup.
    pub fn check_invariants(&self) {
        let (shared, number) = (self.shared.lock(), self.number);
        let (length, capacity) = (shared.records.len(), shared.capacity);
        assert!(length <= capacity, "{length} records in transmit queue {number}, of {capacity}");
        for end in [End::Writer, End::Reader] {
            let is_forgotten =
                shared.is_ready(end) && shared.wakeups[end as usize] == Wakeup::Requested;
            assert!(!is_forgotten, "the {end:?} of transmit queue {number} is not woken");
        }
    }
}

/// The packets of a turn, on their way into the queue.
#[derive(Debug)]
pub struct MemoryTurn<'a> {
    shared: &'a Mutex<Shared>,
    /// The position after the last packet of the QP.
    sent: &'a mut u64,
    mtu: usize,
    takes_messages: bool,
    buffer: Vec<u8>,
}

impl<H: Host<Queue = Self>> TransmitQueue<H> for MemoryQueue {
    type Turn<'a> = MemoryTurn<'a>;

    fn begin<'a>(&'a mut self, _: &H, state: &mut H::State) -> MemoryTurn<'a> {
        let endpoint = &mut state.endpoint;
        let mut shared = self.shared.lock();
        endpoint.set_max_run(shared.max_packets);
        MemoryTurn {
            mtu: endpoint.path_mtu().into(),
            takes_messages: shared.max_packets > 1,
            buffer: core::mem::take(&mut shared.buffer),
            shared: &self.shared,
            sent: &mut self.sent,
        }
    }

    fn write_ack(&mut self, _: &H, state: &mut H::State) -> bool {
        let mut shared = self.shared.lock();
        if shared.ended || !shared.has_room() {
            return false;
        }
        let endpoint = &mut state.endpoint;
        let Some((bth, aeth)) = endpoint.take_ack() else { return false };
        let bytes = [&bth.to_bytes()[..], &aeth.to_bytes(), &[0; ICRC_LEN]].concat();
        shared.push(endpoint.settings().number, 1, bytes);
        self.sent = shared.written;
        true
    }

    fn number(&self) -> u64 {
        self.number
    }

    fn is_unread(&self) -> bool {
        let shared = self.shared.lock();
        !shared.ended && shared.written - (shared.records.len() as u64) < self.sent
    }
}

impl<H: Host<Queue = MemoryQueue>> Tx<H> for MemoryTurn<'_> {
    fn room(&mut self) -> Room {
        let shared = self.shared.lock();
        match shared.has_room() {
            _ if shared.ended => Room::Ended,
            true => Room::Some,
            false => Room::Full,
        }
    }

    fn space(&mut self, payload: usize) -> &mut [u8] {
        self.buffer.resize(self.buffer.len().max(HEADERS + payload), 0);
        &mut self.buffer
    }

    fn commit(&mut self, _: &H, _: &mut H::State, packet: &Outgoing<'_, H::Route>) -> Committed {
        // A run of MIDDLE packets has the payload of all, and so has an ONLY packet that is a run.
        let packets = if self.mtu == 0 { 1 } else { packet.payload.div_ceil(self.mtu).max(1) };
        let packets = packets as u32;
        let mut bytes = self.buffer[..packet.length + ICRC_LEN].to_vec();
        bytes[packet.length..].fill(0);
        self.shared.lock().push(packet.number, packets, bytes);
        Committed { packets, has_room: true }
    }
}

impl<H: Host<Queue = MemoryQueue>> QueueTurn<H> for MemoryTurn<'_> {
    fn message(&mut self, host: &H, state: &mut H::State, now: Instant) -> Option<usize> {
        let mut shared = self.shared.lock();
        if !self.takes_messages || shared.ended || !shared.has_room() {
            return None;
        }
        let mut memory = host.memory(now);
        let endpoint = &mut state.endpoint;
        let sender = endpoint.settings().number;
        let message = endpoint.take_whole(now, &mut memory)?;
        let (bth, packets, headers) = (message.bth, message.packets, message.headers_len());
        let end = headers + message.length;
        let mut bytes = vec![0; end + usize::from(bth.pad) + ICRC_LEN];
        if let Err(denied) = message.read(&memory, &mut bytes[headers..end]) {
            let reason = message.explain(denied, &memory);
            drop(memory);
            endpoint.handle_denied(bth.psn, true, reason);
            return Some(1);
        }
        message.encode_headers(&mut bytes)?;
        shared.push(sender, packets, bytes);
        Some(packets as usize)
    }

    fn wait(&mut self, _: &H) -> bool {
        let mut shared = self.shared.lock();
        shared.is_awaited = true;
        shared.request(End::Writer)
    }

    fn end(self, _: &H, _: &mut H::State, packets: usize) {
        let mut shared = self.shared.lock();
        if packets > 0 {
            *self.sent = shared.written;
        }
        shared.buffer = self.buffer;
    }
}
