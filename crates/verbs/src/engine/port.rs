//! The port of a device: whether its interface is on, and who is subscribers when that changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_sys::interface::is_active;
use ferroce_sys::{NetlinkGroup, NetlinkMonitor};

use crate::device::Device;
use crate::event::{AsyncEvent, EventKind, Events, Source};
use crate::sync::lock;

#[derive(Debug)]
pub(crate) struct Port {
    /// `None` where the system has no such monitor: then the port stays as it is.
    monitor: Option<NetlinkMonitor>,
    active: AtomicBool,
    /// Who has opened the device.
    subscribers: Mutex<Vec<Weak<Events>>>,
}

impl Port {
    pub(crate) fn new(device: &Device) -> Self {
        let monitor = NetlinkMonitor::of(Subject::Interfaces)
            .ok()
            .filter(|monitor| monitor.listen(true).is_ok());
        // After it listens, so that no change is missed.
        let active = is_active(&device.interface().name);
        Self { monitor, active: AtomicBool::new(active), subscribers: Mutex::default() }
    }

    /// What the device's thread watches.
    pub(crate) fn watch(&self) -> Option<&NetlinkMonitor> {
        self.monitor.as_ref()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Tells this one of changes from now on.
    pub(crate) fn subscribe(&self, events: &Arc<Events>) {
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|one| one.strong_count() > 0);
        subscribers.push(Arc::downgrade(events));
    }

    /// There are monitor of interfaces: maybe of ours.
    pub(crate) fn refresh(&self, device: &Device) {
        if let Some(monitor) = &self.monitor {
            monitor.clear();
        }
        let active = is_active(&device.interface().name);
        if self.active.swap(active, Ordering::Relaxed) == active {
            return;
        }
        let kind = if active { EventKind::PortActive } else { EventKind::PortError };
        self.raise(kind);
    }

    /// Tells all who have opened the device.
    pub(crate) fn raise(&self, kind: EventKind) {
        for events in lock(&self.subscribers).iter().filter_map(Weak::upgrade) {
            events.raise(AsyncEvent { source: Source::Device, kind });
        }
    }
}
