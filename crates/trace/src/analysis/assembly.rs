//! Reassembly of messages from their packets.

use ferroce_wire::opcode::{OpcodeInfo, Operation};

use super::hierarchy::operation_name;
use super::report::{CapturedMessage, MessageStatus};
use super::sink::Reporter;
use super::window::TrackedRequest;

/// The unfinished message of one sender, fed with packets in order.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    message: Option<CapturedMessage>,
    /// The sequence number of the next packet.
    next: u64,
    broken: bool,
    /// The sequence number after its last packet, if known: the first packet of a WRITE carries the length.
    end: Option<u64>,
}

/// How the status of a complete message is determined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// By the acknowledgements of its packets.
    Acknowledged,
    /// The service has no acknowledgements.
    Unreliable,
}

impl Assembly {
    /// Adds the next packet. A gap in the sequence makes the message incomplete. If a message may have ended and another
    /// begun within the gap, two incomplete messages are reported with the sizes that were captured, rather than one
    /// message made of both.
    pub(super) fn add(
        &mut self,
        request: &TrackedRequest,
        ending: Ending,
        reporter: &mut Reporter<'_>,
    ) {
        let Some(info) = request.info() else { return };
        if info.position.opens() || !self.continued_by(request, info) {
            self.flush(reporter);
        }
        let fresh = self.message.is_none();
        let message = self.message.get_or_insert_with(|| CapturedMessage {
            conversation: 0,
            from_a: reporter.side.from_a,
            operation: operation_name(info.operation),
            size: 0,
            packets: 0,
            retransmitted: 0,
            first_frame: request.first.frame,
            last_frame: request.first.frame,
            time_ns: request.first.time,
            psn: (request.psn.0, request.psn.0),
            latency_ns: None,
            status: MessageStatus::Unacknowledged,
            immediate: None,
            invalidate: None,
            remote_address: request.address,
            remote_key: request.key,
        });
        let continues = if fresh { info.position.opens() } else { request.sequence == self.next };
        self.broken = if fresh { !continues } else { self.broken || !continues };
        self.next = request.end();
        if fresh {
            self.end = end_of_message(request);
        }

        message.packets += 1 + u64::from(request.responses);
        message.retransmitted += u64::from(request.sends - 1 + request.probes);
        message.size += match info.operation {
            Operation::CompareSwap | Operation::FetchAdd => 8,
            _ => u64::from(request.payload) + request.response_bytes,
        };
        message.psn.1 = request.psn.add(request.psn_count - 1).0;
        message.immediate = message.immediate.or(request.immediate);
        message.invalidate = message.invalidate.or(request.invalidate);
        let finished = request.finished.or(request.refused).unwrap_or(request.last);
        message.last_frame = message.last_frame.max(finished.frame);
        if request.refused.is_some() {
            message.status = MessageStatus::Refused;
        }
        if !info.position.ends() {
            return;
        }
        message.status = match ending {
            _ if message.status == MessageStatus::Refused => MessageStatus::Refused,
            _ if self.broken || request.response_gap => MessageStatus::Incomplete,
            // Partial response: the remainder is not in the capture.
            Ending::Acknowledged if request.responses > 0 && request.finished.is_none() => {
                MessageStatus::Incomplete
            }
            Ending::Unreliable => MessageStatus::Sent,
            Ending::Acknowledged if request.finished.is_some() => MessageStatus::Acknowledged,
            Ending::Acknowledged => MessageStatus::Unacknowledged,
        };
        if message.status == MessageStatus::Acknowledged {
            message.latency_ns = u64::try_from(finished.time - message.time_ns).ok();
        }
        if let Some(message) = self.message.take() {
            reporter.sink.message(reporter.side, message);
        }
    }

    /// Whether a packet that does not open a message belongs to the unfinished one.
    fn continued_by(&self, request: &TrackedRequest, info: &OpcodeInfo) -> bool {
        let Some(message) = &self.message else { return true };
        let same = message.operation == operation_name(info.operation);
        let in_reach = match self.end {
            _ if request.sequence == self.next => true,
            Some(end) => request.sequence < end,
            // A gap of one cannot hold both a last and a first packet.
            None => request.sequence == self.next + 1,
        };
        same && in_reach
    }

    /// Reports the unfinished message as incomplete.
    pub(super) fn flush(&mut self, reporter: &mut Reporter<'_>) {
        let Some(mut message) = self.message.take() else { return };
        if message.status != MessageStatus::Refused {
            message.status = MessageStatus::Incomplete;
        }
        reporter.sink.message(reporter.side, message);
    }
}

/// The sequence number after the last packet of the message that `request` opens, if it carries the length. All packets
/// but the last have the same payload length (IBA 9.7.4.1.6).
fn end_of_message(request: &TrackedRequest) -> Option<u64> {
    let write_length = request.write_length.filter(|_| request.payload > 0)?;
    Some(request.sequence + u64::from(write_length.div_ceil(request.payload)))
}
