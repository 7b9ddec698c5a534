//! Segmentation offload: capture records that hold several packets.
//!
//! Linux passes a batch of equal-sized UDP datagrams to the interface as one large datagram (UDP GSO), and joins
//! datagrams that arrive back to back into one (UDP GRO). Captures on lo, on a veth pair, or on a NIC that segments
//! in hardware see the batch as one datagram. Such a record has one IP and one UDP header with the lengths of the whole
//! batch, followed by the packets back to back, each from its BTH to its ICRC. All have the same length except the last,
//! which may be shorter.
//!
//! [`PacketRun::find`] searches for that length and verifies it by an ICRC. The ICRC covers the lengths in the IP and UDP
//! headers and the IPv4 identification, so the headers are rebuilt as segmentation creates them: lengths of the
//! single packet, identifications incremented from that of the record. If GRO joined packets of several batches, the
//! identifications are not consecutive; they are then solved from the ICRC ([`ferroce_wire::icrc::hidden::solve`]) and
//! accepted only if near the expected ones.
//!
//! ```
//! # use ferroce_trace::{file::CaptureReader, segments::PacketRun};
//! # let file = [0xd4, 0xc3, 0xb2, 0xa1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 1, 0, 0, 0];
//! let mut reader = CaptureReader::new(&file[..])?;
//! let mut buffer = Vec::new();
//! while let Some(record) = reader.next_record()? {
//!     match PacketRun::find(&record) {
//!         None => println!("frame {}: one packet", record.number),
//!         Some(run) => {
//!             for index in 0..run.captured() {
//!                 let packet = run.packet(&record, index, &mut buffer);
//!                 println!("frame {}: {} bytes", packet.number, packet.original_len);
//!             }
//!         }
//!     }
//! }
//! # Ok::<(), ferroce_trace::file::FileError>(())
//! ```

mod carrier;
mod search;
#[cfg(test)]
mod tests;

use ferroce_wire::frame::{Frame, IcrcVerdict};
use ferroce_wire::opcode::Position;
use ferroce_wire::packet::MAX_PAYLOAD;

use crate::dissect;
pub use crate::file::Segment;

use crate::file::Record;
use crate::link::LinkType;
use carrier::Carrier;

/// The path MTUs (IBA 9.2): payload lengths of first and middle packets (IBA 9.7.4.1.6).
const PATH_MTUS: [usize; 5] = [256, 512, 1024, 2048, 4096];

/// The packets of one record: all of equal length except the last, which may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketRun {
    /// Length of the headers before the IP header.
    link_len: usize,
    /// Length of the IP header with options.
    ip_len: usize,
    /// Length of each packet, from the BTH to the ICRC.
    segment_len: usize,
    /// Length of all packets on the wire.
    len: usize,
    /// Captured length of all packets.
    captured_len: usize,
}

impl PacketRun {
    /// Finds the packets of a record that holds several. Returns `None` if it holds one, or if no ICRC confirms the
    /// packet length.
    pub fn find(record: &Record<'_>) -> Option<Self> {
        let (start, frame) =
            dissect::read(record.link, record.data, record.original_len as usize).ok()??;
        if !frame.is_roce() || frame.check_icrc() == IcrcVerdict::Ok {
            return None;
        }
        Self::find_in(record.link, start, &frame)
    }

    /// Like [`PacketRun::find`], for a record whose frame starts at `start` and has a wrong ICRC as a single packet.
    pub(crate) fn find_in(link: LinkType, start: usize, frame: &Frame<'_>) -> Option<Self> {
        // The ERF header repeats the length, and capture cards see the packets after segmentation.
        if link == LinkType::ERF || frame.problem.is_some() {
            return None;
        }
        let carrier = Carrier::of(frame)?;
        let run = search::search(&carrier, &mut search::Work::default())?;
        let link_len = start + frame.at.network;
        Some(Self {
            link_len,
            ip_len: frame.at.udp - frame.at.network,
            segment_len: run,
            len: carrier.len,
            captured_len: carrier.payload.len(),
        })
    }

    /// Number of packets in the record, including those cut off by the capture.
    pub fn count(&self) -> u32 {
        // At most 65,535 bytes, of at least 16 each.
        self.len.div_ceil(self.segment_len) as u32
    }

    /// Number of packets of which at least one byte was captured.
    pub fn captured(&self) -> u32 {
        self.captured_len.div_ceil(self.segment_len) as u32
    }

    /// Rebuilds packet `index` (below [`PacketRun::captured`]) in `buffer`: the record's link header, IP and UDP headers as
    /// segmentation creates them (lengths, identification, checksums), and the packet.
    pub fn packet<'b>(
        &self,
        record: &'b Record<'_>,
        index: u32,
        buffer: &'b mut Vec<u8>,
    ) -> Record<'b> {
        let at = index as usize * self.segment_len;
        let len = self.segment_len.min(self.len.saturating_sub(at));
        let payload = self.link_len + self.ip_len + 8;
        let packets = record.data.get(payload..).unwrap_or_default();
        let packets = &packets[..packets.len().min(self.captured_len)];
        let kept = packets.get(at..packets.len().min(at + len)).unwrap_or_default();
        buffer.clear();
        buffer.extend_from_slice(record.data.get(..self.link_len).unwrap_or_default());
        if let Some(carrier) = Carrier::new(&record.data[buffer.len()..], self.ip_len, self.len) {
            carrier.header(index, len, kept, buffer);
        }
        let original_len = (buffer.len() + len) as u32;
        buffer.extend_from_slice(kept);
        Record {
            number: record.number,
            offset: record.offset,
            // Keeps `data_offset` plus an offset in the packet a valid position in the file.
            data_offset: record.data_offset + at as u64,
            timestamp: record.timestamp,
            section: record.section,
            interface: record.interface,
            interface_name: record.interface_name,
            link: record.link,
            original_len,
            data: buffer,
            comment: record.comment.as_deref().filter(|_| index == 0).map(Into::into),
            direction: record.direction,
            dropped: if index == 0 { record.dropped } else { 0 },
            segment: Some(Segment { number: index + 1, count: self.count() }),
            oddities: record.oddities,
        }
    }
}

/// Whether a frame cannot be a single packet: its payload exceeds every path MTU, or it is a first or middle packet whose
/// payload is not a path MTU. The only indication if the capture cut the first packet of a run.
pub(crate) fn holds_several(frame: &Frame<'_>) -> bool {
    let Some(packet) = frame.packet.filter(|_| Carrier::of(frame).is_some()) else { return false };
    let inside = packet.bth.opcode.info().is_some_and(|info| {
        matches!(info.position, Position::First | Position::Middle) && info.payload
    });
    packet.payload_len > MAX_PAYLOAD || inside && !PATH_MTUS.contains(&packet.payload_len)
}
