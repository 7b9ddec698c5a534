//! How large things are that a connection is made with, by `rsetsockopt`.

use ferroce::Context;

use super::flow::CONTROLS;
use super::wire::scaled;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Requests of the send queue and of the receive queue.
    pub(super) sends: u16,
    pub(super) receives: u16,
    /// Bytes that are sent without the send buffer.
    pub(super) inline: u16,
    /// Bytes of the send buffer and of the receive buffer.
    pub(super) send_bytes: u32,
    pub(super) receive_bytes: u32,
    /// Buffers that the peer may map.
    pub(super) maps: u16,
}

/// The defaults of rdma-core, which rsocket(7) tells of.
impl Default for Settings {
    fn default() -> Self {
        Self {
            sends: 384,
            receives: 384,
            inline: 64,
            send_bytes: 1 << 17,
            receive_bytes: 1 << 17,
            maps: 0,
        }
    }
}

/// The smallest queues that work, and the longest whose numbers of messages do not wrap within them.
const QUEUE: std::ops::RangeInclusive<u16> = 16..=0x7ffe;
/// The smallest buffers, and the largest that a message can be counted in.
const BUFFER: std::ops::RangeInclusive<u32> = 4096..=1 << 28;

impl Settings {
    /// The same, as far as the device and the protocol have it.
    pub(super) fn within(self, context: &Context) -> Self {
        let limits = context.limits();
        let queue = |wanted: u16| wanted.clamp(*QUEUE.start(), *QUEUE.end());
        Self {
            sends: queue(self.sends).max(CONTROLS as u16 + 1),
            receives: queue(self.receives),
            inline: self.inline.min(u16::try_from(limits.max_inline_data).unwrap_or(u16::MAX)),
            ..self
        }
    }

    pub(super) fn set_sends(&mut self, value: u32) {
        self.sends = u16::try_from(value).unwrap_or(u16::MAX).min(*QUEUE.end());
    }

    pub(super) fn set_receives(&mut self, value: u32) {
        self.receives = u16::try_from(value).unwrap_or(u16::MAX).min(*QUEUE.end());
    }

    pub(super) fn set_inline(&mut self, value: u32) {
        self.inline = u16::try_from(value).unwrap_or(u16::MAX);
    }

    /// Buffers are twice what is asked for, as socket(7) has it.
    pub(super) fn set_send_bytes(&mut self, value: u32) {
        self.send_bytes = value.saturating_mul(2).clamp(*BUFFER.start(), *BUFFER.end());
    }

    pub(super) fn set_receive_bytes(&mut self, value: u32) {
        self.receive_bytes = value.saturating_mul(2).clamp(*BUFFER.start(), *BUFFER.end());
    }

    pub(super) fn set_maps(&mut self, value: u32) {
        self.maps = scaled(u16::try_from(value).unwrap_or(u16::MAX));
    }

    /// Sends and receives of a queue pair of datagrams, each of which has a place of so many bytes in the buffers.
    pub(super) fn datagrams(&self, place: u32) -> (u16, u16) {
        let places = |bytes: u32| u16::try_from(bytes / place).unwrap_or(u16::MAX).max(1);
        let (sends, receives) = (places(self.send_bytes), places(self.receive_bytes));
        (self.sends.clamp(1, sends), self.receives.clamp(1, receives))
    }

    /// Bytes of half the receive buffer.
    pub(super) fn half(&self) -> u32 {
        self.receive_bytes / 2
    }
}
