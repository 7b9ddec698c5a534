//! What a stream may send, and what it has received: numbers only. Bytes and queue pairs are [`super::link`]'s.
//!
//! The receive buffer is a ring of two halves. The peer is told of a half, fills it to its last byte, and goes on in the
//! other; it is told of a half again when the program has read all of it. Beside the room for bytes, messages are
//! counted: the peer may be ahead of the program by as many as the receive queue has places.

use std::collections::VecDeque;

use super::wire::{ConnectData, Message, TARGET_BYTES, Target};

/// Entries of the list of targets that the peer writes to: the two halves of its buffer.
pub(crate) const TARGETS: u32 = 2;
/// Control messages that may be under way at once. They have no credits: the peer may have no receive for them just then,
/// and they are sent again.
pub(crate) const CONTROLS: u32 = 4;

/// What the peer did that it may not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Violation {
    /// More bytes than it has been told of.
    Bytes,
    /// More messages than it had credits for.
    Messages,
    /// A list of targets without entries.
    Targets,
}

/// What a message means to the socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Nothing, or what [`Flow`] has taken note of.
    Noted,
    /// The peer is through with sending and receiving.
    Disconnected,
    /// The peer is through with sending.
    Shutdown,
}

/// What to tell the peer of, if anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Grant {
    pub(crate) message: Message,
    /// A half of the buffer by its offset, and the entry of the peer's list that it goes to.
    pub(crate) half: Option<(u32, u32)>,
}

#[derive(Debug)]
pub(crate) struct Flow {
    // What we receive.
    /// Bytes of half the buffer.
    half: u32,
    /// Places of the receive queue.
    places: u16,
    /// What is left of each message that arrived.
    messages: VecDeque<u32>,
    /// Where the program reads next.
    read_at: u32,
    /// Bytes that the program has read, or that were never given out.
    free: u32,
    /// The half that is given out next.
    free_at: u32,
    /// Bytes that the peer may still write.
    granted: u64,
    /// Messages that the program has read.
    read: u16,
    /// When as many are read, the peer is told.
    tell_at: u16,
    /// Entries of the peer's list, and the one that is written next.
    entries: u32,
    entry: u32,
    // What we send.
    sent: u16,
    /// Messages may be sent up to this number.
    up_to: u16,
    /// Where bytes go now.
    target: Target,
    /// The entry of our list that is used next, and how many have been written that were not.
    next: u32,
    fresh: u32,
    controls: u32,
}

impl Flow {
    /// A connection with this peer, where our receive buffer has two halves of so many bytes.
    pub(crate) fn new(half: u32, places: u16, peer: &ConnectData) -> Result<Self, Violation> {
        if peer.targets.length == 0 {
            return Err(Violation::Targets);
        }
        Ok(Self {
            half,
            places,
            messages: VecDeque::new(),
            read_at: 0,
            // The first half was given out with the private data.
            free: half,
            free_at: half,
            granted: half.into(),
            read: 0,
            tell_at: places / 2,
            entries: peer.targets.length,
            entry: 1 % peer.targets.length,
            sent: 0,
            up_to: peer.credits,
            target: peer.buffer,
            next: 1 % TARGETS,
            fresh: 0,
            controls: CONTROLS,
        })
    }

    /// A message came, with so many bytes written.
    pub(crate) fn arrived(&mut self, message: Message, written: u32) -> Result<News, Violation> {
        match message {
            Message::Data(bytes) => {
                self.granted = self.granted.checked_sub(bytes.into()).ok_or(Violation::Bytes)?;
                if self.messages.len() >= self.places.into() {
                    return Err(Violation::Messages);
                }
                // One without bytes is read by being there.
                if bytes == 0 {
                    self.read = self.read.wrapping_add(1);
                } else {
                    self.messages.push_back(bytes);
                }
            }
            Message::Credits(up_to) => {
                self.up_to = up_to;
                if written as usize >= TARGET_BYTES {
                    self.fresh = (self.fresh + 1).min(TARGETS);
                }
            }
            Message::Disconnect => return Ok(News::Disconnected),
            Message::Shutdown => return Ok(News::Shutdown),
            Message::Mapped(_) | Message::KeepAlive | Message::Unknown(_) => {}
        }
        Ok(News::Noted)
    }

    /// Whether there is something to read.
    pub(crate) fn has_data(&self) -> bool {
        !self.messages.is_empty()
    }

    /// The parts of the buffer with the next bytes to read, at most so many: offset and length, in order.
    pub(crate) fn readable(&self, most: usize) -> Vec<(u32, u32)> {
        let waiting: u64 = self.messages.iter().map(|&bytes| u64::from(bytes)).sum();
        let bytes = waiting.min(most as u64) as u32;
        let first = bytes.min(2 * self.half - self.read_at);
        let mut parts = vec![(self.read_at, first)];
        if bytes > first {
            parts.push((0, bytes - first));
        }
        parts
    }

    /// The program has read so many bytes.
    pub(crate) fn consume(&mut self, bytes: u32) {
        let mut left = bytes;
        while let Some(front) = self.messages.front_mut() {
            if left < *front {
                *front -= left;
                break;
            }
            left -= *front;
            self.messages.pop_front();
            self.read = self.read.wrapping_add(1);
        }
        self.read_at = (self.read_at + bytes) % (2 * self.half);
        self.free += bytes;
    }

    /// What to tell the peer of now. It is taken for told.
    pub(crate) fn grant(&mut self) -> Option<Grant> {
        let half = self.free >= self.half;
        // Numbers of messages wrap.
        let due = self.read.wrapping_sub(self.tell_at) as i16 >= 0;
        if self.controls == 0 || !(half || due) {
            return None;
        }
        self.controls -= 1;
        self.tell_at = self.read.wrapping_add(self.places / 2);
        let half = half.then(|| {
            let place = (self.free_at, self.entry);
            self.free -= self.half;
            self.granted += u64::from(self.half);
            self.free_at = if self.free_at == 0 { self.half } else { 0 };
            self.entry = (self.entry + 1) % self.entries;
            place
        });
        Some(Grant { message: Message::Credits(self.read.wrapping_add(self.places)), half })
    }

    /// The entry of our list to look at, when the target is used up and there is another.
    pub(crate) fn next_target(&self) -> Option<u32> {
        (self.target.length == 0 && self.fresh > 0).then_some(self.next)
    }

    /// What was there.
    pub(crate) fn set_target(&mut self, target: Target) {
        self.target = target;
        self.fresh -= 1;
        self.next = (self.next + 1) % TARGETS;
    }

    /// How many bytes a message may have now.
    pub(crate) fn room(&self) -> u32 {
        if self.sent == self.up_to { 0 } else { self.target.length }
    }

    /// A message of so many bytes, no more than there is room for: where they go.
    pub(crate) fn send(&mut self, bytes: u32) -> Target {
        let to = Target { length: bytes, ..self.target };
        self.target.address = self.target.address.wrapping_add(bytes.into());
        self.target.length -= bytes;
        self.sent = self.sent.wrapping_add(1);
        to
    }

    /// Whether a message without bytes for the stream may be sent that needs a credit.
    pub(crate) fn has_credit(&self) -> bool {
        self.sent != self.up_to
    }

    /// One is sent.
    pub(crate) fn spend_credit(&mut self) {
        self.sent = self.sent.wrapping_add(1);
    }

    /// Takes leave to send a control message.
    pub(crate) fn take_control(&mut self) -> bool {
        let free = self.controls > 0;
        self.controls -= u32::from(free);
        free
    }

    /// A control message has arrived.
    pub(crate) fn control_done(&mut self) {
        self.controls = (self.controls + 1).min(CONTROLS);
    }
}

#[cfg(test)]
mod tests;
