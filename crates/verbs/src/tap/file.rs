//! The queue between the data path and the disk, its thread, and which files are open.

use std::fs::{File, OpenOptions};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, RwLock};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use ferroce_trace::file::{self as trace, LinkType, Packet, PcapngWriter, Timestamp, WriteError};

use super::{CaptureStatus, Direction, Seen, frame};
use crate::completion::lock;
use crate::device::Device;
use ferroce_net::{clock, lock as file_lock, signal};

/// Bytes that wait at most. As many again are being written.
const LIMIT: usize = 8 << 20;

/// Bytes that are worth waking the thread for.
const WORTHWHILE: usize = 1 << 20;

/// How long fewer wait for company. The file is whole up to this.
const GATHER: Duration = Duration::from_millis(100);

/// An interface as the file describes it.
#[derive(Clone, Debug)]
pub(super) struct Interface {
    pub(super) name: String,
    /// Its Ethernet address; the loopback's is all zeroes.
    pub(super) mac: Option<[u8; 6]>,
}

impl Interface {
    pub(super) fn of(device: &Device) -> Self {
        let interface = device.interface();
        let mac = if interface.loopback { Some([0; 6]) } else { interface.mac };
        Self { name: device.name().to_owned(), mac }
    }
}

/// A packet that waits.
#[derive(Debug)]
struct Entry {
    interface: u32,
    seen: Seen,
    /// Nanoseconds since 1970.
    time: u64,
    /// Bytes of the packet.
    length: usize,
}

#[derive(Debug, Default)]
struct Queue {
    interfaces: Vec<Interface>,
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

impl Queue {
    fn size(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    fn clear(&mut self) {
        self.interfaces.clear();
        self.entries.clear();
        self.bytes.clear();
    }
}

#[derive(Debug, Default)]
struct Waiting {
    queue: Queue,
    /// Packets that were ever taken, and those of them that the thread is done with.
    taken: u64,
    finished: u64,
    /// Packets of each interface that were not taken.
    refused: Vec<u64>,
    /// Somebody waits until all is written.
    hurry: bool,
    closed: bool,
}

/// An open file, as the data path and the thread share it.
#[derive(Debug, Default)]
pub(super) struct Shared {
    waiting: Mutex<Waiting>,
    wake: Condvar,
    written_out: Condvar,
    /// Where the devices that write here send from.
    sources: RwLock<Vec<(IpAddr, u16)>>,
    written: AtomicU64,
    dropped: AtomicU64,
    failure: OnceLock<String>,
    /// The thread is done with the file.
    ended: AtomicBool,
}

impl Shared {
    /// Devices that write here send from these addresses.
    pub(super) fn add_sources(&self, sources: impl IntoIterator<Item = SocketAddr>) {
        let mut known = self.sources.write().unwrap_or_else(PoisonError::into_inner);
        known.extend(sources.into_iter().map(|address| (address.ip(), address.port())));
    }

    pub(super) fn is_source(&self, address: SocketAddr) -> bool {
        let sources = self.sources.read().unwrap_or_else(PoisonError::into_inner);
        sources.contains(&(address.ip(), address.port()))
    }

    pub(super) fn push(&self, interface: u32, seen: &Seen, packet: &[u8]) {
        let time = real_time();
        let mut waiting = lock(&self.waiting);
        let queue = &mut waiting.queue;
        let before = queue.size();
        if before + packet.len() > LIMIT || self.failure.get().is_some() {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            let index = interface as usize;
            if waiting.refused.len() <= index {
                waiting.refused.resize(index + 1, 0);
            }
            waiting.refused[index] += 1;
            return;
        }
        queue.entries.push(Entry { interface, seen: *seen, time, length: packet.len() });
        queue.bytes.extend_from_slice(packet);
        let wake = before == 0 || before < WORTHWHILE && queue.size() >= WORTHWHILE;
        waiting.taken += 1;
        drop(waiting);
        if wake {
            self.wake.notify_one();
        }
    }

    pub(super) fn status(&self) -> CaptureStatus {
        CaptureStatus {
            written: self.written.load(Ordering::Relaxed),
            dropped: self.dropped.load(Ordering::Relaxed),
            failure: self.failure.get().cloned(),
        }
    }

    /// Waits for something to write and takes it. False when nothing more will come.
    fn take(&self, queue: &mut Queue) -> bool {
        queue.clear();
        let waiting = lock(&self.waiting);
        let waiting =
            self.wake.wait_while(waiting, |waiting| waiting.queue.size() == 0 && !waiting.closed);
        let waiting = waiting.unwrap_or_else(PoisonError::into_inner);
        // A thread that woke for each packet would compete with who sends them.
        let gathered = self.wake.wait_timeout_while(waiting, GATHER, |waiting| {
            waiting.queue.size() < WORTHWHILE && !waiting.closed && !waiting.hurry
        });
        let (mut waiting, _) = gathered.unwrap_or_else(PoisonError::into_inner);
        std::mem::swap(&mut waiting.queue, queue);
        waiting.hurry = false;
        !waiting.closed
    }

    /// Waits until all that was taken so far is written.
    pub(super) fn flush(&self) {
        let mut waiting = lock(&self.waiting);
        let taken = waiting.taken;
        waiting.hurry = true;
        self.wake.notify_one();
        let done = self.written_out.wait_while(waiting, |waiting| waiting.finished < taken);
        drop(done.unwrap_or_else(PoisonError::into_inner));
    }

    /// What the thread does.
    fn run(&self, mut writer: Writer) {
        let mut queue = Queue::default();
        loop {
            let open = self.take(&mut queue);
            let count = queue.entries.len() as u64;
            let written = match self.failure.get() {
                None => writer.write(&queue).map_err(|error| self.failure.set(error.to_string())),
                Some(_) => Err(Ok(())),
            };
            let counter = if written.is_ok() { &self.written } else { &self.dropped };
            counter.fetch_add(count, Ordering::Relaxed);
            lock(&self.waiting).finished += count;
            self.written_out.notify_all();
            if !open {
                // A file that takes no more takes this neither; who asks finds the reason.
                let refused = std::mem::take(&mut lock(&self.waiting).refused);
                let ended = writer.end(&refused);
                if let Err(error) = ended {
                    let _ = self.failure.set(error.to_string());
                }
                self.ended.store(true, Ordering::Release);
                return;
            }
        }
    }
}

/// Makes frames and writes them.
struct Writer {
    file: PcapngWriter<File>,
    interfaces: Vec<Interface>,
    /// Packets of each interface that were written.
    packets: Vec<u64>,
    frame: Vec<u8>,
    comment: String,
}

impl Writer {
    fn new(file: File, first: Interface) -> Result<Self, WriteError> {
        let file = PcapngWriter::new(file)?;
        let mut writer = Self {
            file,
            interfaces: Vec::new(),
            packets: Vec::new(),
            frame: Vec::new(),
            comment: String::new(),
        };
        writer.add(&first)?;
        // Whether the disk is full shows now.
        writer.file.flush()?;
        Ok(writer)
    }

    fn add(&mut self, interface: &Interface) -> Result<(), WriteError> {
        self.file.add_interface(LinkType::ETHERNET, Some(&interface.name))?;
        self.interfaces.push(interface.clone());
        self.packets.push(0);
        Ok(())
    }

    fn write(&mut self, queue: &Queue) -> Result<(), WriteError> {
        for interface in &queue.interfaces {
            self.add(interface)?;
        }
        let mut rest = &queue.bytes[..];
        for entry in &queue.entries {
            let (packet, behind) = rest.split_at(entry.length.min(rest.len()));
            rest = behind;
            let Some(interface) = self.interfaces.get(entry.interface as usize) else { continue };
            frame::build(interface, &entry.seen, packet, &mut self.frame);
            frame::comment(&entry.seen, packet, &mut self.comment);
            let time = i64::try_from(entry.time).unwrap_or(i64::MAX);
            let direction = match entry.seen.direction {
                Direction::In => trace::Direction::Inbound,
                Direction::Out => trace::Direction::Outbound,
            };
            let record = Packet::new(Timestamp::from_nanoseconds(time), &self.frame);
            let record = record.on_interface(entry.interface).going(direction);
            self.file.write(&record.with_comment(&self.comment))?;
            self.packets[entry.interface as usize] += 1;
        }
        self.file.flush()
    }

    /// Says what is missing, and ends the file.
    fn end(&mut self, refused: &[u64]) -> Result<(), WriteError> {
        let now = i64::try_from(real_time()).unwrap_or(i64::MAX);
        for (index, &written) in self.packets.iter().enumerate() {
            let missing = refused.get(index).copied().unwrap_or(0);
            let until = Timestamp::from_nanoseconds(now);
            self.file.write_statistics(index as u32, until, written + missing, missing)?;
        }
        self.file.flush()
    }
}

/// Nanoseconds since 1970.
fn real_time() -> u64 {
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// A file that this process has, or had, open for captures.
#[derive(Debug)]
struct Known {
    process: u32,
    path: PathBuf,
    users: usize,
    interfaces: u32,
    open: Option<(Arc<Shared>, JoinHandle<()>)>,
    /// What became of it the times that it was open before.
    before: CaptureStatus,
}

static KNOWN: Mutex<Vec<Known>> = Mutex::new(Vec::new());

/// The name with the process's number in it where it says `%p`.
pub(super) fn expanded(path: &Path, process: u32) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains("%p") => text.replace("%p", &process.to_string()).into(),
        _ => path.to_owned(),
    }
}

/// Opens a file, or joins the devices of this process that write it, and returns the interface's number in it. A file
/// that this process had written and closed goes on with a section of its own.
pub(super) fn open(
    path: &Path,
    interface: Interface,
    sources: impl Iterator<Item = SocketAddr>,
) -> io::Result<(Arc<Shared>, u32)> {
    let process = std::process::id();
    let mut known = lock(&KNOWN);
    let index = match known.iter().position(|one| one.path == path) {
        Some(index) => index,
        None => {
            let path = path.to_owned();
            let before = CaptureStatus::default();
            known.push(Known { process, path, users: 0, interfaces: 0, open: None, before });
            known.len() - 1
        }
    };
    let entry = &mut known[index];
    if entry.process != process {
        let reason = "the process that this one was forked from writes it: put %p into its name";
        return Err(io::Error::other(reason));
    }
    let shared = match &entry.open {
        Some((shared, _)) => {
            lock(&shared.waiting).queue.interfaces.push(interface);
            Arc::clone(shared)
        }
        None => {
            let file = if entry.interfaces == 0 {
                // What is in it goes when nobody else writes it.
                // It has payload and keys in it, so it is for its owner alone.
                OpenOptions::new()
                    .write(true)
                    .create(true)
                    .truncate(false)
                    .mode(0o600)
                    .open(path)?
            } else {
                OpenOptions::new().append(true).open(path)?
            };
            // Two writers would damage it. What is no file, such as /dev/null, any number may write.
            if file.metadata()?.is_file() {
                if !file_lock::is_mine(&file)? {
                    return Err(io::Error::other(
                        "another process writes it: put %p into its name",
                    ));
                }
                if entry.interfaces == 0 {
                    file.set_len(0)?;
                }
            }
            let writer = Writer::new(file, interface).map_err(|error| match error {
                WriteError::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })?;
            let shared = Arc::new(Shared::default());
            let worker = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("ferroce-capture".into());
            let thread = signal::blocked(|| thread.spawn(move || worker.run(writer)))?;
            entry.interfaces = 0;
            entry.open = Some((Arc::clone(&shared), thread));
            shared
        }
    };
    shared.add_sources(sources);
    let number = entry.interfaces;
    entry.interfaces += 1;
    entry.users += 1;
    Ok((shared, number))
}

/// A device closes: the last of a file closes it, when all is written.
pub(super) fn release(shared: &Arc<Shared>) {
    let mut known = lock(&KNOWN);
    let process = std::process::id();
    let is_this = |one: &&mut Known| {
        one.process == process
            && one.open.as_ref().is_some_and(|(open, _)| Arc::ptr_eq(open, shared))
    };
    let Some(entry) = known.iter_mut().find(is_this) else { return };
    entry.users -= 1;
    if entry.users > 0 {
        return;
    }
    if let Some((shared, thread)) = entry.open.take() {
        lock(&shared.waiting).closed = true;
        shared.wake.notify_one();
        let _ = thread.join();
        entry.before = entry.before.clone().and(shared.status());
    }
}

/// The process is about to end, and its devices have stopped: ends the files that are open, if that can be done until
/// then. Who ends a process in the middle of a call may hold any of these locks for ever.
pub(super) fn end_all(until: u64) {
    let process = std::process::id();
    let mut open: Vec<Arc<Shared>> = Vec::new();
    let _ = patiently(until, || {
        let known = KNOWN.try_lock().ok()?;
        let ours = known.iter().filter(|one| one.process == process);
        open.extend(ours.filter_map(|one| Some(Arc::clone(&one.open.as_ref()?.0))));
        Some(())
    });
    for shared in &open {
        let closed = patiently(until, || {
            shared.waiting.try_lock().ok()?.closed = true;
            Some(())
        });
        shared.wake.notify_one();
        let ended = || shared.ended.load(Ordering::Acquire).then_some(());
        let _ = closed.and_then(|()| patiently(until, ended));
    }
}

/// Tries again until something is there, or it is too late.
fn patiently<T>(until: u64, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let found = attempt();
        if found.is_some() || clock::now() > until {
            return found;
        }
        std::thread::yield_now();
    }
}

/// How the files of this process went, and go.
pub(super) fn all() -> Vec<(PathBuf, CaptureStatus)> {
    let process = std::process::id();
    let Ok(known) = KNOWN.try_lock() else { return Vec::new() };
    let ours = known.iter().filter(|one| one.process == process);
    let status = |one: &Known| match &one.open {
        Some((shared, _)) => one.before.clone().and(shared.status()),
        None => one.before.clone(),
    };
    ours.map(|one| (one.path.clone(), status(one))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_can_have_the_process_in_it() {
        assert_eq!(expanded(Path::new("/a/%p-b.pcapng"), 42), Path::new("/a/42-b.pcapng"));
        assert_eq!(expanded(Path::new("/a/b"), 42), Path::new("/a/b"));
    }

    #[test]
    fn a_file_that_cannot_be_is_an_error_at_once() {
        let interface = Interface { name: "ferroce_lo".into(), mac: None };
        let path = Path::new("/nowhere/at/all.pcapng");
        let error = open(path, interface.clone(), std::iter::empty()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // A device that takes no byte, where the system has it.
        if Path::new("/dev/full").exists() {
            open(Path::new("/dev/full"), interface, std::iter::empty()).unwrap_err();
        }
    }

    #[test]
    fn a_file_has_one_writer() {
        let path = std::env::temp_dir().join(format!("ferroce-writer-{}", std::process::id()));
        std::fs::write(&path, "another's packets").unwrap();
        let other = File::open(&path).unwrap();
        assert!(file_lock::is_mine(&other).unwrap());
        let interface = Interface { name: "ferroce_lo".into(), mac: None };
        let error = open(&path, interface.clone(), std::iter::empty()).unwrap_err();
        assert!(error.to_string().contains("put %p into its name"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"another's packets");
        drop(other);
        let (shared, _) = open(&path, interface, std::iter::empty()).unwrap();
        release(&shared);
        assert_ne!(std::fs::read(&path).unwrap(), b"another's packets");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_finds_no_room_is_counted() {
        let shared = Shared::default();
        let seen = Seen {
            direction: Direction::Out,
            headers: crate::engine::Headers {
                source: "192.0.2.1:49152".parse().unwrap(),
                destination: "192.0.2.2:4791".parse().unwrap(),
            },
            traffic_class: 0,
            hop_limit: 64,
            identification: ferroce_wire::icrc::hidden::Identification::of_segment(0),
            owner: super::super::Owner { queue_pair: ferroce_wire::number::Qpn(7), work: None },
        };
        for _ in 0..5000 {
            shared.push(0, &seen, &[0; 4096]);
        }
        let status = shared.status();
        assert!((2900..3200).contains(&status.dropped), "{status:?}");
        assert_eq!(lock(&shared.waiting).refused, [status.dropped]);
        assert!(lock(&shared.waiting).queue.size() <= LIMIT + size_of::<Entry>());
    }
}
