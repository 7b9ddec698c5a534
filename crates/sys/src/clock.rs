//! The clock that deadlines refer to.

use rustix::time::{ClockId, clock_gettime};

/// Nanoseconds of `CLOCK_MONOTONIC`: the same in all processes, and unaffected by changes of the date.
#[inline]
pub fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec as u64
}

/// [`now`] for a thread that reads the clock several times per microsecond, in half the time.
///
/// A reading of the kernel's clock is valid for a millisecond: meanwhile, the processor's time stamp counter (TSC) says how much time
/// has passed since. Its frequency is measured again and again, so that it need not be known, and an error of it does not add up. Without a TSC of
/// constant frequency, each reading is one of the kernel's clock.
#[derive(Debug)]
pub struct FastClock {
    /// The last reading of the kernel's clock, if it was precise: the time, and the TSC then.
    base: Reading,
    /// For how many ticks it is valid; 0 if there is none.
    valid: u64,
    /// Nanoseconds per tick, as a fraction of 2^32.
    scale: u64,
    /// The reading from which the frequency is measured.
    first: Option<Reading>,
    has_counter: bool,
}

/// The kernel's clock and the TSC at the same moment.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    time: u64,
    ticks: u64,
}

/// How long a reading is valid, in nanoseconds.
const VALID: u64 = 1_000_000;

/// The time over which the frequency is measured. The two readings are off by less than [`IMPRECISE`], so the frequency is off by less
/// than one in a thousand.
const MEASURED: u64 = 10_000_000;

/// A thread that was interrupted between the two clocks has read different moments. In ticks: a microsecond or more.
const IMPRECISE: u64 = 4_000;

impl FastClock {
    /// A clock that has not been read.
    pub fn new() -> Self {
        let (base, first, has_counter) = (Reading::default(), None, tsc::is_constant());
        Self { base, valid: 0, scale: 0, first, has_counter }
    }

    /// Nanoseconds of `CLOCK_MONOTONIC`. May be less than an earlier reading by a microsecond.
    #[inline]
    pub fn now(&mut self) -> u64 {
        if !self.has_counter {
            return now();
        }
        let passed = tsc::read().wrapping_sub(self.base.ticks);
        if passed < self.valid {
            // No overflow: this is a millisecond at most.
            return self.base.time + ((passed * self.scale) >> 32);
        }
        self.read()
    }

    /// Reads the kernel's clock, and measures the frequency of the TSC.
    #[cold]
    fn read(&mut self) -> u64 {
        let before = tsc::read();
        let time = now();
        let after = tsc::read();
        self.valid = 0;
        if after.wrapping_sub(before) > IMPRECISE {
            return time;
        }
        self.base = Reading { time, ticks: before };
        let first = *self.first.get_or_insert(self.base);
        let (passed, ticks) = (time - first.time, before.wrapping_sub(first.ticks));
        // A counter that has gone backwards, or a thread that was away for a long time: from the beginning.
        if ticks == 0 || passed > 1 << 31 || ticks > 1 << 36 {
            (self.first, self.scale) = (Some(self.base), 0);
        } else if passed >= MEASURED {
            (self.first, self.scale) = (Some(self.base), (passed << 32) / ticks);
        }
        self.valid = (VALID << 32).checked_div(self.scale).unwrap_or(0);
        time
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

    /// Whether the counter has a constant frequency in all states of the processor ("invariant TSC").
    pub(super) fn is_constant() -> bool {
        const POWER_MANAGEMENT: u32 = 0x8000_0007;
        const INVARIANT: u32 = 1 << 8;
        let has_leaf = __cpuid(0x8000_0000).eax >= POWER_MANAGEMENT;
        has_leaf && __cpuid(POWER_MANAGEMENT).edx & INVARIANT != 0
    }

    #[inline]
    pub(super) fn read() -> u64 {
        // SAFETY: all processors of this architecture have the instruction. A process that forbids it (PR_SET_TSC) cannot read the
        // kernel's clock either, which reads the counter in the process.
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
mod tests {
    use super::*;

    /// Both clocks are read alternately: each reading lies between its neighbours, whatever the thread was interrupted by.
    #[test]
    fn the_fast_clock_follows_the_clock_of_the_kernel() {
        const ROUNDS: u64 = if cfg!(miri) { 10 } else { 400_000 };
        // What the frequency may be off, over the time for which a reading is valid.
        const ERROR: u64 = VALID / 500;
        let mut clock = FastClock::new();
        let mut before = now();
        let (mut fast, started) = (0, before);
        while fast < ROUNDS || before - started < 4 * MEASURED {
            let time = clock.now();
            let after = now();
            assert!(time + ERROR >= before && time <= after + ERROR, "{before} {time} {after}");
            before = after;
            fast += 1;
        }
        assert_eq!(clock.scale > 0, clock.has_counter);
    }

    #[test]
    fn a_counter_that_jumps_is_measured_again() {
        let mut clock = FastClock::new();
        if !clock.has_counter {
            return;
        }
        while clock.scale == 0 {
            clock.now();
        }
        // As after a migration to a machine that was started later.
        clock.base.ticks = clock.base.ticks.wrapping_add(1 << 40);
        clock.first = Some(clock.base);
        let before = now();
        assert!(clock.now() >= before && clock.scale == 0);
    }
}
