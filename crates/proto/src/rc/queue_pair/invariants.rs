//! What is true of an RC or XRC QP after every event. Debug builds check it.

use super::{QueuePair, Role};

impl QueuePair {
    pub(super) fn check_each(&self) {
        let Self { config, requester, responder, .. } = self;
        requester.check_invariants(config, self.fault.is_some());
        responder.check_invariants(config);
        let queued = requester.queue.len();
        assert!(
            !matches!(config.role, Role::Target(_)) || queued == 0,
            "an XRC target has {queued} send requests"
        );
        if let Some(fault) = self.fault {
            assert!(queued == 0, "{queued} requests are not flushed after {fault:?}");
            responder.check_stopped();
            // READ responses before the NAK that ended the connection are not paced: there are no timers.
            let paced = self.responses_paced_until;
            assert!(paced.is_none(), "responses wait until {paced:?} after {fault:?}");
        }
        assert!(
            self.fault.is_some() || self.refusal.is_none() && !self.is_peer_lost,
            "refused with {:?}, peer lost: {}, and no fault",
            self.refusal,
            self.is_peer_lost
        );
        assert!(
            self.responses_paced_until.is_none() || responder.wants_to_send(),
            "no response is queued, and the next waits until {:?}",
            self.responses_paced_until
        );
    }

    /// Send requests whose completion was not taken.
    pub(crate) fn uncompleted_sends(&self) -> usize {
        self.requester.uncompleted() + self.send_done.len()
    }

    /// Receive requests that were consumed, and whose completion was not taken.
    pub(crate) fn uncompleted_receives(&self) -> usize {
        self.responder.uncompleted() + self.receive_done.len()
    }
}
