//! The state of a port: whether its interface is up, and the contexts notified when that changes.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, Weak};

use ferroce_sys::interface::is_active;
use ferroce_sys::{NetlinkGroup, NetlinkMonitor};

use crate::device::Device;
use crate::event::{AsyncEvent, EventKind, Events, Source};
use crate::sync::lock;

#[derive(Debug)]
pub(crate) struct PortState {
    /// `None` if the kernel offers no such notifications; the port state then never changes.
    monitor: Option<NetlinkMonitor>,
    active: AtomicBool,
    /// The contexts that have opened the device.
    subscribers: Mutex<Vec<Weak<Events>>>,
}

impl PortState {
    pub(crate) fn new(device: &Device) -> Self {
        let monitor = NetlinkMonitor::new(NetlinkGroup::Interfaces)
            .ok()
            .filter(|monitor| monitor.set_subscribed(true).is_ok());
        // After subscribing, so that no change is missed.
        let active = is_active(&device.interface().name);
        Self { monitor, active: AtomicBool::new(active), subscribers: Mutex::default() }
    }

    /// The descriptor for the device thread to watch.
    pub(crate) fn watch(&self) -> Option<&NetlinkMonitor> {
        self.monitor.as_ref()
    }

    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed)
    }

    /// Notifies a context of changes from now on.
    pub(crate) fn subscribe(&self, events: &Arc<Events>) {
        let mut subscribers = lock(&self.subscribers);
        subscribers.retain(|one| one.strong_count() > 0);
        subscribers.push(Arc::downgrade(events));
    }

    /// Reads the interface's state after a netlink notification.
    pub(crate) fn refresh(&self, device: &Device) {
        if let Some(monitor) = &self.monitor {
            monitor.drain();
        }
        let active = is_active(&device.interface().name);
        if self.active.swap(active, Ordering::Relaxed) == active {
            return;
        }
        tracing::info!(device = device.name(), active, "port state changed");
        let kind = if active { EventKind::PortActive } else { EventKind::PortError };
        self.raise(kind);
    }

    /// Raises an event in all contexts that have opened the device.
    pub(crate) fn raise(&self, kind: EventKind) {
        for events in lock(&self.subscribers).iter().filter_map(Weak::upgrade) {
            events.raise(AsyncEvent { source: Source::Device, kind });
        }
    }
}
