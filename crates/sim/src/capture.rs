//! A run as a pcapng file: an interface for each host, and a comment on each frame that something happened to.

use std::fmt;
use std::io::Write;
use std::net::IpAddr;

use ferroce_trace::file::{
    Direction, LinkType, MAX_WRITTEN_LEN, Packet, PcapngWriter, Timestamp, WriteError,
};

use crate::host::HostId;
use crate::trace::{Point, Record, Trace};

/// Which records a capture takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vantage {
    /// All: a frame that arrives is there twice, once at either host. For reading along.
    Everything,
    /// Each frame once, as it was sent, the lost ones with a comment.
    Sent,
    /// Each frame once, as it was delivered.
    Delivered,
    /// As if captured at this host: what it sent and what it got. For tools that diagnose.
    Host(HostId),
}

impl Vantage {
    fn sees(self, record: &Record<'_>) -> bool {
        let is_sent = matches!(record.point, Point::Sent | Point::SentInVain(_));
        match self {
            Self::Everything => true,
            Self::Sent => is_sent,
            Self::Delivered => record.point == Point::Delivered,
            Self::Host(host) => {
                record.host == host && (is_sent || record.point == Point::Delivered)
            }
        }
    }
}

/// Writes a pcapng file. Time starts at the epoch.
///
/// Interface 0 is the switch, where frames show that were dropped behind their uplink; then follow the hosts. A failure
/// to write does not disturb the run: it is kept until [`Capture::finish`].
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
    /// Starts a file with a comment on all of it, such as the [`crate::Replay`].
    pub fn new(output: W, vantage: Vantage, comment: &str) -> Result<Self, WriteError> {
        let mut writer = PcapngWriter::with_comment(output, comment)?;
        writer.add_interface(LinkType::ETHERNET, Some("switch"))?;
        Ok(Self { writer, vantage, interfaces: Vec::new(), failed: None })
    }

    /// Ends the file and returns the output, or the first thing that went wrong.
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

    fn write(&mut self, record: &Record<'_>) -> Result<(), WriteError> {
        let (interface, direction) = match record.point {
            Point::Sent | Point::SentInVain(_) => (None, Some(Direction::Outbound)),
            Point::Delivered => (None, Some(Direction::Inbound)),
            Point::Dropped(_) => (Some(SWITCH), None),
        };
        let own = self.interfaces.get(record.host.index()).copied();
        let Some(interface) = interface.or(own) else { return Ok(()) };
        let comment = match (record.point.cause(), record.faults.is_empty()) {
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

impl<W: Write> Trace for Capture<W> {
    fn host_added(&mut self, host: HostId, addresses: &[IpAddr]) {
        let result = self.add_host(host, addresses);
        self.keep(result);
    }

    fn record(&mut self, record: &Record<'_>) {
        if self.failed.is_none() && self.vantage.sees(record) {
            let result = self.write(record);
            self.keep(result);
        }
    }
}

impl<W: Write> fmt::Debug for Capture<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Capture").field("vantage", &self.vantage).finish_non_exhaustive()
    }
}
