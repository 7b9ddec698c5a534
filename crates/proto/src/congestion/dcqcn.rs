//! DCQCN reaction point: CNPs cut the rate, time and bytes restore it.
//!
//! Integer arithmetic: rates in bits per second, alpha in units of 2^-32. Timers are processed when the rate is read,
//! so an idle QP costs nothing.

use core::time::Duration;

use super::{Blocked, Loss, NotificationPacer, RateControl, Window};
use crate::time::Instant;

/// 1.0 in the fixed-point format of alpha.
const ONE: u64 = 1 << 32;

/// DCQCN parameters, with the names and values of the paper (Zhu et al., SIGCOMM 2015, 3.1 and 5.2) where it gives
/// them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnParameters {
    /// Rate of the port in bits per second; every flow starts at it.
    pub line_rate: u64,
    /// Lower limit of the rate in bits per second. Not in the paper; devices always have one.
    pub min_rate: u64,
    /// g: alpha moves by 2^-shift of the distance to 1 or 0; 8 for g = 1/256.
    pub g_shift: u32,
    /// K: alpha decreases after this long without a CNP. Longer than the CNP interval.
    pub alpha_timer: Duration,
    /// Minimum time between two cuts; CNPs within it are ignored. The paper's N, which its notification point
    /// enforces; a device may send CNPs much more often.
    pub cut_interval: Duration,
    /// T: period of timer-driven rate increases.
    pub increase_timer: Duration,
    /// B: bytes per byte-driven rate increase.
    pub byte_counter: u64,
    /// F: number of increases in fast recovery.
    pub fast_recovery: u32,
    /// R_AI: additive increase in bits per second.
    pub additive: u64,
    /// R_HI: hyper increase in bits per second. The paper gives no value; ten times R_AI is common.
    pub hyper: u64,
    /// Bytes that may be sent ahead of their time, since software cannot be woken for every packet. Not in the paper.
    pub burst: usize,
    /// Maximum bytes in flight, as with [`Window`]: a lower rate does not protect a receiver that pauses.
    pub window: usize,
}

impl Default for DcqcnParameters {
    fn default() -> Self {
        Self {
            line_rate: 40_000_000_000,
            min_rate: 10_000_000,
            g_shift: 8,
            alpha_timer: Duration::from_micros(55),
            cut_interval: NotificationPacer::INTERVAL,
            increase_timer: Duration::from_micros(55),
            byte_counter: 10_000_000,
            fast_recovery: 5,
            additive: 40_000_000,
            hyper: 400_000_000,
            burst: 16 * 1024,
            window: Window::DEFAULT_SIZE,
        }
    }
}

/// Rate control by DCQCN, within a window.
#[derive(Clone, Debug)]
pub struct Dcqcn {
    parameters: DcqcnParameters,
    window: Window,
    /// R_C, the current rate.
    rate: u64,
    /// R_T, the target rate of recovery.
    target: u64,
    /// Alpha, the congestion estimate, in units of 1/[`ONE`].
    alpha: u64,
    /// Next decrease of alpha.
    alpha_due: Instant,
    /// No further cut before this time.
    next_cut: Instant,
    /// Next timer-driven increase.
    increase_due: Instant,
    /// Bytes since the last byte-driven increase.
    byte_count: u64,
    /// Timer-driven and byte-driven increases since the last cut.
    timer_steps: u32,
    byte_steps: u32,
    /// Whether a CNP was received. Before the first one, a flow is not limited (DCQCN 3.1, "RP algorithm").
    limited: bool,
    /// Nanoseconds per byte at the current rate, in units of 2^-32.
    byte_time: u64,
    /// Time at which the bytes sent so far are paid for, in 2^-32 ns.
    charged_until: u128,
}

impl Dcqcn {
    /// Starts a flow at line rate. Out-of-range parameters are clamped.
    pub fn new(parameters: DcqcnParameters, now: Instant) -> Self {
        let line_rate = parameters.line_rate.max(1_000);
        // A zero period would never be caught up with.
        let min_period = Duration::from_nanos(1_000);
        let parameters = DcqcnParameters {
            line_rate,
            min_rate: parameters.min_rate.clamp(1_000, line_rate),
            g_shift: parameters.g_shift.clamp(1, 10),
            alpha_timer: parameters.alpha_timer.max(min_period),
            increase_timer: parameters.increase_timer.max(min_period),
            byte_counter: parameters.byte_counter.max(1),
            // Bounds the number of steps to line rate, and so the cost of catching up.
            additive: parameters.additive.max(line_rate >> 16).max(1),
            ..parameters
        };
        let mut flow = Self {
            parameters,
            window: Window::new(parameters.window),
            rate: line_rate,
            target: line_rate,
            // Alpha is initially 1, so that the first CNP halves the rate (DCQCN 3.1).
            alpha: ONE,
            alpha_due: now + parameters.alpha_timer,
            next_cut: Instant::ZERO,
            increase_due: now + parameters.increase_timer,
            byte_count: 0,
            timer_steps: 0,
            byte_steps: 0,
            limited: false,
            byte_time: 0,
            charged_until: 0,
        };
        flow.set_rate(line_rate);
        flow
    }

    /// The parameters in use.
    pub const fn parameters(&self) -> &DcqcnParameters {
        &self.parameters
    }

    /// R_T, the target rate of recovery.
    pub fn target_rate(&mut self, now: Instant) -> u64 {
        self.catch_up(now);
        self.target
    }

    /// Alpha in units of 2^-32.
    pub fn alpha(&mut self, now: Instant) -> u64 {
        self.catch_up(now);
        self.alpha
    }

    /// When the rate allows the next packet, if not now. Does not check the window.
    pub(super) fn next_send(&mut self, now: Instant) -> Option<Instant> {
        if !self.limited {
            return None;
        }
        self.catch_up(now);
        let burst = u128::from(self.byte_time) * self.parameters.burst as u128;
        let earliest = self.charged_until.saturating_sub(burst).div_ceil(u128::from(ONE));
        let earliest = Instant::from_nanos(u64::try_from(earliest).unwrap_or(u64::MAX));
        (earliest > now).then_some(earliest)
    }

    /// Charges bytes to the rate, but not to the window.
    pub(super) fn charge(&mut self, now: Instant, bytes: usize) {
        if !self.limited {
            return;
        }
        self.catch_up(now);
        let from = self.charged_until.max(u128::from(now.as_nanos()) << 32);
        self.charged_until = from + u128::from(self.byte_time) * bytes as u128;
        self.byte_count = self.byte_count.saturating_add(bytes as u64);
        while self.byte_count >= self.parameters.byte_counter {
            self.byte_count -= self.parameters.byte_counter;
            self.byte_steps = self.byte_steps.saturating_add(1);
            self.increase();
        }
    }

    fn set_rate(&mut self, rate: u64) {
        self.rate = rate.clamp(self.parameters.min_rate, self.parameters.line_rate);
        // At most 2^55, at the minimum of 1 kbit/s: no overflow. The rounding error is a billionth of a packet's
        // time.
        let byte_time = (8_000_000_000u128 << 32) / u128::from(self.rate);
        self.byte_time = u64::try_from(byte_time).unwrap_or(u64::MAX);
    }

    /// Processes all timer expiries until now.
    fn catch_up(&mut self, now: Instant) {
        if !self.limited {
            return;
        }
        // A QP that was idle for an hour has missed millions of expiries. The first few thousand bring alpha to 0 and
        // the rate to line rate; the others change nothing.
        while self.alpha_due <= now && self.alpha > 0 {
            // DCQCN equation 2: alpha = (1 - g) alpha, for each K without a CNP.
            self.alpha -= (self.alpha >> self.parameters.g_shift).max(1);
            self.alpha_due = self.alpha_due + self.parameters.alpha_timer;
        }
        while self.increase_due <= now {
            if self.is_recovered() {
                self.skip_timer(now);
                break;
            }
            self.timer_steps = self.timer_steps.saturating_add(1);
            self.increase();
            self.increase_due = self.increase_due + self.parameters.increase_timer;
        }
    }

    fn is_recovered(&self) -> bool {
        self.rate == self.parameters.line_rate && self.target == self.parameters.line_rate
    }

    /// Skips the expiries until now when none changes the rate.
    fn skip_timer(&mut self, now: Instant) {
        let period = nanoseconds(self.parameters.increase_timer);
        let missed = nanoseconds(now.since(self.increase_due)) / period + 1;
        self.timer_steps =
            self.timer_steps.saturating_add(u32::try_from(missed).unwrap_or(u32::MAX));
        let ahead = Duration::from_nanos(missed.saturating_mul(period));
        self.increase_due = self.increase_due + ahead;
    }

    /// One rate increase (DCQCN 3.1, figure 7 and equations 3 and 4).
    fn increase(&mut self) {
        let steps = self.parameters.fast_recovery;
        if self.timer_steps.max(self.byte_steps) < steps {
            // Fast recovery: halfway to the target, which does not change.
        } else if self.timer_steps.min(self.byte_steps) > steps {
            self.target = self.target.saturating_add(self.parameters.hyper);
        } else {
            self.target = self.target.saturating_add(self.parameters.additive);
        }
        self.target = self.target.min(self.parameters.line_rate);
        // Rounded up so that the target is reached.
        self.set_rate(self.rate.midpoint(self.target).max((self.rate + 1).min(self.target)));
    }
}

impl RateControl for Dcqcn {
    fn may_send(&mut self, now: Instant, bytes: usize) -> Result<(), Blocked> {
        self.window.may_send(now, bytes)?;
        self.next_send(now).map_or(Ok(()), |time| Err(Blocked::Until(time)))
    }

    fn on_sent(&mut self, now: Instant, bytes: usize) {
        self.window.on_sent(now, bytes);
        self.charge(now, bytes);
    }

    fn on_ack(&mut self, now: Instant, bytes: usize) {
        self.window.on_ack(now, bytes);
    }

    /// DCQCN does not react to loss, which is rare in its networks. Neither does the rate here: CNPs arrive before a
    /// queue is full. The window does, since it determines how much go-back-N retransmits.
    fn on_loss(&mut self, now: Instant, loss: Loss) {
        self.window.on_loss(now, loss);
    }

    fn on_cnp(&mut self, now: Instant) {
        if now < self.next_cut {
            return;
        }
        self.next_cut = now + self.parameters.cut_interval;
        self.catch_up(now);
        if !self.limited {
            self.limited = true;
            self.charged_until = u128::from(now.as_nanos()) << 32;
        }
        // DCQCN equation 1, in its order: target, cut, alpha.
        self.target = self.rate;
        let cut = (u128::from(self.rate) * u128::from(self.alpha)) >> 33;
        self.set_rate(self.rate - u64::try_from(cut).unwrap_or(0));
        self.alpha += (ONE - self.alpha) >> self.parameters.g_shift;
        self.alpha_due = now + self.parameters.alpha_timer;
        self.increase_due = now + self.parameters.increase_timer;
        (self.byte_count, self.timer_steps, self.byte_steps) = (0, 0, 0);
    }

    fn window(&self) -> usize {
        self.window.window()
    }

    fn in_flight(&self) -> usize {
        self.window.in_flight()
    }

    fn rate(&mut self, now: Instant) -> Option<u64> {
        self.catch_up(now);
        Some(self.rate)
    }
}

fn nanoseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}
