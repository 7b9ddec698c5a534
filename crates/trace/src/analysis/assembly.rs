//! Packets put together to messages.

use ferroce_wire::opcode::{OpcodeInfo, Operation};

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
    /// The sequence behind its last packet, where its first one tells: a WRITE announces its length.
    end: Option<u64>,
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
    /// incomplete. Where a message may have ended and another begun in the gap, two incomplete messages are reported:
    /// their sizes are those of what was captured, never of two messages taken for one.
    pub(super) fn add(&mut self, slot: &Slot, ending: Ending, teller: &mut Teller<'_>) {
        let Some(info) = slot.info() else { return };
        if info.position.opens() || !self.continued_by(slot, info) {
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
        if fresh {
            self.end = end_of(slot);
        }

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
            _ if self.broken || slot.response_gap => MessageStatus::Incomplete,
            // A part of what it asked for: the rest is not in the capture.
            Ending::Acknowledged if slot.responses > 0 && slot.finished.is_none() => {
                MessageStatus::Incomplete
            }
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

    /// Whether a packet that opens no message belongs to the one under way.
    fn continued_by(&self, slot: &Slot, info: &OpcodeInfo) -> bool {
        let Some(message) = &self.message else { return true };
        let same = message.operation == operation_name(info.operation);
        let in_time = match self.end {
            _ if slot.sequence == self.next => true,
            Some(end) => slot.sequence < end,
            // A last packet and a first one are two: they do not fit in a gap of one.
            None => slot.sequence == self.next + 1,
        };
        same && in_time
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

/// The sequence behind the last packet of the message that this one opens, if it tells. All packets but the last have the
/// payload of the first (IBA 9.7.4.1.6).
fn end_of(slot: &Slot) -> Option<u64> {
    let announced = slot.announced.filter(|_| slot.payload > 0)?;
    Some(slot.sequence + u64::from(announced.div_ceil(slot.payload)))
}
