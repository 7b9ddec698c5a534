//! The shards of an open device: each has its own sockets, QPNs, driver and thread, so that a process can use more than one
//! core per device.
//!
//! A shard is to the rest of the host what a further process is: it has a slot of its own, peers address its QPs by their
//! QPNs, and packets that reach another shard are forwarded. Within the process, shards share the registered memory, the
//! SRQs, the counters and the capture. The connection manager belongs to the first.
//!
//! A QP belongs to the shard that another QP of its CQs or of their channels belongs to already, otherwise to the next one:
//! a thread that polls a CQ then drives one shard, and threads with CQs of their own do not compete. A shard is opened when
//! the first QP needs it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::thread::JoinHandle;

use ferroce_sys::{clock, signal};
use ferroce_wire::number::Qpn;

use super::adapter::Adapter;
use super::data_path::DataPath;
use super::queue_pair::Core;
use super::thread;
use crate::device::Device;
use crate::error::OpenError;
use crate::options::Options;
use crate::sync::lock;

/// An open device: its threads stop when this is dropped.
#[derive(Debug)]
pub(crate) struct Handle {
    first: Shard,
    /// The further shards; `None` for one that could not be opened.
    more: Box<[OnceLock<Option<Shard>>]>,
    /// Counts the QPs that were free to choose.
    next: AtomicUsize,
    process: u32,
}

#[derive(Debug)]
struct Shard {
    adapter: Arc<Adapter>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A shard of a device that is open in this process.
struct OpenShard {
    process: u32,
    adapter: Weak<Adapter>,
    /// The device, for its first shard.
    handle: Weak<Handle>,
}

/// The shards of all devices that are open in this process. A forked child has none: the sockets and the thread belong to its
/// parent.
static OPEN: Mutex<Vec<OpenShard>> = Mutex::new(Vec::new());

/// Shuts down all devices before the process exits: sends queued messages and forwards packets of other processes,
/// as closing the devices would. Bounded in time, because a process that exits in the middle of a call may hold a
/// lock that is never released.
pub(crate) fn shut_down_all() {
    const LONGEST: u64 = thread::DISCONNECT_TIMEOUT + 200_000_000;
    let process = std::process::id();
    let Ok(open) = OPEN.try_lock() else { return };
    let ours = open.iter().filter(|shard| shard.process == process);
    let adapters: Vec<_> = ours.filter_map(|shard| shard.adapter.upgrade()).collect();
    drop(open);
    adapters.iter().for_each(|adapter| adapter.signals.stop());
    let until = clock::now() + LONGEST;
    while !adapters.iter().all(|adapter| adapter.signals.has_stopped()) && clock::now() < until {
        std::thread::yield_now();
    }
    // Dropping the last reference would close sockets that the program may still use.
    adapters.into_iter().for_each(std::mem::forget);
    // Writing captures to a disk may take longer than sending.
    ferroce_tap::finish_all(clock::now() + 2_000_000_000);
}

impl Handle {
    /// The device as this process has it, opened now if it was not. The thread ends with the last handle.
    pub(crate) fn open(device: &Device, options: &Options) -> Result<Arc<Self>, OpenError> {
        let process = std::process::id();
        let mut open = lock(&OPEN);
        open.retain(|shard| shard.process == process && shard.adapter.strong_count() > 0);
        let is_same = |shard: &&OpenShard| {
            let is_same = |adapter: Arc<Adapter>| {
                adapter.device.name() == device.name() && adapter.options == *options
            };
            shard.adapter.upgrade().is_some_and(is_same)
        };
        if let Some(handle) = open.iter().filter(is_same).find_map(|shard| shard.handle.upgrade()) {
            return Ok(handle);
        }
        let adapter = Arc::new(Adapter::new(DataPath::open(device.clone(), options.clone())?));
        tracing::info!(device = device.name(), slot = adapter.tables.slot(), "device opened");
        let handle = Self::start(Arc::clone(&adapter))?;
        let (adapter, weak) = (Arc::downgrade(&adapter), Arc::downgrade(&handle));
        open.push(OpenShard { process, adapter, handle: weak });
        Ok(handle)
    }

    fn start(adapter: Arc<Adapter>) -> Result<Arc<Self>, OpenError> {
        let more = (1..adapter.options.shard_count()).map(|_| OnceLock::new()).collect();
        let first = Shard::start(adapter)?;
        let process = std::process::id();
        Ok(Arc::new(Self { first, more, next: AtomicUsize::new(0), process }))
    }

    /// The first shard: it has the connection manager.
    pub(crate) fn adapter(&self) -> &Arc<Adapter> {
        &self.first.adapter
    }

    /// The shard with this number; the first, if there is none.
    pub(crate) fn shard(&self, number: u8) -> &Arc<Adapter> {
        let more = usize::from(number).checked_sub(1).and_then(|index| self.more.get(index));
        let shard = more.and_then(OnceLock::get).and_then(Option::as_ref);
        &shard.unwrap_or(&self.first).adapter
    }

    /// The open shards.
    pub(crate) fn shards(&self) -> impl Iterator<Item = &Arc<Adapter>> {
        let more = self.more.iter().filter_map(OnceLock::get).flatten();
        std::iter::once(&self.first).chain(more).map(|shard| &shard.adapter)
    }

    /// The shard for a QP that may be in any, opened if it was not.
    pub(crate) fn next_shard(&self) -> u8 {
        let index = self.next.fetch_add(1, Ordering::Relaxed) % (self.more.len() + 1);
        let Some(place) = index.checked_sub(1).and_then(|index| self.more.get(index)) else {
            return 0;
        };
        let open = || match Shard::open(&self.first.adapter, index as u8) {
            Ok(shard) => Some(shard),
            Err(error) => {
                tracing::info!(shard = index, %error, "shard not opened");
                None
            }
        };
        place.get_or_init(open).as_ref().map_or(0, |shard| shard.adapter.shard)
    }

    /// The QP with this number, in whichever shard.
    pub(crate) fn queue_pair(&self, number: Qpn) -> Option<Arc<Core>> {
        self.shards().find_map(|shard| shard.tables.queue_pair(number))
    }

    /// Removes an SRQ. After this call no shard uses it.
    pub(crate) fn destroy_receive_queue(&self, number: Qpn) {
        self.first.adapter.tables.remove_receive_queue(number);
        self.shards().for_each(|shard| shard.wait_for_pass());
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.process != std::process::id() {
            return; // The threads stayed with the parent.
        }
        self.shards().for_each(|shard| shard.signals.stop());
        self.first.join();
        self.more.iter().filter_map(OnceLock::get).flatten().for_each(Shard::join);
    }
}

impl Shard {
    /// Opens a further shard of a device.
    fn open(first: &Adapter, shard: u8) -> Result<Self, OpenError> {
        let adapter = Arc::new(Adapter::new(DataPath::open_shard(first, shard)?));
        tracing::info!(shard, slot = adapter.tables.slot(), "shard opened");
        let weak = Arc::downgrade(&adapter);
        lock(&OPEN).push(OpenShard { process: first.process, adapter: weak, handle: Weak::new() });
        Self::start(adapter)
    }

    fn start(adapter: Arc<Adapter>) -> Result<Self, OpenError> {
        let worker = Arc::clone(&adapter);
        let name = match adapter.shard {
            0 => format!("{:.15}", adapter.device.name()),
            shard => format!("{:.12}/{shard}", adapter.device.name()),
        };
        let thread = std::thread::Builder::new().name(name);
        let thread = signal::with_signals_blocked(|| thread.spawn(move || thread::run(&worker)))
            .map_err(OpenError::Thread)?;
        Ok(Self { adapter, thread: Mutex::new(Some(thread)) })
    }

    fn join(&self) {
        let thread = lock(&self.thread).take();
        // The device thread itself may drop the last handle, in an event handler.
        if let Some(thread) = thread.filter(|one| one.thread().id() != std::thread::current().id())
        {
            let _ = thread.join();
        }
    }
}
