//! How the device thread shares the sockets with threads that poll or wait.
//!
//! A program that polls its CQs drives the device itself, and a thread that woke up for each packet would only compete
//! with it. So the device thread dozes while a program polls: it does not watch the sockets, and looks from time to time
//! whether packets were left lying. A program that polls now and then, or watches its memory as `ib_write_lat` does, would
//! wait for that look; when the thread finds packets, it watches the sockets although the program polls, until it is
//! woken in vain.

use super::signals::Mode;

/// How long the thread dozes, in nanoseconds. The time doubles, up to the maximum, whenever the thread finds nothing to
/// do.
const MIN_LOOK: u64 = 20_000;
const MAX_LOOK: u64 = 500_000;

/// Wakeups in vain before the thread leaves the sockets to the program that polls.
const MAX_VAIN: u32 = 2;

/// Looks in a row that find packets before the thread watches the sockets although the program polls. A single one may be
/// chance.
const MIN_FOUND: u32 = 2;

/// Looks of the maximum length after which the thread leaves the sockets to a waiting thread until it is woken.
const IDLE_LOOKS: u32 = 20;

/// What the device thread learned when it woke up.
#[derive(Clone, Copy, Debug)]
pub(super) struct Look {
    /// Packets were waiting in a socket.
    pub(super) found: bool,
    /// It received or sent something.
    pub(super) busy: bool,
    /// It was woken by a packet.
    pub(super) packet: bool,
    /// A program polled or waited since the last look, or owns the device now.
    pub(super) polled: bool,
    /// A thread waits for packets now.
    pub(super) led: bool,
}

/// Decides how the thread sleeps next.
#[derive(Debug)]
pub(super) struct Doze {
    mode: Mode,
    look: u64,
    /// Consecutive wakeups by packets that another thread had handled.
    vain: u32,
    /// Consecutive looks that found packets.
    found: u32,
    /// Consecutive looks that found nothing while a thread waits.
    idle: u32,
}

impl Doze {
    pub(super) fn new() -> Self {
        Self { mode: Mode::Watching, look: MIN_LOOK, vain: 0, found: 0, idle: 0 }
    }

    pub(super) fn next(&mut self, look: Look) -> Mode {
        let was = self.mode;
        self.found = if look.found { self.found + 1 } else { 0 };
        self.mode = self.choose(was, look);
        if self.mode == Mode::Dozing && was == Mode::Dozing && !look.busy {
            self.look = (2 * self.look).min(MAX_LOOK);
        } else {
            self.look = MIN_LOOK;
        }
        self.mode
    }

    fn choose(&mut self, was: Mode, look: Look) -> Mode {
        if look.led && !look.polled {
            // The thread that waits has been waiting since the last look.
            self.idle += 1;
            return if self.idle > IDLE_LOOKS { Mode::Detached } else { Mode::Dozing };
        }
        self.idle = 0;
        if look.led {
            return Mode::Dozing;
        }
        if !look.polled {
            self.vain = 0;
            return Mode::Watching;
        }
        match was {
            Mode::Watching if look.packet => {
                self.vain = if look.found { 0 } else { self.vain + 1 };
                if self.vain < MAX_VAIN { Mode::Watching } else { Mode::Dozing }
            }
            Mode::Dozing | Mode::Detached if self.found >= MIN_FOUND => {
                self.vain = 0;
                Mode::Watching
            }
            _ => Mode::Dozing,
        }
    }

    /// When the thread looks again if it dozes.
    pub(super) fn deadline(&self, now: u64) -> u64 {
        now + self.look
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Look =
        Look { found: false, busy: false, packet: false, polled: false, led: false };
    const POLLED: Look = Look { polled: true, ..NOTHING };
    const LED: Look = Look { led: true, ..NOTHING };

    #[test]
    fn leaves_the_sockets_to_a_program_that_polls() {
        let mut doze = Doze::new();
        assert_eq!(doze.next(NOTHING), Mode::Watching);
        let times: Vec<_> = (0..7)
            .map(|_| {
                assert_eq!(doze.next(POLLED), Mode::Dozing);
                doze.deadline(0)
            })
            .collect();
        assert_eq!(times, [20_000, 40_000, 80_000, 160_000, 320_000, MAX_LOOK, MAX_LOOK]);
        assert_eq!(doze.next(NOTHING), Mode::Watching, "it has stopped polling");
        assert_eq!(doze.next(POLLED), Mode::Dozing);
        assert_eq!(doze.deadline(0), MIN_LOOK);
    }

    #[test]
    fn watches_for_a_program_that_polls_too_rarely() {
        let mut doze = Doze::new();
        assert_eq!(doze.next(POLLED), Mode::Dozing);
        let found = Look { found: true, busy: true, ..POLLED };
        assert_eq!(doze.next(found), Mode::Dozing, "one may be chance");
        assert_eq!(doze.deadline(0), MIN_LOOK, "but it looks again soon");
        assert_eq!(doze.next(found), Mode::Watching);
        let woken = Look { packet: true, ..POLLED };
        for _ in 0..10 {
            assert_eq!(doze.next(Look { found: true, ..woken }), Mode::Watching);
            assert_eq!(doze.next(woken), Mode::Watching, "once in vain may be chance");
        }
        assert_eq!(doze.next(Look { found: true, ..woken }), Mode::Watching);
        assert_eq!(doze.next(woken), Mode::Watching);
        assert_eq!(doze.next(woken), Mode::Dozing);
    }

    #[test]
    fn sleeps_while_a_thread_waits_for_long() {
        let mut doze = Doze::new();
        for _ in 0..IDLE_LOOKS {
            assert_eq!(doze.next(LED), Mode::Dozing);
        }
        assert_eq!(doze.next(LED), Mode::Detached);
        assert_eq!(doze.next(Look { polled: true, ..LED }), Mode::Dozing, "it waits again");
    }
}
