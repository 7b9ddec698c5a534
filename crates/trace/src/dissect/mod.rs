//! Dissection: one frame as an annotated tree, and as a one-line summary.
//!
//! Names, positions and meanings of fields come from the tables by which the `wire` crate parses; no layout is repeated
//! here. This module adds what depends on several fields: checksum verdicts, payload types, and where a frame becomes
//! malformed. It shows everything that was readable, and reports what was not, with its offset.
//!
//! ```
//! use ferroce_trace::dissect::dissect;
//! use ferroce_trace::link::LinkType;
//!
//! let tree = dissect(LinkType::ETHERNET, &[0; 20], 20);
//! assert_eq!(tree.layers[0].name, "Ethernet");
//! assert_eq!(tree.layers[0].field("source").unwrap().value, "00:00:00:00:00:00");
//! ```

mod build;
mod carrier;
mod checksum;
mod exchange;
mod explain;
mod management;
mod summary;
mod transport;
mod tree;

#[cfg(test)]
mod tests;

use ferroce_wire::ethernet::EtherType;
use ferroce_wire::frame::Frame;

pub(crate) use exchange::{is_setup, setup_message};
pub use explain::explain;
pub(crate) use management::{cm_message, is_management};
pub use summary::{is_congestion_marked, summary, title};
pub use tree::{Field, Layer, Problem, Tree, Verdict};

use crate::link::{self, Carried, LinkError, LinkType};
use build::Builder;
use carrier::bytes as count;

/// Reads the frame of a record: strips the header added by the capture and parses the rest. Returns the frame with its
/// offset in the record; `None` for an InfiniBand link packet, which has nothing to parse.
pub fn read(
    link: LinkType,
    bytes: &[u8],
    original_len: usize,
) -> Result<Option<(usize, Frame<'_>)>, LinkError> {
    let carried = link::network(link, bytes)?;
    let start = carried.offset();
    let len = original_len.saturating_sub(start);
    let frame = match carried {
        Carried::Ethernet { data, .. } => Frame::ethernet(data, len),
        Carried::Network { ethertype, data, .. } => {
            Frame::network(EtherType(ethertype), data, 0, len)
        }
        Carried::Infiniband { data, .. } => Frame::infiniband(data, 0, len),
        Carried::InfinibandLink { .. } => return Ok(None),
    };
    Ok(Some((start, frame)))
}

/// Dissects a record of a capture: `bytes` of a packet that had `original_len` on the wire.
pub fn dissect(link: LinkType, bytes: &[u8], original_len: usize) -> Tree<'_> {
    let mut builder = Builder::new(bytes);
    let mut tree = Tree {
        summary: String::new(),
        source: None,
        destination: None,
        captured_len: bytes.len(),
        original_len,
        layers: Vec::new(),
        problems: Vec::new(),
    };
    let read = read(link, bytes, original_len);
    // The link header may be readable even if its content is not supported.
    if let Ok(Some(header)) = link::header(link, bytes) {
        let end = header.fields.iter().map(|field| field.range.end).max().unwrap_or(0);
        builder.link_header(header, end);
    }
    match read {
        Ok(Some((start, frame))) => {
            tree.summary = summary(&frame);
            (tree.source, tree.destination) = frame.addresses().unzip();
            frame_layers(&mut builder, start, &frame, original_len);
        }
        Ok(None) => {
            tree.summary = "InfiniBand link packet (flow control)".to_owned();
            let left = builder.rest().len();
            builder.data("Link packet", left, count(left));
        }
        Err(problem) => {
            tree.summary = format!("not readable: {problem}");
            builder.problem(problem_offset(&problem), problem);
        }
    }
    let left = builder.rest().len();
    builder.data("Data", left, count(left));
    Tree { layers: builder.layers, problems: builder.problems, ..tree }
}

fn frame_layers(builder: &mut Builder<'_>, start: usize, frame: &Frame<'_>, original_len: usize) {
    carrier::layers(builder, frame);
    transport::layers(builder, frame);
    if let Some(malformed) = &frame.problem {
        builder.problem(start + malformed.offset, malformed.problem);
        // The unreadable part, without the trailer.
        let end = start + frame.bytes.len() - frame.trailer.len();
        let left = end.saturating_sub(builder.at);
        builder.data("Unread", left, count(left));
    } else if let Some(packet) = frame.packet.filter(|packet| !packet.is_whole()) {
        let kept = builder.bytes.len();
        builder.problem(
            start + frame.at.transport,
            format!(
                "the capture kept {kept} of {original_len} bytes, {} of {} bytes of payload, \
                 so the ICRC cannot be checked: record with a larger snap length",
                packet.payload.len(),
                packet.payload_len
            ),
        );
    }
    let (what, len) = trailer(frame);
    builder.data("Trailer", len, what);
}

/// Describes the bytes after the packet, by their length and the link.
fn trailer(frame: &Frame<'_>) -> (String, usize) {
    let len = frame.trailer.len();
    let zero = frame.trailer.iter().all(|&byte| byte == 0);
    let what = match (len, frame.ethernet.is_some()) {
        (_, true) if zero => "padding to the minimum Ethernet frame length",
        (4, true) => "Ethernet frame check sequence",
        (2, false) => "InfiniBand variant CRC",
        _ => "after the packet",
    };
    (format!("{}: {what}", count(len)), len)
}

fn problem_offset(problem: &LinkError) -> usize {
    match *problem {
        LinkError::Truncated { offset, .. } | LinkError::InvalidLength { offset, .. } => offset,
        _ => 0,
    }
}
