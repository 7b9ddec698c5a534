//! What is true of the queues of UC and UD after every event. Debug builds check it.

use super::{Queues, SendQueue, SendWork};

impl<T: SendWork> SendQueue<T> {
    fn check_invariants(&self, capacity: usize) {
        let Self { sent, finished, .. } = *self;
        let length = self.requests.len();
        assert!(
            length <= capacity + usize::from(finished),
            "{length} requests in a send queue for {capacity}"
        );
        assert!(length > 0 || sent == 0, "{sent} packets are sent of no request");
        assert!(sent > 0 || !finished, "the oldest request is finished without a packet");
        assert!(!self.waits || self.unfinished() > 0, "a packet waits for a read that is finished");
    }
}

impl<T: SendWork> Queues<T> {
    pub(crate) fn check_invariants(&self, capacity: usize) {
        self.send.check_invariants(capacity);
        let length = self.send.requests.len();
        // IBA 10.3.1.6, 10.3.1.7.
        if let Some(fault) = self.fault {
            assert!(length == 0, "{length} send requests are not flushed after {fault:?}");
        }
    }

    /// Send requests whose completion was not taken.
    pub(crate) fn uncompleted_sends(&self) -> usize {
        self.send.requests.len() + self.send_done.len()
    }
}
