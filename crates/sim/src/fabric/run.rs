//! The event loop.

use std::cmp::Reverse;
use std::time::Duration;

use ferroce_proto::time::Instant;

use super::Fabric;
use crate::event::Event;
use crate::event_log::EventLog;
use crate::host::{Host, HostId};
use crate::limit::{Activity, EventKind, Limit, Limits, Outcome};

/// The number of hosts that an [`Activity`] lists.
const MAX_BUSIEST_HOSTS: usize = 4;

impl<H: Host, T: EventLog> Fabric<H, T> {
    /// Processes the next event. Returns `None` if there was one, otherwise [`Outcome::Idle`] or
    /// [`Outcome::LimitReached`].
    pub fn step(&mut self) -> Option<Outcome> {
        self.advance(None)
    }

    /// Runs until no event is left.
    pub fn run(&mut self) -> Outcome {
        self.run_until(|_| false)
    }

    /// Runs until the condition holds. It is evaluated before each event and should be quick.
    pub fn run_until(&mut self, mut condition: impl FnMut(&Self) -> bool) -> Outcome {
        loop {
            if condition(self) {
                return Outcome::Done;
            }
            if let Some(outcome) = self.step() {
                return outcome;
            }
        }
    }

    /// Runs until this time, including all events at it. The time is then `time`, even if no event was left before it.
    pub fn run_to(&mut self, time: Instant) -> Outcome {
        loop {
            match self.advance(Some(time)) {
                None => {}
                Some(outcome @ (Outcome::TimeReached | Outcome::Idle)) => {
                    self.now = self.now.max(time);
                    return outcome;
                }
                Some(outcome) => return outcome,
            }
        }
    }

    /// Runs for this duration, see [`Fabric::run_to`].
    pub fn run_for(&mut self, time: Duration) -> Outcome {
        self.run_to(self.now + time)
    }

    /// Replaces the limits. A run that reached one continues where it stopped.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.exceeded = None;
    }

    fn advance(&mut self, until: Option<Instant>) -> Option<Outcome> {
        loop {
            if let Some(limit) = self.exceeded {
                return Some(self.limit_reached(limit));
            }
            let Some((at, event)) = self.events.peek() else { return Some(Outcome::Idle) };
            if self.is_stale(at, event) {
                self.events.pop();
                continue;
            }
            if until.is_some_and(|until| at > until) {
                return Some(Outcome::TimeReached);
            }
            if let Some(limit) = self.counter.exceeded(&self.limits, at) {
                return Some(self.limit_reached(limit));
            }
            self.events.pop();
            self.now = self.now.max(at);
            self.dispatch(event);
            return None;
        }
    }

    /// Whether an event is obsolete: then it must not advance the time, nor keep a run from being idle. A timer whose
    /// deadline has moved is rescheduled here.
    fn is_stale(&mut self, at: Instant, event: Event) -> bool {
        let Event::Timer(id) = event else { return false };
        let slot = &mut self.hosts[id.index()];
        if slot.timer != Some(at) {
            return true;
        }
        let Some(host) = slot.host.as_mut().filter(|_| slot.pauses == 0) else {
            slot.timer = None;
            return true;
        };
        match host.poll_timeout() {
            Some(deadline) if deadline <= at => false,
            _ => {
                slot.timer = None;
                self.arm(id);
                true
            }
        }
    }

    fn dispatch(&mut self, event: Event) {
        match event {
            Event::Switch(flight) => self.forward(flight),
            Event::Trunk(flight, trunk) => self.end_of_trunk(flight, trunk),
            Event::Arrival(flight, host) => self.arrive(flight, host),
            Event::Notification(id) => self.handle_notification(id),
            Event::Fault(number) => self.change(number),
            Event::Poll(id) => {
                self.counter.note(self.now, id, EventKind::Polled);
                self.hosts[id.index()].poll_scheduled = false;
                self.drain(id);
            }
            Event::Timer(id) => {
                self.counter.note(self.now, id, EventKind::TimedOut);
                let slot = &mut self.hosts[id.index()];
                slot.timer = None;
                slot.statistics.timeouts += 1;
                if let Some(host) = &mut slot.host {
                    host.handle_timeout(self.now);
                }
                self.drain(id);
            }
        }
    }

    fn limit_reached(&self, limit: Limit) -> Outcome {
        let activity_of = |at: usize| {
            let counted = &self.hosts[at].statistics;
            counted.sent + counted.delivered + counted.timeouts
        };
        let mut hosts: Vec<usize> = (0..self.hosts.len()).collect();
        hosts.sort_by_key(|at| (Reverse(activity_of(*at)), *at));
        hosts.truncate(MAX_BUSIEST_HOSTS);
        Outcome::LimitReached(Box::new(Activity {
            limit,
            now: self.now,
            events: self.counter.events,
            totals: self.totals,
            recent: self.counter.recent(),
            busiest: hosts.into_iter().map(|at| (HostId(at as u32), activity_of(at))).collect(),
        }))
    }
}
