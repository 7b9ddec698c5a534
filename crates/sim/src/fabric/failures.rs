//! Failures of hosts and of the switch.

use super::Fabric;
use crate::fault::{Change, WhilePaused};
use crate::host::{Host, HostId};
use crate::limit::What;
use crate::statistics::DropCause;
use crate::trace::Trace;

impl<H: Host, T: Trace> Fabric<H, T> {
    /// Stops a host for good, or until [`Fabric::restart`]: gives back what it was, if it was up.
    pub fn crash(&mut self, id: HostId) -> Option<H> {
        let slot = self.hosts.get_mut(id.index())?;
        let host = slot.host.take()?;
        slot.timer = None;
        while let Some(flight) = self.hosts[id.index()].waiting.pop_front() {
            self.drop_frame(flight, DropCause::HostDown);
        }
        Some(host)
    }

    /// Puts a host in the place of one that crashed, or of one that is up. What is under way to it will arrive.
    pub fn restart(&mut self, id: HostId, host: H) -> Option<H> {
        let before = self.crash(id);
        let slot = self.hosts.get_mut(id.index())?;
        slot.host = Some(host);
        slot.statistics.restarts += 1;
        self.drain(id);
        before
    }

    /// Stops a host until [`Fabric::resume`], or as long as another pause lasts.
    pub fn pause(&mut self, id: HostId, arriving: WhilePaused) {
        if let Some(slot) = self.hosts.get_mut(id.index()) {
            slot.pauses += 1;
            slot.dropping += u32::from(arriving == WhilePaused::Drop);
        }
    }

    /// Ends a pause that was begun with the same `arriving`. The host goes on when all its pauses are over: it takes
    /// what waited, in order, and then its timeout if that has passed.
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
        self.drain(id);
    }

    /// Does what the plan says.
    pub(super) fn change(&mut self, number: u32) {
        let Some(&change) = self.changes.get(number as usize) else { return };
        let host = match change {
            Change::Partition(at) | Change::Heal(at) => {
                let partition = self.partitions.get(at as usize);
                partition.and_then(|partition| partition.one.first()).copied().unwrap_or_default()
            }
            Change::Pause(pause) | Change::Resume(pause) => pause.host,
            Change::Crash(host) | Change::Restart(host) => host,
        };
        self.progress.note(self.now, host, What::Failed);
        match change {
            Change::Partition(at) => {
                if let Some(partition) = self.partitions.get(at as usize) {
                    self.cuts.begin(at, partition, self.hosts.len());
                }
            }
            Change::Heal(at) => self.cuts.heal(at),
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
