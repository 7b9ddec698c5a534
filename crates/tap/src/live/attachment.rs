//! A collector of this process's packets: the ring to it, and what it has asked for.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use ferroce_sys::capture_link::{CollectorName, Connection, MAX_MESSAGE};
use ferroce_sys::ring::{Broken, Producer};
use ferroce_trace::file::Direction;

use super::super::metadata::Sources;
use super::message::{Message, RecordHeader};
use crate::capture::Interface;
use crate::chunk::real_time;
use crate::frame;
use crate::metadata::PacketMetadata;
use crate::sync::lock;

/// How often a thread that waits for space looks whether there is some. The collector empties the ring in a few
/// milliseconds.
const SPACE_INTERVAL: Duration = Duration::from_micros(500);

/// What is needed to write a record. One thread at a time does.
#[derive(Debug)]
struct Output {
    producer: Producer,
    /// The headers of the current frame.
    headers: Vec<u8>,
    /// Packets dropped since the last record, by interface.
    dropped: Vec<u64>,
}

/// The connection of this process to a collector.
#[derive(Debug)]
pub(crate) struct Attachment {
    pub(super) collector: CollectorName,
    connection: Connection,
    output: Mutex<Output>,
    /// Packets are recorded.
    begun: AtomicBool,
    ended: AtomicBool,
    /// The addresses that captured processes send from: they record their packets, so others do not.
    sources: Sources,
    /// The devices by their number in the records.
    interfaces: Mutex<Vec<String>>,
}

impl Attachment {
    pub(super) fn open(collector: &CollectorName) -> std::io::Result<Self> {
        let (connection, producer) = Connection::open(collector)?;
        let output = Output { producer, headers: Vec::new(), dropped: Vec::new() };
        Ok(Self {
            collector: collector.clone(),
            connection,
            output: Mutex::new(output),
            begun: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            sources: Sources::default(),
            interfaces: Mutex::default(),
        })
    }

    /// The number of a device; described to the collector when it is new. A device that is opened again keeps its number.
    pub(super) fn interface(&self, device: &Interface) -> u32 {
        let mut interfaces = lock(&self.interfaces);
        let known = interfaces.iter().position(|name| *name == device.name);
        let index = known.unwrap_or_else(|| {
            interfaces.push(device.name.clone());
            let index = interfaces.len() - 1;
            self.send(&Message::Interface {
                index: index as u32,
                device: device.name.clone(),
                network: device.network.clone(),
            });
            index
        });
        index as u32
    }

    /// Announces an address that this process sends from, before the first packet leaves.
    pub(crate) fn add_source(&self, source: SocketAddr) {
        self.sources.set(source, true);
        self.send(&Message::Source(source));
    }

    fn send(&self, message: &Message) {
        // A collector that does not read for a second lacks the description of a device or an address; it is stopped.
        if self.connection.send_patiently(&message.encode()).is_err() {
            self.end();
        }
    }

    /// Records packets from now on.
    pub(super) fn begin(&self) {
        if !self.begun.swap(true, Ordering::AcqRel) {
            self.send(&Message::Begun);
        }
    }

    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Ordering::Acquire)
    }

    /// Ends the connection. Threads that wait for space return.
    pub(super) fn end(&self) {
        self.ended.store(true, Ordering::Release);
        self.connection.close();
    }

    /// Handles the collector's messages until it is gone.
    pub(super) fn run(&self) {
        let mut buffer = [0; MAX_MESSAGE];
        while !self.has_ended() {
            match self.connection.receive(&mut buffer) {
                Ok(Some(length)) => match Message::decode(&buffer[..length]) {
                    Some(Message::Begin) => self.begin(),
                    Some(Message::Source(source)) => self.sources.set(source, true),
                    Some(Message::NoSource(source)) => self.sources.set(source, false),
                    // A later version may say more.
                    _ => {}
                },
                Ok(None) => self.connection.wait_for_message(),
                Err(_) => break,
            }
        }
        self.end();
    }

    /// Writes a packet of a device to the ring, unless its sender records it. If the ring is full, waits or drops it, as
    /// the collector has asked.
    pub(crate) fn push(
        &self,
        interface: u32,
        device: &Interface,
        metadata: &PacketMetadata,
        packet: &[u8],
    ) {
        let is_active = self.begun.load(Ordering::Relaxed) && !self.has_ended();
        if !is_active || self.sources.record(metadata) {
            return;
        }
        let mut output = lock(&self.output);
        let Output { producer, headers, dropped } = &mut *output;
        producer.begin();
        let time = real_time();
        frame::headers(device, metadata, packet, headers);
        let original = headers.len() + packet.len();
        let captured = original.min(self.collector.parameters.snap_len as usize);
        let length = RecordHeader::LENGTH + captured;
        match self.wait_for_room(producer, length) {
            Ok(true) => {}
            Ok(false) => {
                producer.count_dropped();
                let index = interface as usize;
                dropped.resize(dropped.len().max(index + 1), 0);
                dropped[index] += 1;
                producer.end();
                return;
            }
            Err(Broken) => return self.end(),
        }
        let Ok(Some(room)) = producer.room(length) else { return self.end() };
        let header = RecordHeader {
            time,
            interface,
            original: original as u32,
            received: metadata.direction == Direction::Inbound,
            queue_pair: metadata.owner.queue_pair.0,
            work: metadata.owner.work.map(|work| work.0),
            dropped: dropped.get_mut(interface as usize).map_or(0, std::mem::take),
        };
        let (start, rest) = room.split_at_mut(RecordHeader::LENGTH);
        start.copy_from_slice(&header.encode());
        let (first, second) = rest.split_at_mut(headers.len().min(captured));
        first.copy_from_slice(&headers[..first.len()]);
        second.copy_from_slice(&packet[..second.len()]);
        producer.commit(length);
        let wake = producer.publish();
        producer.end();
        drop(output);
        if wake {
            let _ = self.connection.send(&Message::Bell.encode());
        }
    }

    /// Whether there is space for a record. Waits for it if the collector asks for this, until it is gone.
    fn wait_for_room(&self, producer: &mut Producer, length: usize) -> Result<bool, Broken> {
        if producer.has_room(length)? {
            return Ok(true);
        }
        let _ = self.connection.send(&Message::Bell.encode());
        if !self.collector.parameters.block {
            return Ok(false);
        }
        while !producer.has_room(length)? {
            if self.has_ended() || self.connection.wait_for_end(SPACE_INTERVAL) {
                return Err(Broken);
            }
        }
        Ok(true)
    }
}
