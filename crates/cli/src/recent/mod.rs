//! The last packets of every queue pair, for `ferroce top` and `ferroce dashboard`.
//!
//! | file | role |
//! |---|---|
//! | `history` | the last packets of each queue pair, and those around each loss, NAK or congestion mark |
//! | `view` | a packet in words |
//!
//! The packets come from the live capture (ADR 21), cut after the headers. A process whose ring is full drops them
//! instead of waiting: someone who looks must not slow down what is looked at.

mod history;
mod view;

use std::io::Write;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use ferroce_stat::snapshot::{Device, QueuePair};
use ferroce_sys::capture_link::Parameters;
use serde::Serialize;

use crate::capture::collector::{Chunk, Collector};
pub(crate) use history::Reason;
use history::{Histories, SNAP_LEN};
pub(crate) use view::{PacketView, Role};

/// How long packets are collected after they were last asked for.
const UNUSED: Duration = Duration::from_secs(10);

/// The memory of each process for packets that were not collected yet: some thousand packets.
const RING: u32 = 1 << 20;

/// A queue pair, as its packets name it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct QpAddress {
    pub(crate) pid: u32,
    pub(crate) number: u32,
    /// The first address of its device. It may send from others as well.
    pub(crate) address: Option<IpAddr>,
}

impl QpAddress {
    pub(crate) fn new(pid: u32, device: &Device, pair: &QueuePair) -> Self {
        Self { pid, number: pair.number, address: device.address }
    }
}

/// The packets around a loss, a NAK or a congestion mark.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Episode {
    /// What was the first that happened.
    pub(crate) reason: Reason,
    pub(crate) packets: Vec<PacketView>,
}

/// What is known of the packets of a queue pair, the oldest first.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Recent {
    pub(crate) packets: Vec<PacketView>,
    pub(crate) episodes: Vec<Episode>,
    /// Packets of all processes that came too fast to be collected.
    pub(crate) dropped: u64,
}

#[derive(Debug)]
struct State {
    histories: Histories,
    dropped: u64,
    stopped: bool,
    /// When someone last asked for packets.
    asked: Instant,
}

/// Collects packets until it is dropped, or until nobody asks for them any more.
#[derive(Debug)]
pub(crate) struct RecentPackets {
    state: Arc<Mutex<State>>,
    wake: UnixStream,
    thread: Option<JoinHandle<()>>,
}

impl RecentPackets {
    /// Starts to collect the packets of all processes of this user.
    ///
    /// # Errors
    ///
    /// A message for the user.
    pub(crate) fn collect() -> Result<Self, String> {
        Self::start(None)
    }

    fn start(unused: Option<Duration>) -> Result<Self, String> {
        let failed = |error: std::io::Error| format!("cannot collect packets: {error}");
        let (wake, woken) = UnixStream::pair().map_err(failed)?;
        let parameters = Parameters { block: false, snap_len: SNAP_LEN as u32, ring: RING };
        let collector = Collector::open(Some(parameters), &[])?;
        let (histories, asked) = (Histories::default(), Instant::now());
        let state = State { histories, dropped: 0, stopped: false, asked };
        let state = Arc::new(Mutex::new(state));
        let shared = Arc::clone(&state);
        let thread = thread::spawn(move || run(collector, &shared, &woken, unused));
        Ok(Self { state, wake, thread: Some(thread) })
    }

    /// The last packets of a queue pair.
    pub(crate) fn of(&self, qp: &QpAddress) -> Recent {
        let mut state = lock(&self.state);
        state.asked = Instant::now();
        let mut recent = state.histories.of(qp);
        recent.dropped = state.dropped;
        recent
    }
}

/// Collects packets only while someone asks for them: it costs the processes a copy of each header, and through shared
/// memory more.
#[derive(Debug, Default)]
pub(crate) struct RecentOnDemand(Mutex<Option<RecentPackets>>);

impl RecentOnDemand {
    /// The packets of a queue pair since they are asked for.
    ///
    /// # Errors
    ///
    /// A message for the user.
    pub(crate) fn of(&self, qp: &QpAddress) -> Result<Recent, String> {
        let mut current = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let ended =
            |recent: &RecentPackets| recent.thread.as_ref().is_none_or(JoinHandle::is_finished);
        match &*current {
            Some(recent) if !ended(recent) => Ok(recent.of(qp)),
            _ => Ok(current.insert(RecentPackets::start(Some(UNUSED))?).of(qp)),
        }
    }
}

impl Drop for RecentPackets {
    fn drop(&mut self) {
        lock(&self.state).stopped = true;
        let _ = self.wake.write_all(b"x");
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run(
    mut collector: Collector,
    state: &Mutex<State>,
    woken: &UnixStream,
    unused: Option<Duration>,
) {
    let mut chunk = Chunk::default();
    loop {
        // Only interfaces can fail, and there are none.
        let _ = collector.collect(&mut chunk);
        let mut state = lock(state);
        for packet in chunk.packets() {
            let process = collector.interfaces()[packet.interface].process.as_ref();
            let pid = process.map_or(0, |(pid, _)| *pid);
            state.histories.record(pid, &packet.header, packet.frame);
        }
        state.dropped = collector.dropped();
        if state.stopped || unused.is_some_and(|unused| state.asked.elapsed() > unused) {
            return;
        }
        drop(state);
        if !chunk.is_large() {
            collector.wait(&[woken], None);
        }
    }
}
