//! What the device thread does after a pass: whether it watches the sockets, when it wakes up at the latest, and whether it
//! spins before it sleeps.

#[cfg(test)]
mod tests;

use ferroce_device::tuning::doze;
use ferroce_sync::{Mode, NEVER};

use super::doze::{Check, Doze};
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
    doze: Doze,
    spin: Spin,
    /// A program polled since the pass before, or owns the device.
    polled: bool,
    waits: u32,
    /// How late the thread woke up.
    late: u64,
}

impl DeviceThread {
    pub(crate) fn new() -> Self {
        Self { doze: Doze::new(), spin: Spin::default(), polled: false, waits: 0, late: 0 }
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
        self.polled = programs.polled || !pass.made || pass.unpolled <= doze::GAP;
        let waits = std::mem::replace(&mut self.waits, programs.waits);
        self.doze.next(Check {
            received: pass.received,
            found: pass.received && pass.unpolled > doze::GAP,
            packet: pass.packet,
            late: std::mem::take(&mut self.late),
            polled: self.polled || programs.waits != waits,
            led: programs.led_until > now,
        })
    }

    /// Returns how the thread sleeps in this mode. `led_until` is read after the announcement of the mode.
    pub(crate) fn sleep(
        &self,
        mode: Mode,
        made: bool,
        led_until: u64,
        due: Due,
        now: u64,
    ) -> Sleep {
        let mode = match mode {
            Mode::Detached if led_until <= now => Mode::Watching,
            mode => mode,
        };
        let dozes = matches!(mode, Mode::Dozing | Mode::Resting);
        let deadline = if dozes || !made || due.forwarding {
            self.doze.deadline(now)
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
