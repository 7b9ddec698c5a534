//! The clock that deadlines refer to.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the same in all processes, and unaffected by changes of the wall-clock time.
#[inline]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec as u64
}

/// [`now`] at half the cost, for a thread that reads the clock several times per microsecond.
///
/// A reading of the kernel's clock is valid for a millisecond, during which the processor's time stamp counter (TSC)
/// measures the time since. The TSC's frequency is measured repeatedly, so it need not be known, and its error does not
/// accumulate. Without an invariant TSC, each call reads the kernel's clock.
#[derive(Debug)]
pub struct FastClock {
    /// The last precise reading of the kernel's clock and the TSC.
    base: Reading,
    /// For how many ticks `base` is valid; 0 if there is none.
    valid: u64,
    /// Nanoseconds per tick, in units of 2^-32.
    scale: u64,
    /// The last measured frequency, in the same unit: it is used if the next one confirms it.
    measured: u64,
    /// The reading at which the current frequency measurement started.
    first: Option<Reading>,
    has_counter: bool,
    /// By how much each reading advances a clock that measures no time; 0 for one that does.
    step: u64,
}

/// The kernel's clock and the TSC at the same moment.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    time: u64,
    ticks: u64,
}

/// How long a reading is valid, in nanoseconds.
const VALID: u64 = 1_000_000;

/// The time over which the frequency is measured, in nanoseconds. The two readings are off by at most [`IMPRECISE`], so
/// the frequency is off by less than one in a thousand; after a suspend of the machine, by up to 1/64 until it has been
/// measured again.
const MEASURED: u64 = 10_000_000;

/// Readings that took more ticks than this, a microsecond or more, are discarded: the thread was interrupted between
/// the two clocks.
const IMPRECISE: u64 = 4_000;

impl FastClock {
    /// A clock that has not been read.
    pub fn new() -> Self {
        let (base, first, has_counter) = (Reading::default(), None, tsc::is_constant());
        Self { base, valid: 0, scale: 0, measured: 0, first, has_counter, step: 0 }
    }

    /// A clock that each reading advances by `step` nanoseconds: what depends on the time is then the same on every machine,
    /// however fast it is.
    pub fn stepped(step: u64) -> Self {
        let base = Reading { time: now(), ticks: 0 };
        Self { base, has_counter: false, step, ..Self::new() }
    }

    /// Nanoseconds of `CLOCK_MONOTONIC`. May be up to a microsecond less than an earlier reading.
    #[inline]
    pub fn now(&mut self) -> u64 {
        if !self.has_counter {
            return self.without_counter();
        }
        match self.estimate(tsc::read()) {
            Some(time) => time,
            None => self.read(),
        }
    }

    #[cold]
    fn without_counter(&mut self) -> u64 {
        if self.step == 0 {
            return now();
        }
        self.base.time += self.step;
        self.base.time
    }

    /// The time at a reading of the counter, if the last reading of the kernel's clock is still valid.
    #[inline]
    fn estimate(&self, ticks: u64) -> Option<u64> {
        let passed = ticks.wrapping_sub(self.base.ticks);
        // No overflow: this is at most a millisecond.
        (passed < self.valid).then(|| self.base.time + ((passed * self.scale) >> 32))
    }

    /// Reads the kernel's clock and the TSC.
    #[cold]
    fn read(&mut self) -> u64 {
        let before = tsc::read();
        let time = now();
        self.valid = 0;
        if tsc::read().wrapping_sub(before) <= IMPRECISE {
            self.take(Reading { time, ticks: before });
        }
        time
    }

    /// Starts from a new reading, and measures the frequency of the TSC.
    fn take(&mut self, reading: Reading) {
        let Reading { time, ticks: before } = reading;
        self.base = reading;
        let first = *self.first.get_or_insert(self.base);
        let (passed, ticks) = (time.wrapping_sub(first.time), before.wrapping_sub(first.ticks));
        // A clock has gone backwards, or the thread did not read it for a long time: start over.
        if ticks == 0 || passed > 1 << 31 || ticks > 1 << 36 {
            (self.first, self.scale, self.measured) = (Some(self.base), 0, 0);
        } else if passed >= MEASURED {
            let scale = (passed << 32) / ticks;
            // Only one of the two clocks runs while the machine is suspended.
            let is_plausible = scale.abs_diff(self.measured) <= self.measured >> 6;
            (self.first, self.measured) = (Some(self.base), scale);
            self.scale = if is_plausible { scale } else { 0 };
        }
        self.valid = (VALID << 32).checked_div(self.scale).unwrap_or(0);
    }
}

impl Default for FastClock {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod tsc {
    use std::arch::x86_64::{__cpuid, _rdtsc};

    /// Whether the counter has a constant frequency in all power states of the processor ("invariant TSC").
    pub(super) fn is_constant() -> bool {
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        let has_leaf = __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT;
        has_leaf && __cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: all processors of this architecture have the instruction. A process that disables it (PR_SET_TSC)
        // cannot read the kernel's clock either, because the vDSO reads the counter in the process.
        unsafe { _rdtsc() }
    }
}

#[cfg(not(all(target_arch = "x86_64", not(miri))))]
mod tsc {
    pub(super) fn is_constant() -> bool {
        false
    }

    pub(super) fn read() -> u64 {
        0
    }
}

#[cfg(test)]
mod tests;
