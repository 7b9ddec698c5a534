//! Collects the packets of all processes of this user, and of interfaces, in the order of their times.
//!
//! Each process writes its packets into a ring of its own, in the order of their times. The collector always takes the
//! oldest one. If a ring is empty, it knows up to which time nothing more will come from there: the process shows whether
//! it is about to write a record. So packets are not held back for a fixed time, and the order is exact, except that no
//! process, stopped in the middle of a record, delays the others by more than [`MAX_DELAY`].
//!
//! A packet between two collected processes is recorded by its sender. The receiver does so only until it has learned
//! that the sender is collected; such a record is dropped here. Likewise a frame on an interface whose sender is
//! collected is dropped here, and what a process has received on a captured interface from elsewhere.
//!
//! | file | role |
//! |---|---|
//! | `process` | a process: its ring and messages |
//! | `wire` | an interface, by a packet socket |
//! | `chunk` | the packets taken |

mod chunk;
mod process;
mod wire;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::{Duration, Instant, SystemTime};

use ferroce::live::{Message, RecordHeader};
use ferroce_sys::capture_link::{self, CaptureListener, Connection, Parameters};
use ferroce_sys::{Interest, Poller, clock};

pub(crate) use chunk::{Captured, Chunk};
use process::{Notice, Process};
use wire::Wire;

/// The longest time that a packet waits for an older one of a process that is in the middle of a record. On a busy machine,
/// such a process may wait for a processor for more than 100 ms.
const MAX_DELAY: u64 = 1_000_000_000;

/// A packet this far in the future is taken at once: the clock of the host was set back.
const CLOCK_STEP: u64 = 1_000_000_000;

/// How long running processes have to connect before all are told to begin at the same time.
const SETTLING: Duration = Duration::from_millis(200);

/// How long the send addresses of a process that has ended are kept: its last packets may not have been received.
const LINGERING: Duration = Duration::from_secs(1);

/// How long a collector that has packets waits for more, and how long it stays so after the last one.
const PAUSE: Duration = Duration::from_millis(4);
const ACTIVE: Duration = Duration::from_secs(1);

/// How many packets are taken from a ring before their space is given back.
const RELEASE_INTERVAL: u32 = 64;

/// A device of a process, or an interface.
#[derive(Clone, Debug)]
pub(crate) struct InterfaceInfo {
    /// The device or interface.
    pub(crate) name: String,
    /// The network interface of the device.
    pub(crate) network: String,
    /// The process and its program.
    pub(crate) process: Option<(u32, String)>,
    /// Packets known to be missing.
    pub(crate) dropped: u64,
}

/// Collects packets.
#[derive(Debug)]
pub(crate) struct Collector {
    listener: Option<CaptureListener>,
    started: Instant,
    settled: bool,
    /// Connections whose ring has not arrived.
    accepted: Vec<Connection>,
    processes: Vec<Process>,
    wires: Vec<Wire>,
    interfaces: Vec<InterfaceInfo>,
    /// The addresses that collected processes send from, with how many do.
    sources: HashMap<(IpAddr, u16), usize>,
    /// Addresses of ended processes.
    lingering: Vec<(Instant, SocketAddr)>,
    /// Packets dropped by processes that have ended.
    dropped_by_ended: u64,
    last_packet: Instant,
    attached: usize,
    refused: usize,
}

impl Collector {
    /// Starts to collect from processes, if `parameters` are given, and from interfaces. Processes that run already are
    /// notified.
    ///
    /// # Errors
    ///
    /// A message that names the interface.
    pub(crate) fn open(
        parameters: Option<Parameters>,
        interfaces: &[String],
    ) -> Result<Self, String> {
        let failed = |error: io::Error| format!("cannot collect from processes: {error}");
        let mut collector = Self {
            listener: parameters.map(CaptureListener::bind).transpose().map_err(failed)?,
            started: Instant::now(),
            settled: false,
            accepted: Vec::new(),
            processes: Vec::new(),
            wires: Vec::new(),
            interfaces: Vec::new(),
            sources: HashMap::new(),
            lingering: Vec::new(),
            dropped_by_ended: 0,
            last_packet: Instant::now(),
            attached: 0,
            refused: 0,
        };
        for name in interfaces {
            let wire = Wire::open(name, collector.interfaces.len());
            let wire = wire.map_err(|error| refusal(name, &error))?;
            collector.wires.push(wire);
            collector.interfaces.push(InterfaceInfo {
                name: name.clone(),
                network: name.clone(),
                process: None,
                dropped: 0,
            });
        }
        let notified = match &collector.listener {
            Some(_) => capture_link::notify_processes().map_err(failed)?,
            None => 0,
        };
        collector.settled = notified == 0;
        Ok(collector)
    }

    /// The devices and interfaces that packets came from, in the order in which they were found.
    pub(crate) fn interfaces(&self) -> &[InterfaceInfo] {
        &self.interfaces
    }

    /// How many processes are connected now.
    pub(crate) fn processes(&self) -> usize {
        self.processes.iter().filter(|process| !process.gone).count()
    }

    /// How many processes have been connected in all.
    pub(crate) fn attached(&self) -> usize {
        self.attached
    }

    /// Connections of processes that did not pass a ring.
    pub(crate) fn refused(&self) -> usize {
        self.refused
    }

    /// Packets known to be missing.
    pub(crate) fn dropped(&self) -> u64 {
        let by_processes = self.processes.iter().map(Process::dropped).sum::<u64>();
        let by_kernel = self.wires.iter().map(|wire| wire.dropped).sum::<u64>();
        self.dropped_by_ended + by_processes + by_kernel
    }

    /// Whether the processes that ran at the start record their packets.
    pub(crate) fn is_ready(&self) -> bool {
        self.settled
            && (self.processes.iter().all(|process| process.begun || process.gone)
                || self.started.elapsed() > 5 * SETTLING)
    }

    /// Waits for packets, another process, or one of the given descriptors, but not long. Returns at once if a process
    /// is known to have more.
    pub(crate) fn wait(&mut self, others: &[&dyn AsFd], until: Option<Instant>) {
        let busy = self.last_packet.elapsed() < ACTIVE || !self.settled;
        let longest = if busy { PAUSE } else { ACTIVE };
        if !busy && self.processes.iter().filter(|process| !process.sleep()).count() > 0 {
            return;
        }
        let left = until.map_or(longest, |until| until.saturating_duration_since(Instant::now()));
        let mut poller = Poller::new();
        for other in others {
            poller.watch(&other.as_fd(), Interest::Read);
        }
        if let Some(listener) = &self.listener {
            poller.watch(listener, Interest::Read);
        }
        for process in self.processes.iter().filter(|process| !process.gone) {
            poller.watch(&process.connection, Interest::Read);
        }
        for connection in &self.accepted {
            poller.watch(connection, Interest::Read);
        }
        for wire in self.wires.iter().filter(|_| !busy) {
            poller.watch(&wire.socket, Interest::Read);
        }
        let deadline = clock::now() + left.min(longest).as_nanos() as u64;
        let _ = poller.wait(Some(deadline));
    }

    /// Takes the packets that are next in the order of time. Returns false if there were none.
    pub(crate) fn collect(&mut self, chunk: &mut Chunk) -> io::Result<bool> {
        chunk.clear();
        let now = real_time();
        for process in &mut self.processes {
            process.look(now);
        }
        for wire in &mut self.wires {
            wire.look(now)?;
        }
        // After the look: the sender of a packet that was found announced its address before it sent it.
        self.handle_messages();
        let mut any = false;
        while !chunk.is_full() {
            let processes = self.processes.iter().map(|one| (one.head(), one.watermark()));
            let wires = self.wires.iter().map(|one| (one.head(), one.watermark));
            let Some((index, until)) = oldest(processes.chain(wires), now) else { break };
            any = true;
            match index.checked_sub(self.processes.len()) {
                None => self.take_from_process(index, until, now, chunk),
                Some(index) => self.take_from_wire(index, now, chunk)?,
            }
        }
        if any {
            self.last_packet = Instant::now();
        }
        self.remove_ended();
        Ok(any)
    }

    fn take_from_process(&mut self, index: usize, until: u64, now: u64, chunk: &mut Chunk) {
        let Self { processes, sources, wires, interfaces, .. } = self;
        let process = &mut processes[index];
        let mut taken = 0;
        while let Some((header, length)) = process.take(chunk.room()) {
            taken += 1;
            process.dropped_before_records += header.dropped;
            if let Some(&interface) = process.interfaces.get(header.interface as usize) {
                interfaces[interface].dropped += header.dropped;
                let on_wire =
                    |info: &InterfaceInfo| wires.iter().any(|wire| wire.name == info.network);
                let frame = &chunk.room()[RecordHeader::LENGTH..RecordHeader::LENGTH + length];
                let repeated = header.received
                    && (on_wire(&interfaces[interface])
                        || source(frame).is_some_and(|source| sources.contains_key(&source)));
                if !repeated {
                    chunk.push(header, interface, true, RecordHeader::LENGTH, length);
                }
            } else {
                process.undescribed += 1;
            }
            if taken % RELEASE_INTERVAL == 0 {
                process.release();
            }
            process.look(now);
            if chunk.is_full() || process.head().is_none_or(|time| time > until) {
                break;
            }
        }
        process.release();
    }

    fn take_from_wire(&mut self, index: usize, now: u64, chunk: &mut Chunk) -> io::Result<()> {
        let wire = &mut self.wires[index];
        let interface = wire.interface;
        if let Some((next, frame)) = wire.take() {
            if !source(frame).is_some_and(|source| self.sources.contains_key(&source)) {
                let header = RecordHeader {
                    time: next.time,
                    interface: 0,
                    original: next.length as u32,
                    received: !next.outgoing,
                    queue_pair: 0,
                    work: None,
                    dropped: 0,
                };
                chunk.room()[..frame.len()].copy_from_slice(frame);
                chunk.push(header, interface, false, 0, frame.len());
            }
        }
        wire.look(now)
    }

    /// Asks the kernel how many frames of interfaces it has dropped.
    pub(crate) fn count_dropped(&mut self) {
        for wire in &mut self.wires {
            wire.count_dropped();
            self.interfaces[wire.interface].dropped = wire.dropped;
        }
    }

    fn handle_messages(&mut self) {
        for connection in self.listener.iter().flat_map(CaptureListener::accept) {
            self.accepted.push(connection);
        }
        self.take_rings();
        for index in 0..self.processes.len() {
            for notice in self.processes[index].messages() {
                self.handle(index, notice);
            }
        }
        if !self.settled && self.started.elapsed() >= SETTLING {
            self.settled = true;
        }
        if self.settled {
            for process in self.processes.iter_mut().filter(|process| !process.told) {
                // A full socket is tried again.
                process.told = process.send(&Message::Begin).unwrap_or(true);
            }
        }
    }

    /// Maps the rings of new connections whose first message has arrived.
    fn take_rings(&mut self) {
        for connection in std::mem::take(&mut self.accepted) {
            let mut poller = Poller::new();
            let index = poller.watch(&connection, Interest::Read);
            let _ = poller.wait(Some(0));
            let readiness = poller.readiness(index);
            if !readiness.readable && !readiness.broken {
                self.accepted.push(connection);
                continue;
            }
            let Some(ring) = connection.take_ring() else {
                self.refused += 1;
                continue;
            };
            self.attached += 1;
            let process = Process::new(connection, ring);
            for &(ip, port) in self.sources.keys() {
                let _ = process.send(&Message::Source(SocketAddr::new(ip, port)));
            }
            self.processes.push(process);
        }
    }

    fn handle(&mut self, index: usize, notice: Notice) {
        match notice {
            Notice::Interface { device, network } => {
                let process = &mut self.processes[index];
                process.interfaces.push(self.interfaces.len());
                let process = Some((process.number, process.name.clone()));
                self.interfaces.push(InterfaceInfo { name: device, network, process, dropped: 0 });
            }
            Notice::Source(source) => {
                *self.sources.entry((source.ip(), source.port())).or_default() += 1;
                let others = self.processes.iter().enumerate().filter(|(other, _)| *other != index);
                for (_, other) in others {
                    // If it is not told, it records packets that are dropped here.
                    let _ = other.send(&Message::Source(source));
                }
            }
        }
    }

    fn remove_ended(&mut self) {
        let Self { processes, lingering, interfaces, dropped_by_ended, .. } = self;
        processes.retain(|process| {
            if !process.is_finished() {
                return true;
            }
            let dropped = process.dropped();
            *dropped_by_ended += dropped;
            // Packets dropped after the last record.
            if let Some(&first) = process.interfaces.first() {
                interfaces[first].dropped += dropped.saturating_sub(process.dropped_before_records);
            }
            let now = Instant::now();
            lingering.extend(process.sources.iter().map(|source| (now, *source)));
            false
        });
        let (over, kept) =
            lingering.drain(..).partition::<Vec<_>, _>(|(since, _)| since.elapsed() > LINGERING);
        self.lingering = kept;
        for (_, source) in over {
            let key = (source.ip(), source.port());
            if let Some(count) = self.sources.get_mut(&key) {
                *count -= 1;
                if *count == 0 {
                    self.sources.remove(&key);
                    for process in &self.processes {
                        let _ = process.send(&Message::NoSource(source));
                    }
                }
            }
        }
    }

    /// Stops: processes end their connections. Call [`Collector::collect`] until it returns false, then
    /// [`Collector::finish`].
    pub(crate) fn stop(&mut self) {
        self.listener = None;
        self.accepted.clear();
        for process in &self.processes {
            process.connection.close();
        }
    }

    /// Accounts for packets that were dropped after the last record.
    pub(crate) fn finish(&mut self) {
        self.count_dropped();
        for process in &self.processes {
            if let Some(&first) = process.interfaces.first() {
                self.interfaces[first].dropped +=
                    process.dropped().saturating_sub(process.dropped_before_records);
            }
        }
    }
}

fn refusal(name: &str, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::PermissionDenied => format!(
            "cannot capture on {name}: not permitted; run as root, or give ferroce the right with \
             `setcap cap_net_raw+ep $(which ferroce)`"
        ),
        io::ErrorKind::NotFound => {
            format!("cannot capture on {name}: no such interface; `ip link` lists them")
        }
        io::ErrorKind::Unsupported => format!(
            "cannot capture on {name}: its frames have no Ethernet header; choose an Ethernet interface or lo"
        ),
        _ => format!("cannot capture on {name}: {error}"),
    }
}

/// The ring or interface with the oldest packet, and the time up to which its packets come before all others. Each has the time of
/// its first packet, and the time up to which nothing older will come.
fn oldest(sources: impl Iterator<Item = (Option<u64>, u64)>, now: u64) -> Option<(usize, u64)> {
    // Packets after `now` may come from senders that are not known yet.
    let mut until = now;
    let (mut best, mut second) = (None, u64::MAX);
    for (index, (head, watermark)) in sources.enumerate() {
        match (head, best) {
            (None, _) => until = until.min(watermark.max(now.saturating_sub(MAX_DELAY))),
            (Some(time), Some((_, oldest))) if time >= oldest => second = second.min(time),
            (Some(time), before) => {
                second = before.map_or(second, |(_, oldest)| second.min(oldest));
                best = Some((index, time));
            }
        }
    }
    let (index, time) = best?;
    let is_next = time <= until || time > now + CLOCK_STEP;
    is_next.then_some((index, until.min(second)))
}

/// The source address and UDP port of an Ethernet frame.
fn source(frame: &[u8]) -> Option<(IpAddr, u16)> {
    let half = |at: usize| Some(u16::from_be_bytes(*frame.get(at..)?.first_chunk()?));
    match half(12)? {
        0x0800 => {
            let ip: [u8; 4] = *frame.get(26..)?.first_chunk()?;
            let length = usize::from(*frame.get(14)? & 0xf) * 4;
            Some((ip.into(), half(14 + length)?))
        }
        0x86dd => {
            let ip: [u8; 16] = *frame.get(22..)?.first_chunk()?;
            Some((ip.into(), half(54)?))
        }
        _ => None,
    }
}

/// Nanoseconds since 1970.
pub(crate) fn real_time() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn packets_are_taken_in_the_order_of_time() {
        let now = 1000 * SECOND;
        let heads = |first, second| oldest([(first, now), (second, now)].into_iter(), now);
        assert_eq!(heads(Some(now - 5), Some(now - 7)), Some((1, now - 5)));
        assert_eq!(heads(Some(now - 5), None), Some((0, now)));
        assert_eq!(heads(None, None), None);
        // A sender that is in the middle of an older record is waited for, but not for ever.
        let waits = |head| oldest([(Some(head), 0), (None, 0)].into_iter(), now);
        assert_eq!(waits(now - 5), None);
        assert!(waits(now - MAX_DELAY).is_some());
    }

    /// The clock of the host is set by hours while packets wait: none waits that long.
    #[test]
    fn no_packet_waits_for_a_clock_that_was_set() {
        const HOURS: u64 = 3 * 3600 * SECOND;
        let before = 10 * HOURS;
        for now in [before - HOURS, before + HOURS] {
            for watermark in [before, now] {
                let next = oldest([(Some(before), before), (None, watermark)].into_iter(), now);
                assert!(next.is_some(), "{now} {watermark}");
            }
        }
    }
}
