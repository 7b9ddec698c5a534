//! The reader's side: finds the processes that publish, and copies what they do.
//!
//! Nothing that is read is trusted: another process wrote it, perhaps one of another user.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;
use std::time::Duration;

use ferroce_sys::clock;

use crate::histogram::BUCKETS;
use crate::layout::{
    self, CLASSES, CompletionQueue as Cq, DEVICE_COUNTERS, Device as Dev, HEADER_WORDS, Header,
    Kind, LINKS, MAGIC, MemoryRegion as Mr, NAKS, QueuePair as Qp, SERVICES, STATES, STATUSES,
    SharedReceiveQueue as Srq, SlotHeader, TRAFFIC_WORDS, TRANSPORT_COUNTERS, VERSION,
};
use crate::process::{self, Found};
use crate::snapshot::{
    CompletionQueue, Counters, Device, Direction, Latency, MemoryRegion, Operations, Process,
    QueuePair, Reason, SharedReceiveQueue, Snapshot, Traffic, address,
};

/// The largest file that is read, in words: what a process can publish.
const MAX_WORDS: u64 = (64 << 20) / 8;

/// How often a slot is read again that was being written, and the pause before each of the later times.
const TRIES: usize = 40;
const PAUSE: Duration = Duration::from_micros(100);

/// Which processes and devices to read.
#[derive(Clone, Debug, Default)]
pub struct Filter {
    /// Only the process with this ID.
    pub pid: Option<u32>,
    /// Only devices with this name.
    pub device: Option<String>,
}

/// Reads what all processes publish that this one may see: those of the same user; all of them for root.
pub fn read_all(filter: &Filter) -> Snapshot {
    let mut seen = HashSet::new();
    let found = process::find(|pid| filter.pid.is_none_or(|wanted| wanted == pid));
    let mut processes: Vec<_> =
        found.iter().filter_map(|found| read_process(found, &mut seen)).collect();
    if let Some(name) = &filter.device {
        for process in &mut processes {
            process.devices.retain(|device| device.name == *name);
        }
        processes.retain(|process| !process.devices.is_empty());
    }
    Snapshot { time_ns: clock::now(), processes }
}

/// `None` if the process has ended, or shares what it publishes with one that was read before.
fn read_process(found: &Found, seen: &mut HashSet<(u64, u64)>) -> Option<Process> {
    let (page, copy) = found.pages.iter().find_map(|path| {
        let file = File::open(path).ok()?;
        let data = file.metadata().ok()?;
        // A process that was cloned without fork(3) has its parent's descriptor.
        let is_new = seen.insert((data.dev(), data.ino()));
        is_new.then(|| PageCopy::read(&file).ok()).flatten().map(|copy| (path, copy))
    })?;
    let (state, age_seconds) = found.state();
    let mut process = Process {
        pid: found.pid,
        name: found.name(),
        command: found.command(),
        uid: found.user(),
        network_namespace: found.network_namespace(),
        state,
        age_seconds,
        library: copy.library.clone(),
        unknown_format: copy.version != VERSION,
        unpublished: copy.unpublished,
        inconsistent: copy.inconsistent,
        socket_drops: found.socket_drops(),
        last_reason: copy.last_reason.clone(),
        devices: copy.devices(),
    };
    // A killed process has no command any more, and its page goes with it.
    let exists = !process.name.is_empty() && Path::exists(page);
    process.devices.sort_by(|one, other| one.name.cmp(&other.name));
    exists.then_some(process)
}

/// A consistent copy of what a process publishes.
#[derive(Debug, Default)]
pub(crate) struct PageCopy {
    version: u64,
    library: String,
    unpublished: u64,
    inconsistent: u64,
    now: u64,
    last_reason: Option<Reason>,
    /// The slots with their positions.
    slots: Vec<(u64, Kind, Vec<u64>)>,
}

/// Where words are read from.
pub(crate) trait Source {
    /// Reads `count` words from the word `start` on.
    fn words(&self, start: usize, count: usize) -> io::Result<Vec<u64>>;
    /// How many words there are.
    fn len(&self) -> io::Result<u64>;
}

impl Source for File {
    fn words(&self, start: usize, count: usize) -> io::Result<Vec<u64>> {
        let mut bytes = vec![0; 8 * count];
        self.read_exact_at(&mut bytes, 8 * start as u64)?;
        let words = bytes.chunks_exact(8).filter_map(|bytes| bytes.first_chunk());
        Ok(words.map(|bytes| u64::from_ne_bytes(*bytes)).collect())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.metadata()?.len() / 8)
    }
}

impl PageCopy {
    pub(crate) fn read(source: &impl Source) -> io::Result<Self> {
        let invalid = || io::Error::from(io::ErrorKind::InvalidData);
        let header = source.words(0, HEADER_WORDS)?;
        if header[Header::Magic as usize] != MAGIC {
            return Err(invalid());
        }
        let mut copy = Self {
            version: header[Header::Version as usize],
            library: text(&header[Header::Library as usize..][..4]),
            unpublished: header[Header::Unpublished as usize],
            now: clock::now(),
            ..Self::default()
        };
        if copy.version != VERSION {
            return Ok(copy);
        }
        copy.last_reason = reason(&header, Header::LastReason as usize, copy.now);
        let end = header[Header::End as usize].min(source.len()?).min(MAX_WORDS) as usize;
        let all = source.words(0, end)?;
        let mut start = HEADER_WORDS;
        while let Some(&kind) = all.get(start + SlotHeader::Kind as usize) {
            // Without its size, nothing behind a slot can be found.
            let Some((_, count)) = Kind::from_word(kind) else { break };
            let Some(slot) = all.get(start..start + count) else { break };
            let slot = if is_consistent(slot) {
                slot.to_vec()
            } else {
                let (slot, consistent) = reread(source, start, count)?;
                copy.inconsistent += u64::from(!consistent);
                slot
            };
            match Kind::from_word(slot[SlotHeader::Kind as usize]) {
                None | Some((Kind::Free, _)) => {}
                Some((kind, _)) => copy.slots.push((start as u64, kind, slot)),
            }
            start += count;
        }
        Ok(copy)
    }

    /// The devices with their objects.
    fn devices(&self) -> Vec<Device> {
        let mut devices = Vec::new();
        let mut positions = HashMap::new();
        for (start, _, words) in self.of_kind(Kind::Device) {
            positions.insert(*start, devices.len());
            devices.push(device(words, self.now));
        }
        for (_, kind, words) in &self.slots {
            // All objects have their device in the same word.
            let Some(&index) = positions.get(&words[Qp::Device as usize]) else { continue };
            let device: &mut Device = &mut devices[index];
            match kind {
                Kind::QueuePair => device.queue_pairs.push(queue_pair(words, self.now)),
                Kind::CompletionQueue => device.completion_queues.push(CompletionQueue {
                    id: words[Cq::Id as usize],
                    capacity: words[Cq::Capacity as usize],
                    pending: words[Cq::Pending as usize],
                    completions: words[Cq::Completions as usize],
                    overruns: words[Cq::Overruns as usize],
                }),
                Kind::MemoryRegion => {
                    let length = words[Mr::Length as usize];
                    // A null MR has no end.
                    if length != u64::MAX {
                        device.memory_bytes = device.memory_bytes.saturating_add(length);
                    }
                    device.memory_regions.push(MemoryRegion {
                        pd: words[Mr::Pd as usize],
                        length,
                        access: access(words[Mr::Access as usize]),
                    });
                }
                Kind::SharedReceiveQueue => {
                    let posted = words[Srq::Posted as usize];
                    device.shared_receive_queues.push(SharedReceiveQueue {
                        number: words[Srq::Number as usize] as u32,
                        capacity: words[Srq::Capacity as usize],
                        outstanding: posted.saturating_sub(words[Srq::Completed as usize]),
                        posted,
                    });
                }
                Kind::Device | Kind::Free => {}
            }
        }
        for device in &mut devices {
            device.queue_pairs.sort_by_key(|queue_pair| queue_pair.number);
            device.completion_queues.sort_by_key(|queue| queue.id);
        }
        devices
    }

    fn of_kind(&self, kind: Kind) -> impl Iterator<Item = &(u64, Kind, Vec<u64>)> {
        self.slots.iter().filter(move |slot| slot.1 == kind)
    }
}

/// Reads a slot that was being written once more, until it is not. Returns it, and whether it is consistent.
fn reread(source: &impl Source, start: usize, count: usize) -> io::Result<(Vec<u64>, bool)> {
    for attempt in 0..TRIES {
        let slot = source.words(start, count)?;
        if is_consistent(&slot) {
            return Ok((slot, true));
        }
        // A writer needs less than a microsecond, unless it is preempted or stopped.
        if attempt > TRIES / 2 {
            std::thread::sleep(PAUSE);
        }
    }
    Ok((source.words(start, count)?, false))
}

/// Whether a copy of a slot shows it as it was at one moment. The writer first increments the number in the last word, then
/// writes, then sets that in the first word to the same. The kernel copies forward, so the two are equal only if nothing
/// was written between the copies of the first word and the last.
fn is_consistent(slot: &[u64]) -> bool {
    slot.first() == slot.last()
}

fn device(words: &[u64], now: u64) -> Device {
    let counters = &words[Dev::Counters as usize..][..DEVICE_COUNTERS.len()];
    Device {
        name: text(&words[Dev::Name as usize..][..4]),
        address: address(gid(&words[Dev::Gid as usize..])),
        active: words[Dev::Active as usize] != 0,
        mtu: words[Dev::Mtu as usize],
        pds: words[Dev::Pds as usize],
        memory_windows: words[Dev::Windows as usize],
        memory_bytes: 0,
        last_reason: reason(words, Dev::LastReason as usize, now),
        counters: Counters::new(DEVICE_COUNTERS, counters.to_vec()),
        queue_pairs: Vec::new(),
        completion_queues: Vec::new(),
        memory_regions: Vec::new(),
        shared_receive_queues: Vec::new(),
    }
}

fn queue_pair(words: &[u64], now: u64) -> QueuePair {
    let word = |field: Qp| words[field as usize];
    let slice = |field: Qp, count| words[field as usize..][..count].to_vec();
    let seconds = |from: u64| now.saturating_sub(from) as f64 / 1e9;
    let remote = word(Qp::RemoteNumber) as u32;
    let remote_address = address(gid(&words[Qp::RemoteGid as usize..]));
    QueuePair {
        number: word(Qp::Number) as u32,
        service: named(&SERVICES, word(Qp::Service)),
        state: named(&STATES, word(Qp::State)),
        remote_number: remote_address.map(|_| remote),
        remote_address,
        link: named(&LINKS, word(Qp::Link)),
        path_mtu: word(Qp::PathMtu),
        max_send_wr: word(Qp::MaxSendWr),
        max_recv_wr: word(Qp::MaxRecvWr),
        shared_receive_queue: Some(word(Qp::SharedReceiveQueue) as u32).filter(|srq| *srq != 0),
        send_cq: word(Qp::SendCq),
        recv_cq: word(Qp::RecvCq),
        shard: word(Qp::Shard),
        age_seconds: seconds(word(Qp::Created)),
        idle_seconds: Some(word(Qp::Active)).filter(|time| *time != 0).map(seconds),
        sq_psn: word(Qp::SqPsn) as u32,
        rq_psn: word(Qp::RqPsn) as u32,
        send_outstanding: word(Qp::SendOutstanding),
        recv_outstanding: word(Qp::RecvPosted).saturating_sub(word(Qp::RecvCompleted)),
        in_flight_packets: word(Qp::InFlightPackets),
        in_flight_bytes: word(Qp::InFlightBytes),
        send_posted: word(Qp::SendPosted),
        send_completions: word(Qp::SendCompleted),
        recv_completions: word(Qp::RecvCompleted),
        completion_errors: word(Qp::CompletionErrors),
        last_error: word(Qp::LastError).checked_sub(1).map(|status| named(&STATUSES, status)),
        last_reason: reason(words, Qp::LastReason as usize, now),
        tx: direction(words, 0),
        rx: direction(words, 1),
        counters: Counters::new(&TRANSPORT_COUNTERS, slice(Qp::Counters, TRANSPORT_COUNTERS.len())),
        naks_received: Counters::new(&NAKS, slice(Qp::NaksReceived, NAKS.len())),
        naks_sent: Counters::new(&NAKS, slice(Qp::NaksSent, NAKS.len())),
        latency: Latency { sum_ns: word(Qp::LatencySum), buckets: slice(Qp::Histogram, BUCKETS) },
    }
}

/// The reason in these words; `None` if there is none.
fn reason(words: &[u64], field: usize, now: u64) -> Option<Reason> {
    use layout::Reason as Word;
    let words = &words[field..field + layout::REASON_WORDS];
    let count = Some(words[Word::Count as usize]).filter(|count| *count > 0)?;
    Some(Reason {
        number: words[Word::Number as usize] as u16,
        text: text(&words[Word::Text as usize..]),
        age_seconds: now.saturating_sub(words[Word::Time as usize]) as f64 / 1e9,
        count,
    })
}

fn direction(words: &[u64], index: usize) -> Direction {
    let start = Qp::Traffic as usize + index * CLASSES.len() * TRAFFIC_WORDS;
    let class = |class: usize| {
        let words = &words[start + class * TRAFFIC_WORDS..];
        let [packets, bytes, messages] =
            [layout::Traffic::Packets, layout::Traffic::Bytes, layout::Traffic::Messages]
                .map(|field| words[field as usize]);
        Traffic { packets, bytes, messages }
    };
    let operations = Operations {
        send: class(0),
        write: class(1),
        read: class(2),
        atomic: class(3),
        ack: class(4),
        other: class(5),
    };
    let all = operations.iter();
    let (packets, bytes) = all.fold((0u64, 0u64), |(packets, bytes), (_, more)| {
        (packets.saturating_add(more.packets), bytes.saturating_add(more.bytes))
    });
    Direction { packets, bytes, operations }
}

/// The name with this index; "?" if there is none.
fn named(names: &'static [&'static str], index: u64) -> &'static str {
    usize::try_from(index).ok().and_then(|index| names.get(index).copied()).unwrap_or("?")
}

/// The names of access flags (`enum ibv_access_flags`).
fn access(flags: u64) -> Vec<&'static str> {
    const NAMES: [(u64, &str); 9] = [
        (1, "local_write"),
        (1 << 1, "remote_write"),
        (1 << 2, "remote_read"),
        (1 << 3, "remote_atomic"),
        (1 << 4, "mw_bind"),
        (1 << 5, "zero_based"),
        (1 << 6, "on_demand"),
        (1 << 8, "flush_global"),
        (1 << 9, "flush_persistent"),
    ];
    NAMES.into_iter().filter(|(bit, _)| flags & bit != 0).map(|(_, name)| name).collect()
}

fn gid(words: &[u64]) -> [u8; 16] {
    let mut gid = [0; 16];
    for (bytes, word) in gid.chunks_exact_mut(8).zip(words) {
        bytes.copy_from_slice(&word.to_ne_bytes());
    }
    gid
}

/// A text, without control characters.
fn text(words: &[u64]) -> String {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches('\0').chars().map(|c| if c.is_control() { '?' } else { c }).collect()
}

#[cfg(test)]
mod tests;
