//! Live capture: the collectors (`ferroce capture`) of this process's packets.
//!
//! A process looks for collectors when it opens a device, and when one that has just started notifies it. Packets go to
//! the collector through a ring in shared memory: the data path writes whole frames there, makes no system call, and
//! waits only if the ring is full and the collector asks for it. A thread per collector handles its messages and notices
//! its end; the process then goes on as before.
//!
//! Each packet is recorded once, by its sender. A process records a packet that it receives only if the sender's address
//! is not one that the collector has named, or if the packet was corrupted on its way.

pub(super) mod attachment;
pub(super) mod message;

use std::io;
use std::sync::{Arc, Mutex, Weak};

use ferroce_sys::capture_link::{self, CollectorName};
use ferroce_sys::{ForkMutex, signal};

use super::Tap;
use crate::sync::lock;
use attachment::Attachment;

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
    attach(Some(tap));
}

/// Looks for live collectors, after one has started. It says when to begin, after it has heard from the other processes.
pub fn look_for_collectors() {
    attach(None);
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

/// Adds a device that is `new`, and connects all devices to the collectors that are.
fn attach(new: Option<&Arc<Tap>>) {
    let mut live = LIVE.lock();
    live.check_process();
    if let Some(tap) = new {
        live.taps.retain(|tap| tap.strong_count() > 0);
        live.taps.push(Arc::downgrade(tap));
        live.attachments.iter().for_each(|attachment| connect(tap, attachment));
    }
    let taps: Vec<_> = live.taps().collect();
    // Without the table of sockets, nobody can collect.
    for collector in capture_link::collectors().unwrap_or_default() {
        if live.attachments.iter().any(|one| one.collector == collector && !one.has_ended()) {
            continue;
        }
        let attachment = match start(&collector) {
            Ok(attachment) => attachment,
            Err(error) => {
                tracing::warn!(%error, "a live capture cannot be joined: it lacks this process");
                continue;
            }
        };
        taps.iter().for_each(|tap| connect(tap, &attachment));
        if new.is_some() {
            attachment.begin();
        }
        live.attachments.push(attachment);
    }
    // Before the devices: the last reference to a device takes the lock.
    drop(live);
}

/// Connects to a collector, and starts the thread that handles its messages.
fn start(collector: &CollectorName) -> io::Result<Arc<Attachment>> {
    let attachment = Arc::new(Attachment::open(collector)?);
    let worker = Arc::clone(&attachment);
    let run = move || {
        worker.run();
        detach(&worker);
    };
    let thread = std::thread::Builder::new().name("ferroce-collect".into());
    signal::with_signals_blocked(|| thread.spawn(run))?;
    Ok(attachment)
}

fn connect(tap: &Tap, attachment: &Arc<Attachment>) {
    let interface = attachment.interface(&tap.interface);
    for source in lock(&tap.sources).iter() {
        attachment.add_source(*source);
    }
    tap.change_outputs(|outputs| outputs.push((Arc::clone(attachment), interface)));
}

/// Removes a collector that is gone.
fn detach(attachment: &Arc<Attachment>) {
    let mut live = LIVE.lock();
    live.attachments.retain(|one| !Arc::ptr_eq(one, attachment));
    let taps: Vec<_> = live.taps().collect();
    drop(live);
    for tap in taps {
        tap.change_outputs(|outputs| outputs.retain(|(one, _)| !Arc::ptr_eq(one, attachment)));
    }
}
