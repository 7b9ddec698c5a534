//! What the device thread and the threads that use the device tell each other.
//!
//! The device thread announces what it is about to do and then looks whether there is a reason not to; the others create
//! the reason and then look what the thread does. Each has a fence between its two steps, so at least one sees the other,
//! and no wakeup is lost. Loom checks this.

use crate::primitives::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};

/// The time of no timer.
pub const NEVER: u64 = u64::MAX;

/// Makes the device thread run, once it waits.
pub trait Wake {
    /// Ends the thread's wait, or its next one if it is awake.
    fn wake(&self);
}

/// What the device thread does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// It is awake, or sleeps until something happens, packets included.
    Watching = 0,
    /// It leaves the sockets to a thread that polls or waits, and looks again soon.
    Dozing = 1,
    /// It leaves the sockets to a thread that waits, and looks again when it is woken.
    Detached = 2,
    /// As dozing, for longer: there are more threads than cores.
    Resting = 3,
}

/// The words by which the device thread and the others tell each other. Times are in nanoseconds.
#[derive(Debug)]
pub struct Signals<W> {
    waker: W,
    stop: AtomicBool,
    /// The thread has stopped.
    stopped: AtomicBool,
    /// A CQ was polled since the thread's last wakeup.
    polled: AtomicBool,
    /// How often a thread began to wait for packets itself.
    waits: AtomicU32,
    /// Until when a thread waits for packets itself. A lease, because a C program can cancel the thread.
    led_until: AtomicU64,
    /// When the next QP timer expires.
    timer: AtomicU64,
    /// When the device thread wakes up at the latest; 0 while it is awake.
    asleep_until: AtomicU64,
    mode: AtomicU8,
    /// The send socket whose buffer is full: link and sender, plus one; 0 for none.
    blocked: AtomicU32,
    /// ACKs wait for the next packets, or for the device thread.
    owes_acks: AtomicBool,
}

impl<W: Wake> Signals<W> {
    /// The thread is awake, and nothing is to be done.
    pub fn new(waker: W) -> Self {
        Self {
            waker,
            stop: AtomicBool::new(false),
            stopped: AtomicBool::new(false),
            polled: AtomicBool::new(false),
            waits: AtomicU32::new(0),
            led_until: AtomicU64::new(0),
            timer: AtomicU64::new(NEVER),
            asleep_until: AtomicU64::new(0),
            mode: AtomicU8::new(Mode::Watching as u8),
            blocked: AtomicU32::new(0),
            owes_acks: AtomicBool::new(false),
        }
    }

    /// What the thread waits for.
    pub fn waker(&self) -> &W {
        &self.waker
    }

    /// Makes the thread end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Release);
        self.wake();
    }

    /// Whether the thread has to end.
    pub fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// The thread ends.
    pub fn set_stopped(&self) {
        self.stopped.store(true, Ordering::Release);
    }

    /// Whether the thread has ended.
    pub fn has_stopped(&self) -> bool {
        self.stopped.load(Ordering::Acquire)
    }

    /// Wakes the thread.
    pub fn wake(&self) {
        self.waker.wake();
    }
}

/// For threads that use the device.
impl<W: Wake> Signals<W> {
    /// Records that a program polls.
    #[inline]
    pub fn polled(&self) {
        if !self.polled.load(Ordering::Relaxed) {
            self.polled.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a program polled since the thread took note of it.
    pub fn is_polled(&self) -> bool {
        self.polled.load(Ordering::Relaxed)
    }

    /// Records that the calling program stops polling, and makes the device thread watch the sockets again.
    pub fn stop_polling(&self) {
        self.polled.store(false, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if !self.is(Mode::Watching) {
            self.wake();
        }
    }

    /// Makes the calling thread the one that waits for packets, up to this time, unless another does. It calls
    /// [`Signals::stop_leading`] then, or begins again. Returns whether it is the one.
    pub fn lead(&self, now: u64, until: u64) -> bool {
        let led_until = self.led_until.load(Ordering::Relaxed);
        let order = (Ordering::AcqRel, Ordering::Relaxed);
        let leads = led_until <= now
            && self.led_until.compare_exchange(led_until, until, order.0, order.1).is_ok();
        if leads {
            self.waits.fetch_add(1, Ordering::Relaxed);
        }
        leads
    }

    /// The calling thread no longer waits for packets.
    pub fn stop_leading(&self) {
        self.led_until.store(0, Ordering::Release);
        fence(Ordering::SeqCst);
        // It would sleep on while no thread watches the sockets.
        if self.is(Mode::Detached) {
            self.wake();
        }
    }

    /// Whether the device thread looks at the device soon without being woken.
    #[inline]
    pub fn looks_soon(&self) -> bool {
        self.is(Mode::Dozing)
    }

    /// Publishes the next timer after a pass. Wakes the thread only if it would sleep past it.
    #[inline]
    pub fn set_timer(&self, timer: u64) {
        if self.timer.load(Ordering::Relaxed) == timer {
            return; // Only the owner of the device changes it.
        }
        self.timer.store(timer, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        if timer < self.asleep_until.load(Ordering::Relaxed) {
            self.wake();
        }
    }

    /// Publishes the link and the sender of the send socket that is full. The thread has to watch it, so it is woken.
    #[inline]
    pub fn set_blocked(&self, socket: Option<(u8, u8)>) {
        let blocked =
            socket.map_or(0, |(link, sender)| 1 + u32::from(link) * 256 + u32::from(sender));
        if self.blocked.load(Ordering::Relaxed) != blocked {
            self.blocked.store(blocked, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if blocked != 0 && self.asleep_until.load(Ordering::Relaxed) != 0 {
                self.wake();
            }
        }
    }

    /// Publishes whether ACKs are owed. They may be only while the thread looks soon; if it has stopped to do so
    /// meanwhile, it is woken.
    #[inline]
    pub fn set_owes_acks(&self, owes: bool) {
        if self.owes_acks.load(Ordering::Relaxed) != owes {
            self.owes_acks.store(owes, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            if owes && !self.is(Mode::Dozing) {
                self.wake();
            }
        }
    }

    fn is(&self, mode: Mode) -> bool {
        self.mode.load(Ordering::Relaxed) == mode as u8
    }
}

/// For the device thread.
impl<W: Wake> Signals<W> {
    /// Whether a program polled since the last call.
    pub fn take_polled(&self) -> bool {
        self.polled.swap(false, Ordering::Relaxed)
    }

    /// How often a thread began to wait for packets itself.
    pub fn waits(&self) -> u32 {
        self.waits.load(Ordering::Relaxed)
    }

    /// Until when a thread waits for packets itself; in the past if none does.
    pub fn led_until(&self) -> u64 {
        self.led_until.load(Ordering::Acquire)
    }

    /// Announces what the thread is about to do. What keeps it from that is for the caller to read afterwards.
    pub fn set_mode(&self, mode: Mode) {
        self.mode.store(mode as u8, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// When the next QP timer expires.
    pub fn timer(&self) -> u64 {
        self.timer.load(Ordering::Relaxed)
    }

    /// Announces how long the thread sleeps at most. Whatever is published after this call wakes it; what was published
    /// before is for the caller to see now.
    pub fn sleep_until(&self, deadline: u64) {
        self.asleep_until.store(deadline, Ordering::Relaxed);
        fence(Ordering::SeqCst);
    }

    /// The thread no longer sleeps.
    pub fn awake(&self) {
        self.asleep_until.store(0, Ordering::Relaxed);
    }

    /// Whether ACKs wait.
    pub fn owes_acks(&self) -> bool {
        self.owes_acks.load(Ordering::Relaxed)
    }

    /// The link and sender of the socket that is full.
    pub fn blocked(&self) -> Option<(u8, u8)> {
        let blocked = self.blocked.load(Ordering::Relaxed).checked_sub(1)?;
        Some(((blocked / 256) as u8, (blocked % 256) as u8))
    }
}

#[cfg(all(test, ferroce_loom))]
mod tests;
