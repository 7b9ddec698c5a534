//! What is true of the queued responses after every event. Debug builds check it.

use super::{ResponseKind, Responses};
use crate::rc::queue_pair::Config;
use crate::sequence::Sequence;

impl Responses {
    /// `expected`: the position of the next request; `last_ackable`: of the last executed SEND or WRITE packet.
    pub(in crate::rc) fn check_invariants(
        &self,
        expected: Sequence,
        last_ackable: Sequence,
        config: &Config,
    ) {
        // IBA 9.4.4.
        let (kept, max) = (self.executed.len(), usize::from(config.max_dest_rd_atomic.max(1)));
        assert!(kept <= max, "{kept} READs and atomics kept for duplicates of {max}");
        let pending = self.pending_requests();
        assert!(pending <= max, "{pending} READs and atomics without a response of {max}");
        // A peer that takes no responses cannot make the queue grow: one response for each, ACKs between them, and an ACK
        // for each duplicate that was dropped between two.
        let (queued, limit) = (self.queue.len(), 3 * max + 1);
        assert!(queued <= limit, "{queued} responses queued of at most {limit}");
        let mut end = None;
        for executed in &self.executed {
            let (start, after) = (executed.start, executed.end());
            assert!(
                end.is_none_or(|end| end <= start) && after <= expected,
                "executed from {start:?} to {after:?}, after {end:?} and before {expected:?}"
            );
            end = Some(after);
        }
        self.check_queue(expected, last_ackable, config);
    }

    fn check_queue(&self, expected: Sequence, last_ackable: Sequence, config: &Config) {
        let mut newest = None;
        for response in &self.queue {
            let sequence = response.sequence;
            match response.kind {
                ResponseKind::Acknowledge(syndrome) => {
                    let limit = if syndrome.is_ack() { last_ackable } else { expected };
                    assert!(sequence <= limit, "{syndrome:?} of {sequence:?}, behind {limit:?}");
                    // To some requesters, that would mean that the response arrived.
                    let of = self.executed.iter().find(|executed| executed.contains(sequence));
                    assert!(
                        !syndrome.is_ack() || of.is_none(),
                        "an ACK has the PSN of a request with a response: {sequence:?} of {of:?}"
                    );
                }
                // The requester processes responses in the order of its requests (IBA 9.7.5.1).
                ResponseKind::Atomic { .. } | ResponseKind::Read { .. } => {
                    assert!(
                        newest < Some(sequence),
                        "the response to {sequence:?} is behind that to {newest:?}"
                    );
                    newest = Some(sequence);
                    assert!(
                        self.executed.iter().any(|executed| executed.contains(sequence)),
                        "a response to {sequence:?}, which is not kept as executed"
                    );
                }
            }
            if let ResponseKind::Read { range, sent, .. } = response.kind {
                let (length, mtu) = (range.length, u32::from(config.mtu));
                assert!(
                    sent < length.max(1) && sent % mtu == 0,
                    "{sent} of {length} bytes of the response to {sequence:?} are sent at MTU {mtu}"
                );
            }
        }
    }
}

impl super::Executed {
    fn contains(&self, sequence: Sequence) -> bool {
        self.start <= sequence && sequence < self.end()
    }
}
