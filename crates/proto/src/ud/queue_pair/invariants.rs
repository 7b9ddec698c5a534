//! What is true of a UD QP after every event. Debug builds check it.

use super::QueuePair;

impl<R: Copy> QueuePair<R> {
    pub(super) fn check_each(&self) {
        self.queues.check_invariants(self.config.send_capacity);
        self.responder.withheld.check_invariants();
        // A datagram is one packet.
        assert!(self.queues.send.is_between_messages(), "a datagram is partly sent");
    }

    /// Send requests whose completion was not taken.
    pub(crate) fn uncompleted_sends(&self) -> usize {
        self.queues.uncompleted_sends()
    }

    /// Receive requests that were consumed, and whose completion was not taken.
    pub(crate) fn uncompleted_receives(&self) -> usize {
        self.responder.withheld.effects().count() + self.queues.receive_done.len()
    }
}
