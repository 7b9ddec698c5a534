//! Selection of a rate control, and the selected one.

use alloc::boxed::Box;

use super::{Blocked, Dcqcn, DcqcnParameters, Loss, RateControl, Unlimited, Window};
use crate::time::Instant;

/// The rate control of a QP.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// None, for receivers that cannot be overrun.
    Unlimited,
    /// A window of this many bytes, as counted by [`cost`](super::cost), which CNPs reduce.
    Window(usize),
    /// DCQCN, within a window.
    Dcqcn(DcqcnParameters),
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Window(Window::DEFAULT_SIZE)
    }
}

impl Congestion {
    /// Starts the rate control of a new flow.
    pub fn start(&self, now: Instant) -> Controller {
        let requests = match *self {
            Self::Unlimited => Requests::Unlimited(Unlimited::default()),
            Self::Window(size) => Requests::Window(Window::new(size)),
            Self::Dcqcn(parameters) => Requests::Dcqcn(Box::new(Dcqcn::new(parameters, now))),
        };
        Controller { requests, responses: None }
    }

    /// Whether CNPs reduce the rate: only then are packets ECN-capable (RFC 3168, section 5).
    pub const fn reacts(&self) -> bool {
        !matches!(self, Self::Unlimited)
    }
}

/// Rate control of a QP: of its requests and of its READ responses.
#[derive(Clone, Debug)]
pub struct Controller {
    requests: Requests,
    /// Paces READ responses where requests have a window: responses are not acknowledged, so a window cannot limit
    /// them. `None` until the first CNP.
    responses: Option<Box<Dcqcn>>,
}

/// Rate control of requests. DCQCN's large state is boxed.
#[derive(Clone, Debug)]
enum Requests {
    Unlimited(Unlimited),
    Window(Window),
    Dcqcn(Box<Dcqcn>),
}

/// Dispatches a call to the selected rate control.
macro_rules! dispatch {
    ($controller:expr, $inner:ident => $call:expr) => {
        match $controller {
            Requests::Unlimited($inner) => $call,
            Requests::Window($inner) => $call,
            Requests::Dcqcn($inner) => $call,
        }
    };
}

impl Controller {
    /// When the next packet of a READ response may be sent, if not now.
    pub fn next_response(&mut self, now: Instant) -> Option<Instant> {
        self.response_pacer()?.next_send(now)
    }

    /// Accounts for a packet of a READ response of this many bytes.
    pub fn on_response_sent(&mut self, now: Instant, bytes: usize) {
        if let Some(pacer) = self.response_pacer() {
            pacer.charge(now, bytes);
        }
    }

    /// DCQCN paces requests and responses together, as devices do.
    fn response_pacer(&mut self) -> Option<&mut Dcqcn> {
        match &mut self.requests {
            Requests::Dcqcn(both) => Some(both),
            Requests::Window(_) | Requests::Unlimited(_) => self.responses.as_deref_mut(),
        }
    }
}

impl RateControl for Controller {
    #[inline(always)]
    fn may_send(&mut self, now: Instant, bytes: usize) -> Result<(), Blocked> {
        dispatch!(&mut self.requests, inner => inner.may_send(now, bytes))
    }

    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: usize) {
        dispatch!(&mut self.requests, inner => inner.on_sent(now, bytes));
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, bytes: usize) {
        dispatch!(&mut self.requests, inner => inner.on_ack(now, bytes));
    }

    fn on_loss(&mut self, now: Instant, loss: Loss) {
        dispatch!(&mut self.requests, inner => inner.on_loss(now, loss));
    }

    fn on_cnp(&mut self, now: Instant) {
        dispatch!(&mut self.requests, inner => inner.on_cnp(now));
        if let Requests::Window(_) = self.requests {
            let new = || Box::new(Dcqcn::new(DcqcnParameters::default(), now));
            self.responses.get_or_insert_with(new).on_cnp(now);
        }
    }

    fn window(&self) -> usize {
        dispatch!(&self.requests, inner => inner.window())
    }

    fn in_flight(&self) -> usize {
        dispatch!(&self.requests, inner => inner.in_flight())
    }

    fn rate(&mut self, now: Instant) -> Option<u64> {
        dispatch!(&mut self.requests, inner => inner.rate(now))
    }
}
