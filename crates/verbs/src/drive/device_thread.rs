//! What the device thread does after a pass: whether it watches the sockets, when it wakes up at the latest, and whether it
//! spins before it sleeps.
//!
//! A program that polls its CQs drives the device itself, and a thread that woke up for each packet would only compete
//! with it. So the device thread dozes while a program polls: it does not watch the sockets, but checks from time to
//! time whether packets were left unread. A program that polls only now and then, or watches its memory as
//! `ib_write_lat` does, would wait for that check; when the thread finds packets, it watches the sockets although the
//! program polls, until it is woken for packets that the program has taken already.

#[cfg(test)]
mod tests;

use ferroce_device::tuning::doze::{
    ENOUGH, FOUND, GAP, IDLE_CHECKS, LATE, MAX_INTERVAL, MAX_STRETCH, MAX_WAKEUPS, MIN_INTERVAL,
    VAIN,
};
use ferroce_sync::{Mode, NEVER};

use super::spin::Spin;

/// What a pass of the device thread found.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pass {
    /// The thread made it. Otherwise another thread owns the device.
    pub(crate) made: bool,
    /// Packets were waiting in a socket.
    pub(crate) received: bool,
    /// The thread had been woken by a packet.
    pub(crate) packet: bool,
    /// For how long no program had polled or posted.
    pub(crate) unpolled: u64,
}

/// What programs did meanwhile.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Programs {
    /// A CQ was polled.
    pub(crate) polled: bool,
    /// How often a thread began to wait for packets itself, ever.
    pub(crate) waits: u32,
    /// Until when one waits; in the past if none does.
    pub(crate) led_until: u64,
}

/// What the thread has to do besides receiving.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Due {
    /// When the next timer expires that is no QP's.
    pub(crate) timer: u64,
    /// Packets wait for other processes, which do not say when they have space.
    pub(crate) forwarding: bool,
    /// ACKs wait for the next packets.
    pub(crate) owes_acks: bool,
}

/// How the thread sleeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sleep {
    pub(crate) mode: Mode,
    /// When it wakes up at the latest, apart from the QP timers.
    pub(crate) deadline: u64,
    /// It wakes up for the QP timers.
    pub(crate) runs_timers: bool,
    /// It may spin first.
    pub(crate) spins: bool,
}

/// The policy and what it remembers. Times are in nanoseconds.
#[derive(Debug)]
pub(crate) struct DeviceThread {
    spin: Spin,
    mode: Mode,
    /// The time between two checks while it dozes.
    interval: u64,
    /// The factor by which the interval is stretched.
    stretch: u64,
    /// Evidence that packets are left unread.
    evidence: u32,
    /// Wakeups left before the thread dozes.
    wakeups: u32,
    /// Consecutive checks while a thread waits and no program polls.
    idle: u32,
    /// A program polled since the pass before, or owns the device.
    polled: bool,
    waits: u32,
    /// How late the thread woke up.
    late: u64,
}

impl DeviceThread {
    pub(crate) fn new() -> Self {
        Self {
            spin: Spin::default(),
            mode: Mode::Watching,
            interval: MIN_INTERVAL,
            stretch: 1,
            evidence: 0,
            wakeups: 0,
            idle: 0,
            polled: false,
            waits: 0,
            late: 0,
        }
    }

    /// Packets arrived. `bytes`: what has gone through sockets so far.
    pub(crate) fn received(&self, now: u64, bytes: u64) {
        self.spin.end(now, bytes);
    }

    /// Returns what the thread announces. What programs did is read after the announcement of [`Mode::Dozing`].
    pub(crate) fn next_mode(&mut self, pass: Pass, programs: Programs, now: u64) -> Mode {
        // If another thread owns the device, it counts as polling. It may have been preempted in the middle of a pass:
        // reading the sockets now would only keep it from being scheduled. The first checks of a doze are closer than the
        // pauses of a program that polls.
        self.polled = programs.polled || !pass.made || pass.unpolled <= GAP;
        let waits = std::mem::replace(&mut self.waits, programs.waits);
        let polled = self.polled || programs.waits != waits;
        let found = pass.received && pass.unpolled > GAP;
        self.stretch = match std::mem::take(&mut self.late) > LATE {
            true => (2 * self.stretch).min(MAX_STRETCH),
            false => (self.stretch / 2).max(1),
        };
        let mode = match self.choose(pass, polled, found, programs.led_until > now) {
            Mode::Dozing if self.stretch > 1 => Mode::Resting,
            mode => mode,
        };
        let was_dozing = matches!(self.mode, Mode::Dozing | Mode::Resting);
        self.interval = match was_dozing && mode != Mode::Watching && !found {
            true => (2 * self.interval).min(MAX_INTERVAL),
            false => MIN_INTERVAL,
        };
        self.mode = mode;
        mode
    }

    /// Chooses a mode. `found`: packets that no program would have taken. `led`: a thread waits for packets now.
    fn choose(&mut self, pass: Pass, polled: bool, found: bool, led: bool) -> Mode {
        // A thread that waits while no program polls has been waiting since the last check.
        self.idle = if led && !polled { self.idle + 1 } else { 0 };
        if led {
            return if self.idle > IDLE_CHECKS { Mode::Detached } else { Mode::Dozing };
        }
        if !polled {
            (self.evidence, self.wakeups) = (0, 0);
            return Mode::Watching;
        }
        if self.mode == Mode::Watching && pass.packet {
            self.wakeups = self.wakeups.saturating_sub(if pass.received { 1 } else { VAIN });
            if self.wakeups == 0 {
                // One check that finds packets is enough to watch again.
                self.evidence = self.evidence.min(ENOUGH - FOUND);
            }
        } else if found {
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
    fn next_check(&self, now: u64) -> u64 {
        now + self.interval * self.stretch
    }

    /// Returns how the thread sleeps in the mode that it announced. `led_until` is read after the announcement.
    pub(crate) fn sleep(&self, made: bool, led_until: u64, due: Due, now: u64) -> Sleep {
        let mode = match self.mode {
            Mode::Detached if led_until <= now => Mode::Watching,
            mode => mode,
        };
        let dozes = matches!(mode, Mode::Dozing | Mode::Resting);
        let deadline = if dozes || !made || due.forwarding {
            self.next_check(now)
        } else if due.owes_acks {
            now
        } else if mode == Mode::Detached {
            led_until
        } else {
            NEVER
        };
        Sleep {
            mode,
            deadline: deadline.min(due.timer),
            // A thread that polls or owns the device runs the QP timers. Waking for them as well would compete with it, and
            // while it is preempted in the middle of a pass, an expired timer would keep this thread spinning.
            runs_timers: !dozes && made,
            // Beside a program that polls there may be no processor to spin on.
            spins: mode == Mode::Watching && !self.polled,
        }
    }

    /// Whether the thread looks for packets once more before it sleeps until the deadline.
    pub(crate) fn spins(&self, deadline: u64, now: u64) -> bool {
        self.spin.wait(now).is_some_and(|until| until < deadline)
    }

    /// Nothing but the deadline woke the thread.
    pub(crate) fn woke_at(&mut self, deadline: u64, now: u64) {
        self.late = now.saturating_sub(deadline);
    }
}
