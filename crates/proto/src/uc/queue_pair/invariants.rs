//! What is true of a UC QP after every event. Debug builds check it.

use super::QueuePair;

impl QueuePair {
    pub(super) fn check_each(&self) {
        self.queues.check_invariants(self.config.send_capacity);
        self.responder.check_invariants(&self.config);
        if self.queues.in_error() {
            self.responder.check_stopped();
        }
    }

    /// Send requests whose completion was not taken.
    pub(crate) fn uncompleted_sends(&self) -> usize {
        self.queues.uncompleted_sends()
    }

    /// Receive requests that were consumed, and whose completion was not taken.
    pub(crate) fn uncompleted_receives(&self) -> usize {
        self.responder.uncompleted() + self.queues.receive_done.len()
    }
}
