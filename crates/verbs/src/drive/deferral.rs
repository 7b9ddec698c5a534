//! Whether ACKs may wait for the program's next call.
//!
//! A deferred ACK is sent with the program's reply, at no cost of its own. If the program makes no call but processes
//! what it received, the device thread sends the ACK at its next check, up to half a millisecond later, which delays
//! the completion of the peer's request. So after a program was late, its ACKs are sent at once for a while, longer the
//! more often it was late.

use crate::tuning::deferral::MAX_PAUSE;

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
mod tests {
    use super::*;

    /// Simulates a program that receives messages, and returns how many ACKs waited for the device thread.
    fn late(messages: u32, is_late: impl Fn(u32) -> bool) -> u32 {
        let (mut deferral, mut late) = (Deferral::default(), 0);
        for message in 0..messages {
            match (deferral.allows(), is_late(message)) {
                (false, _) => deferral.sent_at_once(),
                (true, false) => deferral.in_time(),
                (true, true) => {
                    deferral.late();
                    late += 1;
                }
            }
        }
        late
    }

    #[test]
    fn acks_of_a_program_that_replies_wait() {
        assert_eq!(late(1000, |_| false), 0);
    }

    #[test]
    fn acks_of_a_program_that_works_between_its_calls_do_not() {
        // 9 while the pause grows to 256, then one in 257.
        assert_eq!(late(10_000, |_| true), 46);
    }

    #[test]
    fn a_program_that_was_late_once_is_forgiven() {
        let mut deferral = Deferral::default();
        (0..9).for_each(|_| deferral.late());
        assert_eq!(deferral.pause, MAX_PAUSE);
        (0..MAX_PAUSE).for_each(|_| deferral.sent_at_once());
        (0..MAX_PAUSE).for_each(|_| deferral.in_time());
        deferral.late();
        assert_eq!(deferral.pause, 1);
    }
}
