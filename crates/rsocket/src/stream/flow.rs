//! Flow control of a stream: credits, receive buffer space and targets, as numbers only. Bytes and queue pairs belong
//! to [`super::connection`].
//!
//! The receive buffer is a ring of two halves. The peer is granted a half, fills it to the last byte and continues in
//! the other one; a half is granted again when the program has read all of it. Messages are counted as well: the peer
//! may be ahead of the program by the capacity of the receive queue.

use std::collections::VecDeque;

use super::wire::{ConnectData, StreamMessage, TARGET_BYTES, Target};
use crate::settings::MAX_CONTROL_MESSAGES;

/// Entries of the target list that the peer writes to: the two halves of its receive buffer.
pub(crate) const TARGET_ENTRIES: u32 = 2;

/// A violation of the protocol by the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// It wrote more bytes than it was granted.
    Bytes,
    /// It sent more messages than it had credits for.
    Messages,
    /// Its target list has no entries.
    Targets,
}

/// A message by which the peer ends the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PeerClose {
    /// The peer neither sends nor receives any more.
    Disconnect,
    /// The peer sends no more.
    Shutdown,
}

/// A credit update for the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CreditUpdate {
    pub(crate) message: StreamMessage,
    /// A half of the receive buffer, by its offset, and the entry of the peer's target list that it is written to.
    pub(crate) target: Option<(u32, u32)>,
}

#[derive(Debug)]
pub(crate) struct FlowControl {
    // Receive side.
    /// Length of half the receive buffer.
    half_bytes: u32,
    /// Capacity of the receive queue.
    recv_capacity: u16,
    /// Unread bytes of each message received.
    unread: VecDeque<u32>,
    /// Offset at which the program reads next.
    read_offset: u32,
    /// Bytes that the program has read and that are not granted again.
    reclaimed: u32,
    /// Offset of the half that is granted next.
    next_half: u32,
    /// Bytes that the peer may still write.
    granted: u64,
    /// Sequence number of the messages that the program has read.
    messages_read: u16,
    /// The peer is sent a credit update when `messages_read` reaches this number.
    update_at: u16,
    /// Length of the peer's target list, and the entry written next.
    peer_entries: u32,
    peer_entry: u32,
    // Send side.
    sent: u16,
    /// Sequence number up to which messages may be sent.
    send_limit: u16,
    /// Where the next bytes are written.
    target: Target,
    /// The entry of our target list that is used next, and the number of entries written and not used.
    next_entry: u32,
    new_targets: u32,
    control_slots: u32,
}

impl FlowControl {
    /// Starts a stream with this peer; our receive buffer has two halves of `half_bytes`.
    pub(crate) fn new(
        half_bytes: u32,
        recv_capacity: u16,
        peer: &ConnectData,
    ) -> Result<Self, Violation> {
        if peer.targets.length == 0 {
            return Err(Violation::Targets);
        }
        Ok(Self {
            half_bytes,
            recv_capacity,
            unread: VecDeque::new(),
            read_offset: 0,
            // The private data granted the first half.
            reclaimed: half_bytes,
            next_half: half_bytes,
            granted: half_bytes.into(),
            messages_read: 0,
            update_at: recv_capacity / 2,
            peer_entries: peer.targets.length,
            peer_entry: 1 % peer.targets.length,
            sent: 0,
            send_limit: peer.credits,
            target: peer.buffer,
            next_entry: 1 % TARGET_ENTRIES,
            new_targets: 0,
            control_slots: MAX_CONTROL_MESSAGES,
        })
    }

    /// Accounts for a received message that came with `written` bytes.
    pub(crate) fn receive_message(
        &mut self,
        message: StreamMessage,
        written: u32,
    ) -> Result<Option<PeerClose>, Violation> {
        match message {
            StreamMessage::Data(bytes) => {
                self.granted = self.granted.checked_sub(bytes.into()).ok_or(Violation::Bytes)?;
                if self.unread.len() >= self.recv_capacity.into() {
                    return Err(Violation::Messages);
                }
                // An empty message counts as read.
                if bytes == 0 {
                    self.messages_read = self.messages_read.wrapping_add(1);
                } else {
                    self.unread.push_back(bytes);
                }
            }
            StreamMessage::Credits(limit) => {
                self.send_limit = limit;
                if written as usize >= TARGET_BYTES {
                    self.new_targets = (self.new_targets + 1).min(TARGET_ENTRIES);
                }
            }
            StreamMessage::Disconnect => return Ok(Some(PeerClose::Disconnect)),
            StreamMessage::Shutdown => return Ok(Some(PeerClose::Shutdown)),
            StreamMessage::Mapped(_) | StreamMessage::KeepAlive | StreamMessage::Unknown(_) => {}
        }
        Ok(None)
    }

    /// Whether there are unread bytes.
    pub(crate) fn has_data(&self) -> bool {
        !self.unread.is_empty()
    }

    /// The parts of the receive buffer that hold the next unread bytes, up to `max`: offset and length, in order.
    pub(crate) fn readable(&self, max: usize) -> Vec<(u32, u32)> {
        let unread: u64 = self.unread.iter().map(|&bytes| u64::from(bytes)).sum();
        let bytes = unread.min(max as u64) as u32;
        let first = bytes.min(2 * self.half_bytes - self.read_offset);
        let mut parts = vec![(self.read_offset, first)];
        if bytes > first {
            parts.push((0, bytes - first));
        }
        parts
    }

    /// Accounts for bytes that the program has read.
    pub(crate) fn consume(&mut self, bytes: u32) {
        let mut left = bytes;
        while let Some(front) = self.unread.front_mut() {
            if left < *front {
                *front -= left;
                break;
            }
            left -= *front;
            self.unread.pop_front();
            self.messages_read = self.messages_read.wrapping_add(1);
        }
        self.read_offset = (self.read_offset + bytes) % (2 * self.half_bytes);
        self.reclaimed += bytes;
    }

    /// The credit update to send now, if one is due. It is accounted for as sent.
    pub(crate) fn credit_update(&mut self) -> Option<CreditUpdate> {
        let has_half = self.reclaimed >= self.half_bytes;
        // Sequence numbers wrap.
        let due = self.messages_read.wrapping_sub(self.update_at) as i16 >= 0;
        if self.control_slots == 0 || !(has_half || due) {
            return None;
        }
        self.control_slots -= 1;
        self.update_at = self.messages_read.wrapping_add(self.recv_capacity / 2);
        let target = has_half.then(|| {
            let target = (self.next_half, self.peer_entry);
            self.reclaimed -= self.half_bytes;
            self.granted += u64::from(self.half_bytes);
            self.next_half = if self.next_half == 0 { self.half_bytes } else { 0 };
            self.peer_entry = (self.peer_entry + 1) % self.peer_entries;
            target
        });
        let limit = self.messages_read.wrapping_add(self.recv_capacity);
        Some(CreditUpdate { message: StreamMessage::Credits(limit), target })
    }

    /// The entry of our target list to read, if the current target is used up and the peer has written another.
    pub(crate) fn next_target(&self) -> Option<u32> {
        (self.target.length == 0 && self.new_targets > 0).then_some(self.next_entry)
    }

    /// Continues with the target read from that entry.
    pub(crate) fn set_target(&mut self, target: Target) {
        self.target = target;
        self.new_targets -= 1;
        self.next_entry = (self.next_entry + 1) % TARGET_ENTRIES;
    }

    /// The number of bytes that a message may have now.
    pub(crate) fn sendable(&self) -> u32 {
        if self.sent == self.send_limit { 0 } else { self.target.length }
    }

    /// Accounts for a message of at most [`sendable`](Self::sendable) bytes, and returns where to write them.
    pub(crate) fn send(&mut self, bytes: u32) -> Target {
        let to = Target { length: bytes, ..self.target };
        self.target.address = self.target.address.wrapping_add(bytes.into());
        self.target.length -= bytes;
        self.sent = self.sent.wrapping_add(1);
        to
    }

    /// Whether there is a credit for a message without stream bytes.
    pub(crate) fn has_credit(&self) -> bool {
        self.sent != self.send_limit
    }

    /// Accounts for such a message.
    pub(crate) fn use_credit(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Reserves a slot for a control message. Returns false if all are in flight.
    pub(crate) fn take_control_slot(&mut self) -> bool {
        let free = self.control_slots > 0;
        self.control_slots -= u32::from(free);
        free
    }

    /// Frees the slot of a control message that completed.
    pub(crate) fn release_control_slot(&mut self) {
        self.control_slots = (self.control_slots + 1).min(MAX_CONTROL_MESSAGES);
    }
}

#[cfg(test)]
#[path = "flow_tests.rs"]
mod tests;
