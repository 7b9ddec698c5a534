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

use ferroce_sys::clock::{self, FastClock};
use ferroce_sys::signal;
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
}

#[derive(Debug)]
struct Shard {
    adapter: Arc<Adapter>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// A shard of an open device.
struct OpenShard {
    adapter: Weak<Adapter>,
    /// The device, for its first shard.
    handle: Weak<Handle>,
}

impl OpenShard {
    /// The shard, unless it was closed. A forked child has none: the sockets and the thread belong to its parent.
    fn adapter(&self) -> Option<Arc<Adapter>> {
        self.adapter.upgrade().filter(|adapter| adapter.process == std::process::id())
    }
}

/// The shards of all devices that are open in this process.
static OPEN: Mutex<Vec<OpenShard>> = Mutex::new(Vec::new());

/// Shuts down all devices of this process before it exits: sends queued messages, forwards packets of other processes, as
/// closing the devices would, and completes the captures. No device works from then on. Bounded in time, because a process
/// that exits in the middle of a call may hold a lock that is never released.
pub fn shut_down() {
    const LONGEST: u64 = thread::DISCONNECT_TIMEOUT + 200_000_000;
    let Ok(open) = OPEN.try_lock() else { return };
    let adapters: Vec<_> = open.iter().filter_map(OpenShard::adapter).collect();
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
        let mut open = lock(&OPEN);
        open.retain(|shard| shard.adapter().is_some());
        let is_same = |adapter: Arc<Adapter>| {
            adapter.device.name() == device.name() && adapter.options == *options
        };
        let mut same = open.iter().filter(|shard| shard.adapter().is_some_and(is_same));
        if let Some(handle) = same.find_map(|shard| shard.handle.upgrade()) {
            return Ok(handle);
        }
        let first = Shard::open(device.clone(), options.clone(), 0, None)?;
        let more = (1..options.shard_count()).map(|_| OnceLock::new()).collect();
        let handle = Arc::new(Self { first, more, next: AtomicUsize::new(0) });
        let adapter = Arc::downgrade(handle.adapter());
        open.push(OpenShard { adapter, handle: Arc::downgrade(&handle) });
        Ok(handle)
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
        let first = self.adapter();
        let open = || {
            let (device, options) = (first.device.clone(), first.options.clone());
            let shard = Shard::open(device, options, index as u8, Some(first))
                .inspect_err(|error| tracing::info!(shard = index, %error, "shard not opened"))
                .ok()?;
            let adapter = Arc::downgrade(&shard.adapter);
            lock(&OPEN).push(OpenShard { adapter, handle: Weak::new() });
            Some(shard)
        };
        place.get_or_init(open).as_ref().map_or(0, |shard| shard.adapter.shard)
    }

    /// The QP with this number, in whichever shard.
    pub(crate) fn queue_pair(&self, number: Qpn) -> Option<Arc<Core>> {
        self.shards().find_map(|shard| shard.tables.queue_pair(number))
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.adapter().process != std::process::id() {
            return; // The threads stayed with the parent.
        }
        self.shards().for_each(|shard| shard.signals.stop());
        self.first.join();
        self.more.iter().filter_map(OnceLock::get).flatten().for_each(Shard::join);
    }
}

impl Shard {
    /// Opens a device, or a further shard of it if its `first` is given.
    fn open(
        device: Device,
        options: Options,
        shard: u8,
        first: Option<&DataPath>,
    ) -> Result<Self, OpenError> {
        let adapter = Arc::new(Adapter::new(DataPath::open(device, options, shard, first)?));
        let (device, slot) = (adapter.device.name(), adapter.tables.slot());
        tracing::info!(device, shard, slot, "device opened");
        let name = match shard {
            0 => format!("{device:.15}"),
            shard => format!("{device:.12}/{shard}"),
        };
        let worker = Arc::clone(&adapter);
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

/// Nanoseconds between two readings of the clock of a halted device: about what a pass takes.
const CLOCK_STEP: u64 = 100;

/// The device threads of a context are halted while this value lives, and its clocks advance by a step with each reading: how
/// often a pass looks at quiet sockets must not depend on the speed of the machine.
#[derive(Debug)]
pub struct PausedThread {
    handle: Arc<Handle>,
}

impl PausedThread {
    pub(crate) fn new(handle: Arc<Handle>) -> Self {
        for shard in handle.shards() {
            shard.pause.request(|| shard.signals.wake());
            set_clock(shard, FastClock::stepped(CLOCK_STEP));
        }
        Self { handle }
    }
}

impl Drop for PausedThread {
    fn drop(&mut self) {
        for shard in self.handle.shards() {
            set_clock(shard, FastClock::new());
            shard.pause.end();
        }
    }
}

/// Without its thread, only a program that uses it from several threads at once may own the device: its clock is not replaced.
fn set_clock(shard: &Adapter, clock: FastClock) {
    if let Some(mut driver) = shard.driver.try_own() {
        driver.clock = clock;
    }
}
