//! The choice of a rate control, and the one that was chosen.

use alloc::boxed::Box;

use super::{Blocked, Dcqcn, DcqcnParameters, RateControl, Unlimited, Window};
use crate::time::Instant;

/// Which rate control a requester uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Congestion {
    /// None: for receivers that cannot be overrun.
    Unlimited,
    /// A window of so many bytes, as [`cost`](super::cost) counts them.
    Window(usize),
    /// DCQCN, within a window of its own.
    Dcqcn(DcqcnParameters),
}

impl Default for Congestion {
    fn default() -> Self {
        Self::Window(Window::DEFAULT_SIZE)
    }
}

impl Congestion {
    /// The rate control of a flow that begins now.
    pub fn start(&self, now: Instant) -> Controller {
        match *self {
            Self::Unlimited => Controller::Unlimited(Unlimited::default()),
            Self::Window(size) => Controller::Window(Window::new(size)),
            Self::Dcqcn(parameters) => Controller::Dcqcn(Box::new(Dcqcn::new(parameters, now))),
        }
    }
}

/// A flow's rate control. The common ones are held in place; DCQCN's state is large, and apart.
#[derive(Clone, Debug)]
pub enum Controller {
    /// See [`Congestion::Unlimited`].
    Unlimited(Unlimited),
    /// See [`Congestion::Window`].
    Window(Window),
    /// See [`Congestion::Dcqcn`].
    Dcqcn(Box<Dcqcn>),
}

/// Hands a call on to whichever it is.
macro_rules! each {
    ($controller:expr, $inner:ident => $call:expr) => {
        match $controller {
            Controller::Unlimited($inner) => $call,
            Controller::Window($inner) => $call,
            Controller::Dcqcn($inner) => $call,
        }
    };
}

impl RateControl for Controller {
    #[inline]
    fn may_send(&mut self, now: Instant, bytes: usize) -> Result<(), Blocked> {
        each!(self, inner => inner.may_send(now, bytes))
    }

    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: usize) {
        each!(self, inner => inner.on_sent(now, bytes));
    }

    #[inline]
    fn on_ack(&mut self, now: Instant, bytes: usize) {
        each!(self, inner => inner.on_ack(now, bytes));
    }

    fn on_loss(&mut self, now: Instant) {
        each!(self, inner => inner.on_loss(now));
    }

    fn on_cnp(&mut self, now: Instant) {
        each!(self, inner => inner.on_cnp(now));
    }

    fn window(&self) -> usize {
        each!(self, inner => inner.window())
    }

    fn in_flight(&self) -> usize {
        each!(self, inner => inner.in_flight())
    }

    fn rate(&mut self, now: Instant) -> Option<u64> {
        each!(self, inner => inner.rate(now))
    }
}
