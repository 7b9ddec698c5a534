//! Whether ACKs may wait for the program's next call.
//!
//! A deferred ACK is sent with the program's reply, at no cost of its own. If the program makes no call but processes
//! what it received, the device thread sends the ACK at its next check, up to half a millisecond later, which delays
//! the completion of the peer's request. So after a program was late, its ACKs are sent at once for a while, longer the
//! more often it was late.

use ferroce_device::tuning::deferral::MAX_PAUSE;

#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Deferral {
    /// Messages to acknowledge at once before the next ACK may wait.
    pause: u32,
    /// The length of the last pause.
    last_pause: u32,
}

impl Deferral {
    /// Whether the ACKs of this pass may be deferred.
    pub(crate) fn allows(&self) -> bool {
        self.pause == 0
    }

    /// Called when the ACKs of a pass that completed something were sent at once.
    pub(crate) fn sent_at_once(&mut self) {
        self.pause = self.pause.saturating_sub(1);
    }

    /// Called when the program makes its next call while ACKs are deferred.
    pub(crate) fn in_time(&mut self) {
        self.last_pause = self.last_pause.saturating_sub(1);
    }

    /// Called when the device thread had to send deferred ACKs.
    pub(crate) fn late(&mut self) {
        self.last_pause = (self.last_pause * 2).clamp(1, MAX_PAUSE);
        self.pause = self.last_pause;
    }
}

#[cfg(test)]
mod tests;
