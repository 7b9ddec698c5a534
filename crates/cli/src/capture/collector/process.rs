//! A process whose packets are collected.

use std::io;
use std::net::SocketAddr;

use ferroce::live::{Message, RecordHeader};
use ferroce_sys::capture_link::{Connection, MAX_MESSAGE};
use ferroce_sys::ring::{Broken, Consumer};

/// The maximum number of devices and of send addresses of a process: a process that names more is not believed.
const MAX_NAMES: usize = 1 << 16;

/// A process with a ring of packets.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) connection: Connection,
    ring: Consumer,
    pub(super) number: u32,
    pub(super) name: String,
    /// By the process's own numbers: indices into the collector's interfaces.
    pub(super) interfaces: Vec<usize>,
    pub(super) sources: Vec<SocketAddr>,
    /// It was told to record packets, and has said that it does.
    pub(super) told: bool,
    pub(super) begun: bool,
    /// The connection is closed. Its last packets may still be in the ring.
    pub(super) gone: bool,
    /// The ring has made no sense; nothing is taken from it any more.
    broken: bool,
    /// The time of the next packet.
    head: Option<u64>,
    /// All later packets have a later time.
    watermark: u64,
    /// Dropped packets that were found on records.
    pub(super) dropped_before_records: u64,
    /// Packets of devices that it has not described, which no file can hold.
    pub(super) undescribed: u64,
}

/// What a process has said.
pub(super) enum Notice {
    Interface { device: String, network: String },
    Source(SocketAddr),
}

impl Process {
    pub(super) fn new(connection: Connection, ring: Consumer) -> Self {
        let number = connection.process();
        let name = std::fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
        Self {
            connection,
            ring,
            number,
            name: name.trim().to_owned(),
            interfaces: Vec::new(),
            sources: Vec::new(),
            told: false,
            begun: false,
            gone: false,
            broken: false,
            head: None,
            watermark: 0,
            dropped_before_records: 0,
            undescribed: 0,
        }
    }

    /// Reads its messages.
    pub(super) fn messages(&mut self) -> Vec<Notice> {
        let mut notices = Vec::new();
        let mut buffer = [0; MAX_MESSAGE];
        while !self.gone {
            let message = match self.connection.receive(&mut buffer) {
                Ok(Some(length)) => Message::decode(&buffer[..length]),
                Ok(None) => break,
                Err(_) => {
                    self.gone = true;
                    break;
                }
            };
            match message {
                Some(Message::Interface { index, device, network })
                    if index as usize == self.interfaces.len() + devices(&notices)
                        && (index as usize) < MAX_NAMES =>
                {
                    notices.push(Notice::Interface { device, network });
                }
                Some(Message::Source(source)) if self.sources.len() < MAX_NAMES => {
                    self.sources.push(source);
                    notices.push(Notice::Source(source));
                }
                Some(Message::Begun) => self.begun = true,
                // Wakeups, and what a later version may say.
                _ => {}
            }
        }
        notices
    }

    pub(super) fn send(&self, message: &Message) -> io::Result<bool> {
        self.connection.send(&message.encode())
    }

    /// Looks for the next packet. `now` is the time before this call.
    pub(super) fn look(&mut self, now: u64) {
        if self.head.is_some() || self.broken {
            return;
        }
        // A process that ended in the middle of a record adds nothing.
        let idle = self.gone || self.ring.is_idle();
        let mut time = [0; 8];
        match self.ring.peek(&mut time) {
            Ok(Some(length)) if length >= RecordHeader::LENGTH => {
                self.head = Some(u64::from_le_bytes(time));
            }
            Ok(None) if self.gone => self.watermark = u64::MAX,
            Ok(None) if idle => self.watermark = self.watermark.max(now),
            Ok(None) => {}
            Ok(Some(_)) | Err(Broken) => self.fail(),
        }
    }

    fn fail(&mut self) {
        (self.broken, self.gone, self.watermark) = (true, true, u64::MAX);
        self.head = None;
        self.connection.close();
    }

    /// The time of the next packet.
    pub(super) fn head(&self) -> Option<u64> {
        self.head
    }

    /// If there is no next packet: the time up to which there will be none.
    pub(super) fn watermark(&self) -> u64 {
        self.watermark
    }

    /// Takes the next packet to the start of `out`, and returns its header and the length of its frame.
    pub(super) fn take(&mut self, out: &mut [u8]) -> Option<(RecordHeader, usize)> {
        self.head = None;
        let taken = self.ring.take(out);
        let record = taken.ok().flatten().and_then(|length| out.get(..length));
        let Some((header, frame)) = record.and_then(RecordHeader::decode) else {
            self.fail();
            return None;
        };
        self.watermark = self.watermark.max(header.time);
        Some((header, frame.len()))
    }

    /// Gives the space of the packets taken back.
    pub(super) fn release(&self) {
        // The process looks by itself.
        let _ = self.ring.release();
    }

    /// Asks for a message when there is a packet. Returns false if there is one.
    pub(super) fn sleep(&self) -> bool {
        self.broken || self.gone || self.ring.sleep()
    }

    /// How many of its packets are missing.
    pub(super) fn dropped(&self) -> u64 {
        self.ring.dropped() + self.undescribed
    }

    /// Whether it has ended and all its packets were taken.
    pub(super) fn is_finished(&self) -> bool {
        self.gone && self.head.is_none() && (self.broken || self.ring.is_empty())
    }
}

fn devices(notices: &[Notice]) -> usize {
    notices.iter().filter(|notice| matches!(notice, Notice::Interface { .. })).count()
}
