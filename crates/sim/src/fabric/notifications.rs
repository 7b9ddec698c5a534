//! Notifications between hosts: wakeups between processes of a machine, which no fault of the network touches.

use super::Fabric;
use crate::event::Event;
use crate::event_log::EventLog;
use crate::host::{Host, HostId};
use crate::limit::EventKind;

impl<H: Host, T: EventLog> Fabric<H, T> {
    /// Notifies a host now, after the events of this time that are in the queue already.
    pub fn notify(&mut self, id: HostId) {
        if id.index() < self.hosts.len() {
            self.events.push(self.now, Event::Notification(id));
        }
    }

    /// Schedules the notifications that a host has requested.
    pub(super) fn schedule_notifications(&mut self, id: HostId) {
        let Some(host) = &mut self.hosts[id.index()].host else { return };
        while let Some((to, delay)) = host.poll_notification() {
            self.events.push(self.now + delay, Event::Notification(to));
        }
    }

    /// Notifies a host. One that is paused handles it when it continues, and one that is down never.
    pub(super) fn handle_notification(&mut self, id: HostId) {
        let Some(slot) = self.hosts.get_mut(id.index()) else { return };
        self.counter.note(self.now, id, EventKind::Notified);
        slot.notified = slot.pauses > 0 && slot.host.is_some();
        if slot.notified {
            return;
        }
        if let Some(host) = &mut slot.host {
            host.handle_notification(self.now);
        }
        self.drain(id);
    }
}
