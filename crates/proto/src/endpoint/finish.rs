//! The end of accesses to memory that take time.

use super::{Endpoint, Transport};
use crate::held::HeldPacket;
use crate::memory::{Finished, Memory, PayloadRead, Token};
use crate::receive::ReceiveQueue;

impl<R: Copy> Endpoint<R> {
    /// Handles the end of an access to memory that this QP has begun. Then [`Endpoint::take_held`] is to be called until
    /// it returns `None`. The request of a UC message that was dropped returns to `receives`, its own RQ or an SRQ.
    pub fn handle_finished(
        &mut self,
        finished: &Finished,
        mut receives: Option<&mut ReceiveQueue>,
    ) {
        let Finished { token, outcome, .. } = *finished;
        #[cfg(debug_assertions)]
        let posted = self.count_receives(receives.as_deref());
        let queue = receives.as_deref_mut();
        let known = match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.handle_finished(token, outcome),
            Transport::Unreliable(queue_pair) => queue_pair.handle_finished(token, outcome, queue),
            Transport::Datagram(queue_pair) => queue_pair.handle_finished(token, outcome),
            Transport::None => false,
        };
        #[cfg(debug_assertions)]
        self.check_receives(posted, receives.as_deref());
        self.after_finish(known, token);
    }

    /// Handles the end of a read that this QP has begun: of the payload of a send request or of a READ response.
    pub fn handle_read(&mut self, read: PayloadRead) {
        let PayloadRead { token, payload, .. } = read;
        let known = match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.handle_read(token, payload),
            Transport::Unreliable(queue_pair) => queue_pair.handle_read(token, payload),
            Transport::Datagram(queue_pair) => queue_pair.handle_read(token, payload),
            Transport::None => false,
        };
        self.after_finish(known, token);
    }

    fn after_finish(&mut self, known: bool, token: Token) {
        if !known {
            debug_assert!(
                self.abandoned > 0,
                "{token:?} was not begun by this QP, or twice finished"
            );
            self.abandoned = self.abandoned.saturating_sub(1);
        }
        self.sync_state();
        self.check_invariants();
    }

    /// The next packet that was held while memory was written, if it can be handled now. It is to be passed to
    /// [`Endpoint::handle_packet`], with its receive queue, before any other packet.
    pub fn take_held<M: Memory>(&mut self, _memory: &M) -> Option<HeldPacket> {
        match &mut self.transport {
            Transport::Reliable(queue_pair) => queue_pair.take_held::<M>(),
            Transport::Unreliable(queue_pair) => queue_pair.take_held(),
            Transport::Datagram(_) | Transport::None => None,
        }
    }

    /// Number of accesses to memory that this QP has begun and that have not finished, also those before a reset. While
    /// there are any, the QP must not be destroyed, and the program that resets it must not be told that it is done: the
    /// memory is still read and written.
    pub fn unfinished(&self) -> usize {
        let now = match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.unfinished(),
            Transport::Unreliable(queue_pair) => queue_pair.unfinished(),
            Transport::Datagram(queue_pair) => queue_pair.unfinished(),
            Transport::None => 0,
        };
        self.abandoned + now
    }

    pub(super) fn withholds_receives(&self) -> bool {
        match &self.transport {
            Transport::Reliable(queue_pair) => queue_pair.withholds_receives(),
            Transport::Unreliable(queue_pair) => queue_pair.withholds_receives(),
            Transport::Datagram(queue_pair) => queue_pair.withholds_receives(),
            Transport::None => false,
        }
    }
}
