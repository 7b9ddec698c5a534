//! The reaction point of DCQCN: a rate that notifications cut and that time and bytes restore.
//!
//! In integers: rates are bits a second, alpha is a fraction of 2^32. Timers are caught up with when the rate is
//! asked for, so a queue pair at rest costs nothing.

use core::time::Duration;

use super::{Blocked, NotificationPacer, RateControl, Window};
use crate::time::Instant;

/// One, in the fixed point of alpha.
const ONE: u64 = 1 << 32;

/// The parameters of DCQCN, under the names and with the values of its paper (Zhu et al., SIGCOMM 2015, 3.1 and 5.2)
/// where it has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DcqcnParameters {
    /// The fastest that the port can, bits a second; every flow starts with it.
    pub line_rate: u64,
    /// The slowest that notifications can make a flow, bits a second. Not of the paper: there is always one in a
    /// device.
    pub min_rate: u64,
    /// g: alpha moves by 1/2^shift of the way to 1 or 0; 8 for g = 1/256.
    pub g_shift: u32,
    /// K: without a notification for so long, alpha decreases. Above the interval of notifications.
    pub alpha_timer: Duration,
    /// The shortest time between two cuts: CNPs that come sooner after a cut are ignored. The paper's N, which its
    /// notification point keeps to; a device may send CNPs much more often.
    pub cut_interval: Duration,
    /// T: the rate increases once in so long.
    pub increase_timer: Duration,
    /// B: the rate increases once for so many bytes.
    pub byte_counter: u64,
    /// F: so many increases are fast recovery.
    pub fast_recovery: u32,
    /// R_AI: an additive increase, bits a second.
    pub additive: u64,
    /// R_HI: a hyper increase, bits a second. The paper has no value; ten times the additive is common.
    pub hyper: u64,
    /// How many bytes may go at once, ahead of their time: software cannot be woken for each packet. Not of the
    /// paper.
    pub burst: usize,
    /// The most bytes under way, as with [`Window`]: a lower rate does not protect a receiver that pauses.
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
    /// R_T, the rate to recover to.
    target: u64,
    /// Alpha, the estimate of how congested the way is, in parts of [`ONE`].
    alpha: u64,
    /// When alpha decreases next.
    alpha_due: Instant,
    /// Before this the rate is not cut again.
    cut_after: Instant,
    /// When the timer increases the rate next.
    increase_due: Instant,
    /// Bytes since the byte counter's last expiry.
    counted: u64,
    /// How often the timer and the byte counter expired since the last cut.
    timer_steps: u32,
    byte_steps: u32,
    /// Whether any notification came yet. Before, a flow has no limiter: it goes at line rate (DCQCN 3.1, "RP
    /// algorithm").
    limited: bool,
    /// Nanoseconds for a byte at the current rate, in parts of 2^32.
    byte_time: u64,
    /// When the bytes sent so far are paid for, in 2^-32 ns.
    paid_until: u128,
}

impl Dcqcn {
    /// A flow that begins now, at line rate. Parameters that make no sense are taken as the nearest that do.
    pub fn new(parameters: DcqcnParameters, now: Instant) -> Self {
        let line_rate = parameters.line_rate.max(1_000);
        // A timer without duration would never be caught up with.
        let shortest = Duration::from_nanos(1_000);
        let parameters = DcqcnParameters {
            line_rate,
            min_rate: parameters.min_rate.clamp(1_000, line_rate),
            g_shift: parameters.g_shift.clamp(1, 10),
            alpha_timer: parameters.alpha_timer.max(shortest),
            increase_timer: parameters.increase_timer.max(shortest),
            byte_counter: parameters.byte_counter.max(1),
            // Bounds the steps to line rate, and with them the time that catching up takes.
            additive: parameters.additive.max(line_rate >> 16).max(1),
            ..parameters
        };
        let mut flow = Self {
            parameters,
            window: Window::new(parameters.window),
            rate: line_rate,
            target: line_rate,
            // DCQCN 3.1: alpha is 1 at first, so that the first notification halves the rate.
            alpha: ONE,
            alpha_due: now + parameters.alpha_timer,
            cut_after: Instant::ZERO,
            increase_due: now + parameters.increase_timer,
            counted: 0,
            timer_steps: 0,
            byte_steps: 0,
            limited: false,
            byte_time: 0,
            paid_until: 0,
        };
        flow.set_rate(line_rate);
        flow
    }

    /// The parameters in use.
    pub const fn parameters(&self) -> &DcqcnParameters {
        &self.parameters
    }

    /// R_T: the rate that increases lead to.
    pub fn target_rate(&mut self, now: Instant) -> u64 {
        self.catch_up(now);
        self.target
    }

    /// Alpha in parts of 2^32.
    pub fn alpha(&mut self, now: Instant) -> u64 {
        self.catch_up(now);
        self.alpha
    }

    /// When the rate allows the next packet, if not now. The window is not asked.
    pub(super) fn next_send(&mut self, now: Instant) -> Option<Instant> {
        if !self.limited {
            return None;
        }
        self.catch_up(now);
        let burst = u128::from(self.byte_time) * self.parameters.burst as u128;
        let earliest = self.paid_until.saturating_sub(burst).div_ceil(u128::from(ONE));
        let earliest = Instant::from_nanos(u64::try_from(earliest).unwrap_or(u64::MAX));
        (earliest > now).then_some(earliest)
    }

    /// Counts so many bytes against the rate, and not against the window.
    pub(super) fn pay(&mut self, now: Instant, bytes: usize) {
        if !self.limited {
            return;
        }
        self.catch_up(now);
        let from = self.paid_until.max(u128::from(now.as_nanos()) << 32);
        self.paid_until = from + u128::from(self.byte_time) * bytes as u128;
        self.counted = self.counted.saturating_add(bytes as u64);
        while self.counted >= self.parameters.byte_counter {
            self.counted -= self.parameters.byte_counter;
            self.byte_steps = self.byte_steps.saturating_add(1);
            self.increase();
        }
    }

    fn set_rate(&mut self, rate: u64) {
        self.rate = rate.clamp(self.parameters.min_rate, self.parameters.line_rate);
        // At 1 kbit/s, the least there is, 2^55: no overflow. What is cut off is a billionth of a packet's time.
        let byte_time = (8_000_000_000u128 << 32) / u128::from(self.rate);
        self.byte_time = u64::try_from(byte_time).unwrap_or(u64::MAX);
    }

    /// What the timers did until now.
    fn catch_up(&mut self, now: Instant) {
        if !self.limited {
            return;
        }
        // A queue pair that was at rest for an hour has missed millions of expiries; the first few thousand of them
        // lead to an alpha of 0 and to line rate, and the rest change nothing.
        while self.alpha_due <= now && self.alpha > 0 {
            // DCQCN equation 2: alpha = (1 - g) alpha, for each K without a notification.
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

    /// Counts the expiries until now without looking at each, when none changes the rate.
    fn skip_timer(&mut self, now: Instant) {
        let period = nanoseconds(self.parameters.increase_timer);
        let missed = nanoseconds(now.since(self.increase_due)) / period + 1;
        self.timer_steps =
            self.timer_steps.saturating_add(u32::try_from(missed).unwrap_or(u32::MAX));
        let ahead = Duration::from_nanos(missed.saturating_mul(period));
        self.increase_due = self.increase_due + ahead;
    }

    /// One increase of the rate (DCQCN 3.1, figure 7 and equations 3 and 4).
    fn increase(&mut self) {
        let steps = self.parameters.fast_recovery;
        if self.timer_steps.max(self.byte_steps) < steps {
            // Fast recovery: half of the way to the target, which stays.
        } else if self.timer_steps.min(self.byte_steps) > steps {
            self.target = self.target.saturating_add(self.parameters.hyper);
        } else {
            self.target = self.target.saturating_add(self.parameters.additive);
        }
        self.target = self.target.min(self.parameters.line_rate);
        // Rounded up, or the target would never be reached.
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
        self.pay(now, bytes);
    }

    fn on_ack(&mut self, now: Instant, bytes: usize) {
        self.window.on_ack(now, bytes);
    }

    /// DCQCN does not react to loss, which its network has hardly any of; neither does this, for a notification comes
    /// before a queue is full, and go-back-N slows a sender down by itself.
    fn on_loss(&mut self, now: Instant) {
        self.window.on_loss(now);
    }

    fn on_cnp(&mut self, now: Instant) {
        if now < self.cut_after {
            return;
        }
        self.cut_after = now + self.parameters.cut_interval;
        self.catch_up(now);
        if !self.limited {
            self.limited = true;
            self.paid_until = u128::from(now.as_nanos()) << 32;
        }
        // DCQCN equation 1, in its order: target, cut, alpha.
        self.target = self.rate;
        let cut = (u128::from(self.rate) * u128::from(self.alpha)) >> 33;
        self.set_rate(self.rate - u64::try_from(cut).unwrap_or(0));
        self.alpha += (ONE - self.alpha) >> self.parameters.g_shift;
        self.alpha_due = now + self.parameters.alpha_timer;
        self.increase_due = now + self.parameters.increase_timer;
        (self.counted, self.timer_steps, self.byte_steps) = (0, 0, 0);
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
