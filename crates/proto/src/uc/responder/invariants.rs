//! What is true of a UC responder after every event. Debug builds check it.

use super::{InboundMessage, Responder};
use crate::uc::queue_pair::Config;
use crate::work::MAX_MESSAGE;

impl Responder {
    pub(in crate::uc) fn check_invariants(&self, config: &Config) {
        let received = self.received;
        let capacity = self.receive.as_ref().map(|request| request.sg_list.len());
        let left = match self.message {
            InboundMessage::None | InboundMessage::Dropped => None,
            InboundMessage::Placing => {
                assert!(
                    !self.withheld.is_empty(),
                    "messages wait, and no access to memory is unfinished"
                );
                None
            }
            InboundMessage::Send => capacity.map(|capacity| (received, capacity)),
            InboundMessage::Write(range) => {
                assert!(range.length > 0, "a WRITE in progress has nothing left");
                Some((received + u64::from(range.length), u64::from(MAX_MESSAGE)))
            }
        };
        // A SEND holds a receive request until it completes. A WRITE needs none, and a dropped SEND returns it: at once, or,
        // if memory still writes to its buffer, with the next message.
        let holds = match self.message {
            InboundMessage::Send => true,
            InboundMessage::Write(_) => false,
            _ => capacity.is_some(),
        };
        assert!(
            capacity.is_some() == holds,
            "the message in progress is {:?}, and the receive request held is {capacity:?} bytes long",
            self.message
        );
        self.withheld.check_invariants();
        // IBA 9.8.2.2: all packets before the last are full.
        if let Some((length, limit)) = left {
            let mtu = config.packet_size();
            assert!(
                received > 0 && received % mtu == 0 && length <= limit,
                "a message in progress has {received} bytes at MTU {mtu}, and {length} of at most {limit}"
            );
        }
    }

    /// In ERR, nothing is in progress (IBA 10.3.1.7).
    pub(in crate::uc) fn check_stopped(&self) {
        let message = self.message;
        assert!(message == InboundMessage::None, "in ERR with a message in progress: {message:?}");
    }

    /// Receive requests that were consumed, and have not completed.
    pub(in crate::uc) fn uncompleted(&self) -> usize {
        usize::from(self.receive.is_some()) + self.withheld.effects().count()
    }
}
