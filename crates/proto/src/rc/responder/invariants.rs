//! What is true of a responder after every event. Debug builds check it.

use super::placement::Effect;
use super::{MessageInProgress, Responder};
use crate::rc::queue_pair::{Config, Role};
use crate::work::MAX_MESSAGE;

impl Responder {
    pub(in crate::rc) fn check_invariants(&self, config: &Config) {
        let Self { first, expected, last_ackable, received, .. } = *self;
        assert!(
            first <= expected && last_ackable < expected && first <= last_ackable.plus(1),
            "positions out of order: first {first:?}, last ACKed request {last_ackable:?}, expected \
             {expected:?}"
        );
        assert!(
            config.role != Role::Initiator || expected == first && !self.wants_to_send(),
            "an XRC initiator has executed requests from {first:?} to {expected:?}"
        );
        // A receive request is held exactly while a message that writes to it is in progress: an RNR NAK takes none.
        let capacity = self.receive.as_ref().map(|request| request.sg_list.len());
        let (holds, left) = match &self.message {
            MessageInProgress::None => (false, None),
            MessageInProgress::Placing => {
                assert!(
                    !self.withheld.is_empty(),
                    "messages wait, and no access to memory is unfinished"
                );
                (false, None)
            }
            MessageInProgress::Send => (true, capacity.map(|capacity| (received, capacity))),
            MessageInProgress::Write(range) => {
                let announced = received + u64::from(range.length);
                assert!(range.length > 0, "a WRITE in progress has nothing left");
                (false, Some((announced, u64::from(MAX_MESSAGE))))
            }
        };
        assert!(
            capacity.is_some() == holds,
            "the message in progress is {:?}, and the receive request held is {capacity:?} bytes long",
            self.message
        );
        // IBA C9-92: all packets before the last are full.
        if let Some((length, limit)) = left {
            let mtu = u64::from(config.mtu);
            assert!(
                received > 0 && received % mtu == 0 && length <= limit,
                "a message in progress has {received} bytes at MTU {mtu}, and {length} of at most {limit}"
            );
        }
        self.withheld.check_invariants();
        self.responses.check_invariants(expected, last_ackable, config);
    }

    /// In ERR, nothing is in progress (IBA 10.3.1.7). Queued responses are still sent.
    pub(in crate::rc) fn check_stopped(&self) {
        let is_stopped = matches!(self.message, MessageInProgress::None) && self.receive.is_none();
        assert!(is_stopped, "in ERR with a message in progress: {:?}", self.message);
    }

    /// Receive requests that were consumed, and have not completed.
    pub(in crate::rc) fn uncompleted(&self) -> usize {
        let is_completion = |effect: &&Effect| matches!(effect, Effect::Complete(_));
        usize::from(self.receive.is_some()) + self.withheld.effects().filter(is_completion).count()
    }
}
