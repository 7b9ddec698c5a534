//! The state machine of a QP.

use super::attribute::QueuePairAttributes;
use super::error::ModifyError;
use super::incident::{Incident, react};
use super::permission::{Action, Permission};
use super::service::ServiceType;
use super::state::State;
use super::transition::modify;

/// Asynchronous events.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The send queue is drained, and the owner requested the event (IBA 11.6.3.1).
    #[doc(alias = "IBV_EVENT_SQ_DRAINED")]
    SendQueueDrained,
}

/// The state of a QP. It holds no queues: their owner reports what happens and asks what is permitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Machine {
    service: ServiceType,
    state: State,
    /// SQD has two phases: until all requests in flight have completed, and after that (IBA 10.3.1.5).
    draining: bool,
    drain_notice: bool,
}

impl Machine {
    /// Creates a QP in RESET.
    pub const fn new(service: ServiceType) -> Self {
        Self { service, state: State::Reset, draining: false, drain_notice: false }
    }

    /// The service type.
    pub const fn service(&self) -> ServiceType {
        self.service
    }

    /// The current state.
    pub const fn state(&self) -> State {
        self.state
    }

    /// Whether it is in SQD with requests in flight.
    #[doc(alias = "sq_draining")]
    pub const fn is_draining(&self) -> bool {
        self.draining
    }

    /// Whether the action is permitted now.
    #[inline]
    pub const fn permits(&self, action: Action) -> Permission {
        self.service.permits(self.state, action)
    }

    /// Changes the state as the owner requests, and returns the new state. The caller applies the values.
    ///
    /// After a change to SQD, report [`Incident::SendQueueDrained`] as soon as no request is in flight, possibly
    /// immediately.
    ///
    /// # Errors
    ///
    /// Those of [`modify`], and [`ModifyError::StillDraining`]; nothing has changed then.
    pub fn modify(&mut self, change: &QueuePairAttributes) -> Result<State, ModifyError> {
        let to = modify(self.service, self.state, change)?;
        // Requests in flight use the path and the counts that the change is about (IBA 10.3.1.5). RESET and ERR end
        // them, so these need not wait.
        if self.draining && matches!(to, State::SendQueueDrain | State::ReadyToSend) {
            return Err(ModifyError::StillDraining);
        }
        if to == State::SendQueueDrain && self.state != State::SendQueueDrain {
            self.draining = true;
            self.drain_notice = change.drain_notice.unwrap_or(false);
        }
        self.enter(to);
        Ok(to)
    }

    /// Handles an incident, which may change the state.
    pub fn handle_incident(&mut self, incident: Incident) -> Option<Event> {
        let drained = self.draining && incident == Incident::SendQueueDrained;
        self.enter(react(self.service, self.state, incident));
        if !drained {
            return None;
        }
        self.draining = false;
        self.drain_notice.then_some(Event::SendQueueDrained)
    }

    fn enter(&mut self, state: State) {
        self.state = state;
        if state != State::SendQueueDrain {
            self.draining = false;
            self.drain_notice = false;
        }
    }
}
