//! How the device thread shares the sockets with threads that poll or wait.
//!
//! A program that polls its CQs drives the device itself, and a thread that woke up for each packet would only compete
//! with it. So the device thread dozes while a program polls: it does not watch the sockets, but checks from time to
//! time whether packets were left unread. A program that polls only now and then, or watches its memory as
//! `ib_write_lat` does, would wait for that check; when the thread finds packets, it watches the sockets although the
//! program polls, until it is woken for packets that the program has taken already.

use ferroce_device::tuning::doze::{
    ENOUGH, FOUND, IDLE_CHECKS, LATE, MAX_INTERVAL, MAX_STRETCH, MAX_WAKEUPS, MIN_INTERVAL, VAIN,
};
use ferroce_sync::Mode;

/// What the device thread found when it woke up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Check {
    /// Packets were waiting in a socket.
    pub(crate) received: bool,
    /// And no program had polled for [`GAP`](ferroce_device::tuning::doze::GAP).
    pub(crate) found: bool,
    /// It was woken by a packet.
    pub(crate) packet: bool,
    /// How late it woke up, in nanoseconds.
    pub(crate) late: u64,
    /// A program polled or waited since the last check, or owns the device now.
    pub(crate) polled: bool,
    /// A thread waits for packets now.
    pub(crate) led: bool,
}

/// Decides how the thread sleeps next.
#[derive(Debug)]
pub(crate) struct Doze {
    mode: Mode,
    /// Nanoseconds between two checks while it dozes.
    interval: u64,
    /// The factor by which the interval is stretched.
    stretch: u64,
    /// Evidence that packets are left unread.
    evidence: u32,
    /// Wakeups left before the thread dozes.
    wakeups: u32,
    /// Consecutive checks while a thread waits and no program polls.
    idle: u32,
}

impl Doze {
    pub(crate) fn new() -> Self {
        Self {
            mode: Mode::Watching,
            interval: MIN_INTERVAL,
            stretch: 1,
            evidence: 0,
            wakeups: 0,
            idle: 0,
        }
    }

    pub(crate) fn next(&mut self, check: Check) -> Mode {
        let was = self.mode;
        self.stretch = match check.late > LATE {
            true => (2 * self.stretch).min(MAX_STRETCH),
            false => (self.stretch / 2).max(1),
        };
        self.mode = match self.choose(was, check) {
            Mode::Dozing if self.stretch > 1 => Mode::Resting,
            mode => mode,
        };
        let was_dozing = matches!(was, Mode::Dozing | Mode::Resting);
        if was_dozing && self.mode != Mode::Watching && !check.found {
            self.interval = (2 * self.interval).min(MAX_INTERVAL);
        } else {
            self.interval = MIN_INTERVAL;
        }
        self.mode
    }

    fn choose(&mut self, was: Mode, check: Check) -> Mode {
        if check.led && !check.polled {
            // The waiting thread has been waiting since the last check.
            self.idle += 1;
            return if self.idle > IDLE_CHECKS { Mode::Detached } else { Mode::Dozing };
        }
        self.idle = 0;
        if check.led {
            return Mode::Dozing;
        }
        if !check.polled {
            (self.evidence, self.wakeups) = (0, 0);
            return Mode::Watching;
        }
        if was == Mode::Watching && check.packet {
            self.wakeups = self.wakeups.saturating_sub(if check.received { 1 } else { VAIN });
            if self.wakeups == 0 {
                // One check that finds packets is enough to watch again.
                self.evidence = self.evidence.min(ENOUGH - FOUND);
            }
        } else if check.found {
            self.evidence += FOUND;
            if self.evidence >= ENOUGH {
                (self.evidence, self.wakeups) = (ENOUGH - FOUND, MAX_WAKEUPS);
            }
        } else {
            self.evidence = self.evidence.saturating_sub(1);
        }
        if self.wakeups > 0 { Mode::Watching } else { Mode::Dozing }
    }

    /// When the thread checks again if it dozes.
    pub(crate) fn deadline(&self, now: u64) -> u64 {
        now + self.interval * self.stretch
    }
}

#[cfg(test)]
mod tests;
