//! The loop: one event after the other, until there is a reason to stop.

use std::cmp::Reverse;
use std::time::Duration;

use ferroce_proto::time::Instant;

use super::Fabric;
use crate::event::Event;
use crate::host::{Host, HostId};
use crate::limit::{Activity, Limit, Limits, Outcome, What};
use crate::trace::Trace;

/// How many hosts an [`Activity`] names.
const BUSIEST: usize = 4;

impl<H: Host, T: Trace> Fabric<H, T> {
    /// Lets the next thing happen. `None` if something did; otherwise why not, [`Outcome::Idle`] or
    /// [`Outcome::LimitReached`].
    pub fn step(&mut self) -> Option<Outcome> {
        self.advance(None)
    }

    /// Runs until nothing is left to happen.
    pub fn run(&mut self) -> Outcome {
        self.run_until(|_| false)
    }

    /// Runs until the condition holds, which is asked before each event: it should be a quick one.
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

    /// Runs until this time, and all that happens at it has happened. It is then this time, even if nothing was left to
    /// happen before.
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

    /// Runs for so long, see [`Fabric::run_to`].
    pub fn run_for(&mut self, time: Duration) -> Outcome {
        self.run_to(self.now + time)
    }

    /// The limits from now on. A run that reached one goes on where it stopped when there is room again.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
        self.exceeded = None;
    }

    fn advance(&mut self, until: Option<Instant>) -> Option<Outcome> {
        loop {
            if let Some(limit) = self.exceeded {
                return Some(self.give_up(limit));
            }
            let Some((at, event)) = self.events.peek() else { return Some(Outcome::Idle) };
            if self.is_stale(at, event) {
                self.events.pop();
                continue;
            }
            if until.is_some_and(|until| at > until) {
                return Some(Outcome::TimeReached);
            }
            if let Some(limit) = self.progress.exceeded(&self.limits, at) {
                return Some(self.give_up(limit));
            }
            self.events.pop();
            self.now = self.now.max(at);
            self.dispatch(event);
            return None;
        }
    }

    /// Whether an event has lost its reason: it must not move the time then, nor keep a run from being idle. A timer
    /// whose deadline has moved is scheduled anew here.
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
            Event::InboundPacket(flight, host) => self.arrive(flight, host),
            Event::Fault(number) => self.change(number),
            Event::Poll(id) => {
                self.progress.note(self.now, id, What::Polled);
                self.hosts[id.index()].awaits_room = false;
                self.drain(id);
            }
            Event::Timer(id) => {
                self.progress.note(self.now, id, What::TimedOut);
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

    fn give_up(&self, limit: Limit) -> Outcome {
        let busy = |at: usize| {
            let counted = &self.hosts[at].statistics;
            counted.sent + counted.delivered + counted.timeouts
        };
        let mut hosts: Vec<usize> = (0..self.hosts.len()).collect();
        hosts.sort_by_key(|at| (Reverse(busy(*at)), *at));
        hosts.truncate(BUSIEST);
        Outcome::LimitReached(Box::new(Activity {
            limit,
            now: self.now,
            events: self.progress.events,
            totals: self.totals,
            recent: self.progress.recent(),
            busiest: hosts.into_iter().map(|at| (HostId(at as u32), busy(at))).collect(),
        }))
    }
}
