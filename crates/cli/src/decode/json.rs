//! Decoded frames as one JSON object, written frame by frame to bound memory use.

use std::io::{self, Write};

use ferroce_trace::dissect::Tree;
use serde::Serialize;

use super::frame::DecodedFrame;

#[derive(Serialize)]
struct Frame<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    number: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segment: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    segments: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    file_offset: Option<u64>,
    #[serde(skip_serializing_if = "is_zero")]
    dropped: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    timestamp: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    interface: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    comment: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    oddities: Vec<String>,
    link: String,
    #[serde(skip_serializing_if = "str::is_empty")]
    explanation: &'a str,
    #[serde(flatten)]
    tree: &'a Tree<'a>,
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Opens the object. `input` is the file name, or another source of the frames.
pub(super) fn begin(out: &mut dyn Write, input: &str) -> io::Result<()> {
    write!(out, "{{\"input\": {}, \"frames\": [", serde_json::to_string(input)?)
}

/// Writes one frame.
pub(super) fn frame(out: &mut dyn Write, shown: &DecodedFrame<'_>, first: bool) -> io::Result<()> {
    let record = shown.record;
    let segment = record.and_then(|record| record.segment);
    let frame = Frame {
        number: record.map(|record| record.number),
        segment: segment.map(|segment| segment.number),
        segments: segment.map(|segment| segment.count),
        dropped: record.map_or(0, |record| record.dropped),
        file_offset: record.map(|record| record.data_offset),
        timestamp: record.and_then(|record| record.timestamp).map(|time| time.to_string()),
        interface: record.and_then(|record| record.interface_name),
        comment: record.and_then(|record| record.comment.as_deref()),
        oddities: record.map_or(Vec::new(), |record| {
            record.oddities.iter().map(|oddity| oddity.to_string()).collect()
        }),
        link: shown.link.to_string(),
        explanation: &shown.explanation,
        tree: shown.tree,
    };
    out.write_all(if first { b"\n" } else { b",\n" })?;
    serde_json::to_writer_pretty(out, &frame)?;
    Ok(())
}

/// Closes the object.
pub(super) fn end(out: &mut dyn Write) -> io::Result<()> {
    out.write_all(b"\n]}\n")
}
