//! Failures of hosts and of the switch.

use super::Fabric;
use crate::event_log::EventLog;
use crate::fault::{Change, WhilePaused};
use crate::host::{Host, HostId};
use crate::limit::EventKind;
use crate::statistics::DropCause;

impl<H: Host, T: EventLog> Fabric<H, T> {
    /// Crashes a host, until [`Fabric::restart`]. Returns the host if it was up.
    pub fn crash(&mut self, id: HostId) -> Option<H> {
        let slot = self.hosts.get_mut(id.index())?;
        let host = slot.host.take()?;
        slot.timer = None;
        slot.notified = false;
        while let Some(flight) = self.hosts[id.index()].waiting.pop_front() {
            self.drop_frame(flight, DropCause::HostDown);
        }
        Some(host)
    }

    /// Replaces a host, whether it crashed or is up. Frames in flight to it will arrive.
    pub fn restart(&mut self, id: HostId, host: H) -> Option<H> {
        let before = self.crash(id);
        let slot = self.hosts.get_mut(id.index())?;
        slot.host = Some(host);
        slot.statistics.restarts += 1;
        self.drain(id);
        before
    }

    /// Pauses a host until [`Fabric::resume`], or as long as another pause lasts.
    pub fn pause(&mut self, id: HostId, arriving: WhilePaused) {
        if let Some(slot) = self.hosts.get_mut(id.index()) {
            slot.pauses += 1;
            slot.dropping += u32::from(arriving == WhilePaused::Drop);
        }
    }

    /// Ends a pause that was begun with the same `arriving`. The host continues when all its pauses are over: it
    /// handles the queued frames in order, and then its timeout if that has expired.
    pub fn resume(&mut self, id: HostId, arriving: WhilePaused) {
        let Some(slot) = self.hosts.get_mut(id.index()) else { return };
        slot.pauses = slot.pauses.saturating_sub(1);
        if arriving == WhilePaused::Drop {
            slot.dropping = slot.dropping.saturating_sub(1);
        }
        if slot.pauses > 0 || slot.host.is_none() {
            return;
        }
        while let Some(flight) = self.hosts[id.index()].waiting.pop_front() {
            self.deliver(flight, id);
        }
        if std::mem::take(&mut self.hosts[id.index()].notified) {
            self.handle_notification(id);
        }
        self.drain(id);
    }

    /// Applies a change of the fault plan.
    pub(super) fn change(&mut self, number: u32) {
        let Some(&change) = self.changes.get(number as usize) else { return };
        let host = match change {
            Change::Partition(at) | Change::Heal(at) => {
                let partition = self.partitions.get(at as usize);
                partition
                    .and_then(|partition| partition.side_a.first())
                    .copied()
                    .unwrap_or_default()
            }
            Change::Pause(pause) | Change::Resume(pause) => pause.host,
            Change::Crash(host) | Change::Restart(host) => host,
        };
        self.counter.note(self.now, host, EventKind::Failed);
        match change {
            Change::Partition(at) => {
                if let Some(partition) = self.partitions.get(at as usize) {
                    self.active_partitions.begin(at, partition, self.hosts.len());
                }
            }
            Change::Heal(at) => self.active_partitions.heal(at),
            Change::Pause(pause) => self.pause(pause.host, pause.arriving),
            Change::Resume(pause) => self.resume(pause.host, pause.arriving),
            Change::Crash(host) => drop(self.crash(host)),
            Change::Restart(host) => {
                let is_down = self.hosts.get(host.index()).is_some_and(|slot| slot.host.is_none());
                if let Some(make) = self.factory.as_mut().filter(|_| is_down) {
                    let new = make(host, self.now);
                    drop(self.restart(host, new));
                }
            }
        }
    }
}
