//! Packets put together to messages.

use ferroce_wire::opcode::Operation;

use super::hierarchy::operation_name;
use super::report::{Message, MessageStatus};
use super::sink::Teller;
use super::window::Slot;

/// The message under way of one sender, fed with packets in order.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    message: Option<Message>,
    /// The sequence that would continue it.
    next: u64,
    broken: bool,
}

/// How a sender's message ends when its last packet is there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// Each packet says by itself whether it was acknowledged.
    Acknowledged,
    /// Nothing is acknowledged on this service.
    Unreliable,
}

impl Assembly {
    /// Takes the next packet. Packets of a sequence that never came leave a gap, which makes the message
    /// incomplete, not wrong.
    pub(super) fn add(&mut self, slot: &Slot, ending: Ending, teller: &mut Teller<'_>) {
        let Some(info) = slot.info() else { return };
        if info.position.opens() {
            self.flush(teller);
        }
        let fresh = self.message.is_none();
        let message = self.message.get_or_insert_with(|| Message {
            conversation: 0,
            from_a: teller.side.from_a,
            operation: operation_name(info.operation),
            size: 0,
            packets: 0,
            retransmitted: 0,
            first_frame: slot.first.frame,
            last_frame: slot.first.frame,
            time_ns: slot.first.time,
            psn: (slot.psn.0, slot.psn.0),
            latency_ns: None,
            status: MessageStatus::Unacknowledged,
            immediate: None,
            invalidate: None,
            remote_address: slot.address,
            remote_key: slot.key,
        });
        let continues = if fresh { info.position.opens() } else { slot.sequence == self.next };
        self.broken = if fresh { !continues } else { self.broken || !continues };
        self.next = slot.end();

        message.packets += 1 + u64::from(slot.responses);
        message.retransmitted += u64::from(slot.sends - 1);
        message.size += match info.operation {
            Operation::CompareSwap | Operation::FetchAdd => 8,
            _ => u64::from(slot.payload) + slot.response_bytes,
        };
        message.psn.1 = slot.psn.add(slot.span - 1).0;
        message.immediate = message.immediate.or(slot.immediate);
        message.invalidate = message.invalidate.or(slot.invalidate);
        let finished = slot.finished.or(slot.refused).unwrap_or(slot.last);
        message.last_frame = message.last_frame.max(finished.frame);
        if slot.refused.is_some() {
            message.status = MessageStatus::Refused;
        }
        if !info.position.ends() {
            return;
        }
        message.status = match ending {
            _ if message.status == MessageStatus::Refused => MessageStatus::Refused,
            _ if self.broken => MessageStatus::Incomplete,
            Ending::Unreliable => MessageStatus::Sent,
            Ending::Acknowledged if slot.finished.is_some() => MessageStatus::Acknowledged,
            Ending::Acknowledged => MessageStatus::Unacknowledged,
        };
        if message.status == MessageStatus::Acknowledged {
            message.latency_ns = u64::try_from(finished.time - message.time_ns).ok();
        }
        if let Some(message) = self.message.take() {
            teller.sink.message(teller.side, message);
        }
    }

    /// Ends a message whose last packet never came.
    pub(super) fn flush(&mut self, teller: &mut Teller<'_>) {
        let Some(mut message) = self.message.take() else { return };
        if message.status != MessageStatus::Refused {
            message.status = MessageStatus::Incomplete;
        }
        teller.sink.message(teller.side, message);
    }
}
