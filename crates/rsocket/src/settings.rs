//! Sizes of queues and buffers, set by `rsetsockopt` before a connection exists.

use ferroce::Context;

/// Control messages of a stream that may be in flight. They use no credits: the peer may have no receive posted for
/// them, and they are retransmitted (RNR).
pub(crate) const MAX_CONTROL_MESSAGES: u32 = 4;
/// Receives posted in addition to those that the peer has credits for. A program that makes no call posts no receives: without
/// these, the credit updates and the disconnect of a peer that has used all its credits would be retransmitted (RNR) until it
/// does, and the peer would wait for it in `rclose`. That many suffice: two updates with a target, one without, a shutdown and a
/// disconnect.
pub(crate) const CONTROL_RECEIVES: u32 = 8;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Capacity of the SQ and of the RQ.
    pub(crate) max_send_wr: u16,
    pub(crate) max_recv_wr: u16,
    /// Bytes that are sent inline, without the send buffer.
    pub(crate) inline_bytes: u16,
    /// Length of the send buffer and of the receive buffer.
    pub(crate) send_bytes: u32,
    pub(crate) receive_bytes: u32,
    /// Buffers that the peer may map (`riomap`).
    pub(crate) maps: u16,
}

impl Settings {
    /// The defaults of datagram sockets: those of rdma-core, documented in rsocket(7).
    pub(crate) const DATAGRAM: Self = Self {
        max_send_wr: 384,
        max_recv_wr: 384,
        inline_bytes: 64,
        send_bytes: 1 << 17,
        receive_bytes: 1 << 17,
        maps: 0,
    };
    /// The defaults of streams. Buffers are longer than rdma-core's 128 KiB: a sender that waits for a half of the peer's buffer
    /// waits for two threads to be scheduled, so a half has to hold what is sent meanwhile. Pages are allocated when used.
    pub(crate) const STREAM: Self =
        Self { send_bytes: 1 << 20, receive_bytes: 1 << 20, ..Self::DATAGRAM };
}

/// From the shortest queue that works to the longest within which 16-bit sequence numbers do not wrap.
const QUEUE_CAPACITY: std::ops::RangeInclusive<u16> = 16..=0x7ffe;
/// From the shortest buffer to the longest whose fill level a message can carry.
const BUFFER_BYTES: std::ops::RangeInclusive<u32> = 4096..=1 << 28;

impl Settings {
    /// Limits the settings to what the device and the protocol support.
    pub(crate) fn clamp_to(self, context: &Context) -> Self {
        self.clamp(context.limits().max_inline_data)
    }

    fn clamp(self, max_inline_data: u32) -> Self {
        let queue = |wanted: u16| wanted.clamp(*QUEUE_CAPACITY.start(), *QUEUE_CAPACITY.end());
        Self {
            max_send_wr: queue(self.max_send_wr).max(MAX_CONTROL_MESSAGES as u16 + 1),
            max_recv_wr: queue(self.max_recv_wr),
            inline_bytes: self.inline_bytes.min(saturate(max_inline_data)),
            ..self
        }
    }

    pub(crate) fn set_max_send_wr(&mut self, value: u32) {
        self.max_send_wr = saturate(value).min(*QUEUE_CAPACITY.end());
    }

    pub(crate) fn set_max_recv_wr(&mut self, value: u32) {
        self.max_recv_wr = saturate(value).min(*QUEUE_CAPACITY.end());
    }

    pub(crate) fn set_inline_bytes(&mut self, value: u32) {
        self.inline_bytes = saturate(value);
    }

    /// Sets the length of the send buffer: twice the requested length, as socket(7) specifies for `SO_SNDBUF`.
    pub(crate) fn set_send_bytes(&mut self, value: u32) {
        self.send_bytes = doubled(value);
    }

    /// Sets the length of the receive buffer: twice the requested length, as socket(7) specifies for `SO_RCVBUF`.
    pub(crate) fn set_receive_bytes(&mut self, value: u32) {
        self.receive_bytes = doubled(value);
    }

    /// The SQ and RQ capacities of a datagram QP whose every WR has a slot of `slot_bytes` in the buffers.
    pub(crate) fn datagram_queues(&self, slot_bytes: u32) -> (u16, u16) {
        let slots = |bytes: u32| saturate(bytes / slot_bytes).max(1);
        let (sends, receives) = (slots(self.send_bytes), slots(self.receive_bytes));
        (self.max_send_wr.clamp(1, sends), self.max_recv_wr.clamp(1, receives))
    }

    /// Length of half the receive buffer.
    pub(crate) fn half_receive_bytes(&self) -> u32 {
        self.receive_bytes / 2
    }
}

/// Converts to 16 bits; larger values become `u16::MAX`.
pub(crate) fn saturate(value: u32) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}

fn doubled(value: u32) -> u32 {
    value.saturating_mul(2).clamp(*BUFFER_BYTES.start(), *BUFFER_BYTES.end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_are_twice_the_requested_length_within_limits() {
        let mut settings = Settings::STREAM;
        settings.set_send_bytes(10_000);
        settings.set_receive_bytes(1);
        assert_eq!((settings.send_bytes, settings.receive_bytes), (20_000, 4096));
        settings.set_receive_bytes(u32::MAX);
        assert_eq!((settings.receive_bytes, settings.half_receive_bytes()), (1 << 28, 1 << 27));
    }

    #[test]
    fn queue_capacities_are_clamped_when_the_connection_is_made() {
        let mut settings = Settings::STREAM;
        settings.set_max_send_wr(1);
        settings.set_max_recv_wr(100_000);
        settings.set_inline_bytes(70_000);
        // What the program reads back before there is a connection.
        assert_eq!((settings.max_send_wr, settings.max_recv_wr), (1, 0x7ffe));
        let clamped = settings.clamp(400);
        assert_eq!((clamped.max_send_wr, clamped.max_recv_wr), (16, 0x7ffe));
        assert_eq!((settings.inline_bytes, clamped.inline_bytes), (u16::MAX, 400));
        assert!(u32::from(clamped.max_send_wr) > MAX_CONTROL_MESSAGES);
    }

    #[test]
    fn datagram_queues_have_no_more_wrs_than_slots() {
        let mut settings = Settings::DATAGRAM;
        assert_eq!(settings.datagram_queues(2048), (64, 64));
        settings.set_max_send_wr(8);
        settings.set_receive_bytes(1 << 20);
        assert_eq!(settings.datagram_queues(2048), (8, 384));
        settings.set_max_send_wr(0);
        settings.set_send_bytes(0);
        assert_eq!(settings.datagram_queues(1 << 20).0, 1);
    }
}
