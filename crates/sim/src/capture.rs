//! Writes a run as a pcapng file: an interface per host, and a comment on each frame that a fault affected.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;

use ferroce_trace::file::{
    Direction, LinkType, MAX_WRITTEN_LEN, Packet, PcapngWriter, Timestamp, WriteError,
};

use crate::event_log::{EventLog, FrameEvent, FrameRecord};
use crate::host::HostId;
use crate::topology::TrunkId;

/// Which records a capture contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vantage {
    /// All records: a delivered frame appears twice, at its sender and at its receiver. For reading by people.
    Everything,
    /// Each frame once, as sent; lost frames have a comment.
    Sent,
    /// Each frame once, as delivered.
    Delivered,
    /// What a capture at this host would contain: the frames it sent and received. For analysis tools.
    Host(HostId),
    /// What a capture on a link between two switches would contain: the frames that they pass to its two directions, the
    /// first of which counts as outbound. For analysis tools.
    Trunk([TrunkId; 2]),
}

impl Vantage {
    fn sees(self, record: &FrameRecord<'_>) -> bool {
        let is_sent = matches!(record.event, FrameEvent::Sent | FrameEvent::SentThenDropped(_));
        match self {
            Self::Everything => true,
            Self::Sent => is_sent,
            Self::Delivered => record.event == FrameEvent::Delivered,
            Self::Host(host) => {
                record.host == host && (is_sent || record.event == FrameEvent::Delivered)
            }
            Self::Trunk(_) => false,
        }
    }

    /// The direction of a frame on a link between switches, if the capture contains it.
    fn direction_on(self, trunk: TrunkId) -> Option<Direction> {
        match self {
            Self::Trunk([out, _]) if trunk == out => Some(Direction::Outbound),
            Self::Trunk([_, back]) if trunk == back => Some(Direction::Inbound),
            _ => None,
        }
    }
}

/// Writes a pcapng file. Timestamps start at the epoch.
///
/// Interface 0 is the switch, for frames that were dropped after their uplink and those between switches; the hosts follow. A write error does not
/// disturb the run: [`Capture::finish`] returns it.
pub struct Capture<W: Write> {
    writer: PcapngWriter<W>,
    vantage: Vantage,
    /// Interfaces by host.
    interfaces: Vec<u32>,
    failed: Option<WriteError>,
}

/// The interface of the switch.
const SWITCH: u32 = 0;

impl<W: Write> Capture<W> {
    /// Starts a file with a comment on the section, such as the [`crate::Replay`].
    pub fn new(output: W, vantage: Vantage, comment: &str) -> Result<Self, WriteError> {
        let mut writer = PcapngWriter::with_comment(output, comment)?;
        writer.add_interface(LinkType::ETHERNET, Some("switch"))?;
        Ok(Self { writer, vantage, interfaces: Vec::new(), failed: None })
    }

    /// Finishes the file and returns the output, or the first error.
    pub fn finish(self) -> Result<W, WriteError> {
        match self.failed {
            Some(error) => Err(error),
            None => self.writer.finish(),
        }
    }

    fn add_host(&mut self, host: HostId, addresses: &[IpAddr]) -> Result<(), WriteError> {
        let name = addresses.iter().fold(host.to_string(), |name, at| format!("{name} {at}"));
        let interface = self.writer.add_interface(LinkType::ETHERNET, Some(&name))?;
        self.interfaces.push(interface);
        Ok(())
    }

    fn write(&mut self, record: &FrameRecord<'_>) -> Result<(), WriteError> {
        let (interface, direction) = match record.event {
            FrameEvent::Sent | FrameEvent::SentThenDropped(_) => (None, Some(Direction::Outbound)),
            FrameEvent::Delivered => (None, Some(Direction::Inbound)),
            FrameEvent::Dropped(_) => (Some(SWITCH), None),
        };
        let own = self.interfaces.get(record.host.index()).copied();
        let Some(interface) = interface.or(own) else { return Ok(()) };
        self.write_to(interface, direction, record)
    }

    fn write_to(
        &mut self,
        interface: u32,
        direction: Option<Direction>,
        record: &FrameRecord<'_>,
    ) -> Result<(), WriteError> {
        let comment = match (record.event.cause(), record.faults.is_empty()) {
            (None, true) => None,
            (None, false) => Some(record.faults.to_string()),
            (Some(cause), true) => Some(cause.to_string()),
            (Some(cause), false) => Some(format!("{cause}; {}", record.faults)),
        };
        let nanoseconds = i64::try_from(record.time.as_nanos()).unwrap_or(i64::MAX);
        let (captured, len) = (record.frame.len().min(MAX_WRITTEN_LEN), record.frame.len());
        let packet = Packet {
            direction,
            comment: comment.as_deref(),
            ..Packet::new(Timestamp::from_nanoseconds(nanoseconds), &record.frame[..captured])
        };
        let on_wire = u32::try_from(len).unwrap_or(u32::MAX);
        self.writer.write(&packet.cut_from(on_wire).on_interface(interface))
    }

    fn keep(&mut self, result: Result<(), WriteError>) {
        if let (Err(error), None) = (result, &self.failed) {
            self.failed = Some(error);
        }
    }
}

impl<W: Write> EventLog for Capture<W> {
    fn host_added(&mut self, host: HostId, addresses: &[IpAddr]) {
        let result = self.add_host(host, addresses);
        self.keep(result);
    }

    fn record(&mut self, record: &FrameRecord<'_>) {
        if self.failed.is_none() && self.vantage.sees(record) {
            let result = self.write(record);
            self.keep(result);
        }
    }

    fn crosses(&mut self, trunk: TrunkId, record: &FrameRecord<'_>) {
        let direction = self.vantage.direction_on(trunk);
        if self.failed.is_none() && direction.is_some() {
            let result = self.write_to(SWITCH, direction, record);
            self.keep(result);
        }
    }
}

impl<W: Write> fmt::Debug for Capture<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("vantage", &self.vantage).finish_non_exhaustive()
    }
}
