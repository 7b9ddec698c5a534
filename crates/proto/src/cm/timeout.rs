//! Timeouts: retransmissions, giving up, and the end of TimeWait (IBA 12.9.8).

use ferroce_wire::cm::CommId;

use super::ConnectionManager;
use super::event::{Disconnection, Event, Failure};
use super::parameters::ConnectionId;
use super::private_data::DrepData;
use super::state::{State, Trigger};
use super::timer::Timer;
use crate::time::Instant;

impl ConnectionManager {
    /// Handles every expired timer.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.timers.due(now) {
            match timer {
                Timer::Connection(id) => self.connection_timeout(now, CommId(id)),
                Timer::Resolution(id) => self.resolution_timeout(now, CommId(id)),
                Timer::Query(id) => self.query_timeout(CommId(id)),
                Timer::Keepalive => self.keepalive_timeout(now),
                Timer::Overtaking => self.handle_overtaking(now),
            }
        }
    }

    fn connection_timeout(&mut self, now: Instant, id: CommId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        match connection.state {
            State::RepSent | State::MraRepReceived => self.rep_timeout(now, id),
            State::ReqSent | State::MraReqReceived | State::DreqSent
                if connection.retries < connection.max_retries =>
            {
                connection.retries += 1;
                let deadline = now + connection.response;
                connection.arm(&mut self.timers, Some(deadline));
                self.transmits.extend(connection.retransmission());
                // Leaves the MRA state; the other states have no such transition and stay.
                let _ = self.table.step(id, Trigger::Repeat);
            }
            State::ReqSent | State::MraReqReceived => self.give_up(now, id, Failure::Unreachable),
            State::ReqReceived | State::MraReqSent | State::RepReceived | State::MraRepSent => {
                self.give_up(now, id, Failure::ConsumerTooSlow);
            }
            State::DreqSent => {
                // The connection ends anyway: the peer is lost or knows (IBA 12.9.8).
                if self.table.step(id, Trigger::GiveUp).is_ok() {
                    self.finish_transition(now, id);
                    let over = Disconnection::Unconfirmed;
                    self.events.push_back(Event::Disconnected(ConnectionId(id), over));
                }
            }
            State::DreqReceived => {
                let _ = self.confirm(now, id, Trigger::GiveUp, DrepData::default());
            }
            State::TimeWait => {
                if self.table.step(id, Trigger::TimeWaitEnded).is_ok() {
                    self.finish_transition(now, id);
                    self.events.push_back(Event::TimeWaitEnded(ConnectionId(id)));
                }
            }
            State::Established => self.continue_probe(now, id),
            State::Idle => {}
        }
    }

    /// Without an RTU, retransmits the REP until the half-open connection expires.
    fn rep_timeout(&mut self, now: Instant, id: CommId) {
        let Some(connection) = self.table.get_mut(id) else { return };
        if now >= connection.give_up_at {
            return self.give_up(now, id, Failure::NeverReady);
        }
        // Without retries left, an MRA of the peer has moved the end.
        if connection.retries == connection.rep_retries() {
            let end = connection.give_up_at;
            return connection.arm(&mut self.timers, Some(end));
        }
        connection.retries += 1;
        let interval = connection.rep_interval * (1 << connection.retries);
        let deadline = (now + interval).min(connection.give_up_at);
        connection.arm(&mut self.timers, Some(deadline));
        self.transmits.extend(connection.retransmission());
        // Leaves the MRA state.
        let _ = self.table.step(id, Trigger::Repeat);
    }

    /// Ends an attempt without a response, and sends a REJ (IBA 12.6.7.2, reason 4).
    fn give_up(&mut self, now: Instant, id: CommId, failure: Failure) {
        let Some(connection) = self.table.get(id) else { return };
        let rej = connection.transmit(connection.timeout_rej(&self.config));
        if self.table.step(id, Trigger::GiveUp).is_ok() {
            self.transmits.push_back(rej);
            self.finish_transition(now, id);
            self.events.push_back(Event::Failed(ConnectionId(id), failure));
        }
    }
}
