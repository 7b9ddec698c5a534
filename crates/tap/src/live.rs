//! Live capture: the collectors (`ferroce capture`) of this process's packets.
//!
//! A process looks for collectors when it opens a device, and when one that has just started notifies it. Packets go to
//! the collector through a ring in shared memory: the data path writes whole frames there, makes no system call, and
//! waits only if the ring is full and the collector asks for it. A thread per collector handles its messages and notices
//! its end; the process then goes on as before.
//!
//! Each packet is recorded once, by its sender. A process records a packet that it receives only if the sender's address
//! is not one that the collector has named, or if the packet was corrupted on its way.

mod attachment;
pub(super) mod message;

use std::sync::{Arc, Mutex, Weak};

use ferroce_sys::{ForkMutex, capture_link, signal};

use super::{Interface, PacketMetadata, Tap};
use crate::sync::lock;
use attachment::Attachment;

/// A device's way to a collector.
#[derive(Debug)]
pub(super) struct LiveOutput {
    attachment: Arc<Attachment>,
    /// The number of the device in the records.
    interface: u32,
}

impl LiveOutput {
    pub(super) fn push(&self, device: &Interface, metadata: &PacketMetadata, packet: &[u8]) {
        self.attachment.push(self.interface, device, metadata, packet);
    }

    pub(super) fn add_source(&self, source: std::net::SocketAddr) {
        self.attachment.add_source(source);
    }
}

/// The devices and collectors of this process.
#[derive(Debug, Default)]
struct Live {
    process: u32,
    taps: Vec<Weak<Tap>>,
    attachments: Vec<Arc<Attachment>>,
}

/// The device thread locks it, too, and the program may fork at that moment.
static LIVE: ForkMutex<Live> = ForkMutex::new(
    [const { Mutex::new(Live { process: 0, taps: Vec::new(), attachments: Vec::new() }) }; 16],
);

impl Live {
    /// Forgets what belongs to the process that this one was forked from.
    fn check_process(&mut self) {
        let process = std::process::id();
        if self.process != process {
            *self = Self { process, ..Self::default() };
        }
    }

    fn taps(&self) -> impl Iterator<Item = Arc<Tap>> {
        self.taps.iter().filter_map(Weak::upgrade)
    }
}

/// Adds a device, and looks for collectors. The device has sent nothing yet, so it is recorded from its first packet on.
pub(super) fn register(tap: &Arc<Tap>) {
    let mut live = LIVE.lock();
    live.check_process();
    live.taps.retain(|tap| tap.strong_count() > 0);
    live.taps.push(Arc::downgrade(tap));
    for attachment in &live.attachments {
        connect(tap, attachment);
    }
    let taps = attach(&mut live, true);
    drop(live);
    drop(taps);
}

/// Looks for collectors. A new one says when to begin, after it has heard from the other processes.
pub(super) fn look() {
    let mut live = LIVE.lock();
    live.check_process();
    let taps = attach(&mut live, false);
    drop(live);
    drop(taps);
}

/// Removes a device. Without devices there is nothing to collect.
pub(super) fn unregister() {
    let mut live = LIVE.lock();
    if live.process != std::process::id() {
        return;
    }
    live.taps.retain(|tap| tap.strong_count() > 0);
    if live.taps.is_empty() {
        live.attachments.drain(..).for_each(|attachment| attachment.end());
    }
}

/// Connects to the collectors that are new. Returns the devices, to be dropped without the lock: the last reference to a
/// device takes it.
fn attach(live: &mut Live, begin: bool) -> Vec<Arc<Tap>> {
    let taps: Vec<_> = live.taps().collect();
    // Without the table of sockets, nobody can collect.
    for collector in capture_link::collectors().unwrap_or_default() {
        if live.attachments.iter().any(|one| one.collector == collector && !one.has_ended()) {
            continue;
        }
        let attachment = match Attachment::open(&collector) {
            Ok(attachment) => Arc::new(attachment),
            Err(error) => {
                tracing::warn!(%error, "a live capture cannot be joined: it lacks this process");
                continue;
            }
        };
        let worker = Arc::clone(&attachment);
        let thread = std::thread::Builder::new().name("ferroce-collect".into());
        let run = move || {
            worker.run();
            detach(&worker);
        };
        if let Err(error) = signal::with_signals_blocked(|| thread.spawn(run)) {
            tracing::warn!(%error, "a live capture cannot be joined: it lacks this process");
            continue;
        }
        taps.iter().for_each(|tap| connect(tap, &attachment));
        if begin {
            attachment.begin();
        }
        live.attachments.push(attachment);
    }
    taps
}

fn connect(tap: &Tap, attachment: &Arc<Attachment>) {
    let interface = attachment.interface(&tap.interface);
    for source in lock(&tap.sources).iter() {
        attachment.add_source(*source);
    }
    tap.add_output(LiveOutput { attachment: Arc::clone(attachment), interface });
}

/// Removes a collector that is gone.
fn detach(attachment: &Arc<Attachment>) {
    let mut live = LIVE.lock();
    live.attachments.retain(|one| !Arc::ptr_eq(one, attachment));
    let taps: Vec<_> = live.taps().collect();
    drop(live);
    for tap in taps {
        tap.remove_outputs(|output| Arc::ptr_eq(&output.attachment, attachment));
    }
}
