//! The queue between the data path and the writer thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use ferroce_wire::transport::Bth;

use super::metadata::Sources;
use super::writer::Writer;
use crate::capture::{CapturePolicy, CaptureStatus, Interface};
use crate::chunk::{Chunk, Entry, real_time};
use crate::metadata::PacketMetadata;
use crate::sync::lock;

/// The maximum number of queued bytes, including those being written: how far the disk or the scheduler may fall
/// behind.
const MAX_QUEUED_BYTES: usize = 64 << 20;

/// The bytes written together. A full chunk wakes the thread.
const CHUNK: usize = 1 << 20;

/// The number of empty chunks kept for reuse: touching new memory costs more.
const MAX_SPARE_CHUNKS: usize = 8;

/// How long an incomplete chunk waits for more packets before it is written.
const WRITE_INTERVAL: Duration = Duration::from_millis(100);

/// The dropped packets of an interface.
#[derive(Clone, Copy, Debug, Default)]
struct Dropped {
    total: u64,
    /// Those since the last packet that was queued.
    since: u64,
}

#[derive(Debug, Default)]
struct Waiting {
    chunks: VecDeque<Chunk>,
    spare: Vec<Chunk>,
    /// The bytes of all chunks, including the one being written.
    size: usize,
    /// Interfaces not yet described in the file.
    interfaces: Vec<Interface>,
    /// Packets ever queued, and packets the thread has finished.
    taken: u64,
    finished: u64,
    /// By interface.
    dropped: Vec<Dropped>,
    /// Why a packet was refused that is written already.
    late: Option<String>,
    /// A thread waits until everything is written.
    hurry: bool,
    closed: bool,
}

impl Waiting {
    fn dropped(&mut self, interface: u32) -> &mut Dropped {
        let index = interface as usize;
        if self.dropped.len() <= index {
            self.dropped.resize(index + 1, Dropped::default());
        }
        &mut self.dropped[index]
    }

    /// The chunk for the next packet.
    fn open_chunk(&mut self) -> &mut Chunk {
        if self.chunks.back().is_none_or(|chunk| chunk.size() >= CHUNK) {
            let chunk = self.spare.pop().unwrap_or_default();
            self.chunks.push_back(chunk);
        }
        let last = self.chunks.len() - 1;
        &mut self.chunks[last]
    }
}

/// An open file, shared by the data path and the thread.
#[derive(Debug, Default)]
pub(super) struct Shared {
    policy: CapturePolicy,
    waiting: Mutex<Waiting>,
    wake: Condvar,
    written_out: Condvar,
    /// The send addresses of the devices that write this file.
    pub(super) sources: Sources,
    written: AtomicU64,
    dropped: AtomicU64,
    failure: OnceLock<String>,
    /// The thread has finished the file.
    ended: AtomicBool,
}

impl Shared {
    pub(super) fn new(policy: CapturePolicy) -> Self {
        Self { policy, ..Self::default() }
    }

    /// Adds a device that writes this file.
    pub(super) fn add_interface(&self, interface: Interface) {
        lock(&self.waiting).interfaces.push(interface);
    }

    pub(super) fn push(&self, interface: u32, metadata: &PacketMetadata, packet: &[u8]) {
        let time = real_time();
        let size = packet.len() + size_of::<Entry>();
        let mut waiting = self.wait_for_room(size);
        let before = waiting.size;
        if before + size > MAX_QUEUED_BYTES || self.failure.get().is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            let dropped = waiting.dropped(interface);
            dropped.total += 1;
            dropped.since += 1;
            return;
        }
        let dropped = std::mem::take(&mut waiting.dropped(interface).since);
        let late = waiting.late.take();
        let chunk = waiting.open_chunk();
        let length = packet.len();
        chunk.entries.push(Entry { interface, metadata: *metadata, time, length, dropped });
        chunk.bytes.extend_from_slice(packet);
        if let Some(reason) = late {
            chunk.reasons.push((chunk.entries.len() - 1, reason));
        }
        waiting.size += size;
        waiting.taken += 1;
        let wake = before == 0 || before < CHUNK && before + size >= CHUNK;
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
    }

    /// Adds why a packet was refused to its last record or, if that is written already, to the next one, which is mostly
    /// the NAK or a retransmission.
    pub(super) fn annotate(&self, packet: &Bth, reason: &str) {
        let mut waiting = lock(&self.waiting);
        if !waiting.chunks.iter_mut().rev().any(|chunk| chunk.annotate(packet, reason)) {
            waiting.late = Some(format!("earlier packet with PSN {:#x}: {reason}", packet.psn.0));
        }
    }

    /// Waits for space for `size` bytes, unless the policy is to drop packets. A thread that fails ends the wait.
    fn wait_for_room(&self, size: usize) -> MutexGuard<'_, Waiting> {
        let full = |waiting: &mut Waiting| {
            waiting.size + size > MAX_QUEUED_BYTES
                && !waiting.closed
                && self.failure.get().is_none()
        };
        let waiting = lock(&self.waiting);
        if self.policy == CapturePolicy::Drop {
            return waiting;
        }
        self.written_out.wait_while(waiting, full).unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    pub(super) fn status(&self) -> CaptureStatus {
        CaptureStatus {
            written: self.written.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            failure: self.failure.get().cloned(),
        }
    }

    /// Waits for packets and takes them. Returns them with the interfaces to be described first, and whether they are the last.
    fn take(&self) -> (Chunk, Vec<Interface>, bool) {
        let waiting = lock(&self.waiting);
        let waiting = self.wake.wait_while(waiting, |waiting| waiting.size == 0 && !waiting.closed);
        let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        // A wakeup per packet would compete with the sending thread for the processor.
        let gathered = self.wake.wait_timeout_while(waiting, WRITE_INTERVAL, |waiting| {
            waiting.size < CHUNK && !waiting.closed && !waiting.hurry
        });
        let (mut waiting, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        let chunk = waiting.chunks.pop_front().unwrap_or_default();
        let empty = waiting.chunks.is_empty();
        if empty {
            waiting.hurry = false;
        }
        let interfaces = std::mem::take(&mut waiting.interfaces);
        (chunk, interfaces, empty && waiting.closed)
    }

    /// Finishes a chunk.
    fn finish(&self, mut chunk: Chunk) {
        let (count, size) = (chunk.entries.len() as u64, chunk.size());
        chunk.entries.clear();
        chunk.bytes.clear();
        chunk.reasons.clear();
        let mut waiting = lock(&self.waiting);
        waiting.finished += count;
        waiting.size -= size;
        if waiting.spare.len() < MAX_SPARE_CHUNKS {
            waiting.spare.push(chunk);
        }
        drop(waiting);
        self.written_out.notify_all();
    }

    /// Waits until all packets queued so far are written.
    pub(super) fn flush(&self) {
        let mut waiting = lock(&self.waiting);
        let taken = waiting.taken;
        waiting.hurry = true;
        self.wake.notify_one();
        let done = self.written_out.wait_while(waiting, |waiting| waiting.finished < taken);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    /// Ends the queue.
    pub(super) fn close(&self) {
        lock(&self.waiting).closed = true;
        self.wake.notify_one();
        self.written_out.notify_all();
    }

    /// The same, unless another thread holds the lock.
    pub(super) fn try_close(&self) -> Option<()> {
        self.waiting.try_lock().ok()?.closed = true;
        self.wake.notify_one();
        self.written_out.notify_all();
        Some(())
    }

    /// Whether everything is written and the file is closed.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// The main loop of the writer thread.
    pub(super) fn run(&self, mut writer: Writer) {
        loop {
            let (chunk, interfaces, last) = self.take();
            let written = match self.failure.get() {
                None => writer
                    .write(&interfaces, &chunk)
                    .map_err(|error| self.failure.set(error.to_string())),
                Some(_) => Err(Ok(())),
            };
            let counter = if written.is_ok() { &self.written } else { &self.dropped };
            counter.fetch_add(chunk.entries.len() as u64, Ordering::Relaxed);
            self.finish(chunk);
            if last {
                // After a write error, later packets are dropped; the status holds the reason.
                let dropped = std::mem::take(&mut lock(&self.waiting).dropped);
                let dropped: Vec<_> = dropped.iter().map(|dropped| dropped.total).collect();
                if let Err(error) = writer.end(&dropped) {
                    let _ = self.failure.set(error.to_string());
                }
                self.ended.store(true, Ordering::Release);
                return;
            }
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use ferroce_wire::number::Qpn;
    use ferroce_wire::udp_headers::Headers;

    use super::super::Owner;
    use super::*;

    pub(crate) fn metadata() -> PacketMetadata {
        let headers = Headers {
            source: "192.0.2.1:49152".parse().unwrap(),
            destination: "192.0.2.2:4791".parse().unwrap(),
        };
        PacketMetadata::sent(headers, 0, None, 0, Owner { queue_pair: Qpn(7), work: None })
    }

    #[test]
    fn packets_without_room_are_counted_where_they_are_missing() {
        let shared = Shared::new(CapturePolicy::Drop);
        let metadata = metadata();
        let room = MAX_QUEUED_BYTES / (4096 + size_of::<Entry>());
        for _ in 0..room + 500 {
            shared.push(0, &metadata, &[0; 4096]);
        }
        assert_eq!(shared.status().dropped, 500);
        assert!(lock(&shared.waiting).size <= MAX_QUEUED_BYTES);
        // The next packet that fits carries the count of dropped ones.
        let (chunk, _, last) = shared.take();
        assert!(!last && chunk.size() >= CHUNK && chunk.size() < CHUNK + 8192);
        assert!(chunk.entries.iter().all(|entry| entry.dropped == 0));
        shared.finish(chunk);
        shared.push(0, &metadata, &[0; 4096]);
        shared.push(0, &metadata, &[0; 4096]);
        let waiting = lock(&shared.waiting);
        let newest = waiting.chunks.back().unwrap().entries.iter().rev();
        let dropped: Vec<_> = newest.take(3).map(|entry| entry.dropped).collect();
        assert_eq!(dropped, [0, 500, 0]);
        assert_eq!(waiting.dropped[0].total, 500);
    }

    /// The sender waits for the disk, however fast it is.
    #[test]
    fn a_full_queue_is_waited_for() {
        let shared = Shared::new(CapturePolicy::Block);
        let packets = 3 * (MAX_QUEUED_BYTES / 60_000) as u64;
        let taken = std::thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let mut packets = 0;
                loop {
                    let (chunk, _, last) = shared.take();
                    packets += chunk.entries.len() as u64;
                    shared.finish(chunk);
                    if last {
                        return packets;
                    }
                }
            });
            (0..packets).for_each(|_| shared.push(0, &metadata(), &[0; 60_000]));
            shared.close();
            thread.join().unwrap()
        });
        assert_eq!((taken, shared.status().dropped), (packets, 0));
    }
}
