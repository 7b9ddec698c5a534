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

use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use ferroce_sys::signal;
use ferroce_wire::number::Qpn;

use super::adapter::Adapter;
use super::queue_pair::Core;
use super::thread;
use crate::error::OpenError;
use crate::options::{MAX_SHARDS, Options};
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

impl Options {
    /// The number of shards.
    pub(super) fn shard_count(&self) -> usize {
        usize::from(self.shards.unwrap_or(1).clamp(1, MAX_SHARDS))
    }
}

impl Handle {
    pub(super) fn start(adapter: Arc<Adapter>) -> Result<Arc<Self>, OpenError> {
        let more = (1..adapter.options.shard_count()).map(|_| OnceLock::new()).collect();
        let first = Shard::start(adapter)?;
        let process = std::process::id();
        let handle = Arc::new(Self { first, more, next: AtomicUsize::new(0), process });
        handle.first.adapter.set_handle(&handle);
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
        let open = || match Adapter::open_shard(&self.first.adapter, index as u8) {
            Ok(adapter) => Shard::start(adapter).ok(),
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

/// The shards of the QPs that use a CQ or a channel.
#[derive(Debug, Default)]
pub(crate) struct ShardSet(AtomicU32);

const _: () = assert!(MAX_SHARDS as u32 <= u32::BITS);

impl ShardSet {
    pub(crate) fn add(&self, shard: u8) {
        self.0.fetch_or(1 << shard, Ordering::Relaxed);
    }

    /// The first of them; `None` if there is none yet.
    pub(crate) fn first(&self) -> Option<u8> {
        let set = self.0.load(Ordering::Relaxed);
        (set != 0).then(|| set.trailing_zeros() as u8)
    }

    /// All of them; the first shard if there is none yet.
    #[inline]
    pub(crate) fn iter(&self) -> impl Iterator<Item = u8> + use<> {
        let mut left = self.0.load(Ordering::Relaxed).max(1);
        std::iter::from_fn(move || {
            let next = (left != 0).then(|| left.trailing_zeros() as u8)?;
            left &= left - 1;
            Some(next)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_lists_its_shards_in_order() {
        let set = ShardSet::default();
        assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (None, vec![0]));
        set.add(5);
        set.add(2);
        assert_eq!((set.first(), set.iter().collect::<Vec<_>>()), (Some(2), vec![2, 5]));
    }

    #[test]
    fn the_number_of_shards_is_bounded() {
        let with = |shards| Options { shards, ..Options::default() }.shard_count();
        assert_eq!((with(None), with(Some(0)), with(Some(3))), (1, 1, 3));
        assert_eq!(with(Some(200)), usize::from(MAX_SHARDS));
    }
}
