//! A packet in words.

use ferroce_trace::dissect;
use ferroce_wire::frame::Frame;
use ferroce_wire::opcode::Operation;
use serde::Serialize;

use super::history::{Kept, Reason};

/// What a packet does for its queue pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Role {
    Request,
    /// READ responses and atomic results.
    Response,
    Acknowledgement,
    Other,
}

/// A packet of a queue pair.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct PacketView {
    /// Milliseconds since 1970.
    pub(crate) time: f64,
    /// Nanoseconds since the packet before it.
    pub(crate) after_ns: Option<u64>,
    /// The queue pair sent it.
    pub(crate) sent: bool,
    pub(crate) role: Role,
    /// Such as `RC SEND Only`.
    pub(crate) title: String,
    /// The title with the fields that matter.
    pub(crate) summary: String,
    /// What it means.
    pub(crate) explanation: String,
    pub(crate) psn: u32,
    /// Bytes of payload.
    pub(crate) payload: usize,
    pub(crate) reason: Option<Reason>,
}

impl PacketView {
    pub(super) fn new(kept: &Kept, sent: bool, before: Option<u64>) -> Self {
        let frame = Frame::ethernet(&kept.frame, kept.original);
        let packet = frame.packet.as_ref();
        let info = packet.and_then(|packet| packet.bth.opcode.info());
        let role = match info.map(|info| (info.operation, info.request)) {
            Some((Operation::Acknowledge, _)) => Role::Acknowledgement,
            Some((Operation::CongestionNotification, _)) | None => Role::Other,
            Some((_, true)) => Role::Request,
            Some((_, false)) => Role::Response,
        };
        Self {
            time: kept.time as f64 / 1e6,
            after_ns: before.map(|before| kept.time.saturating_sub(before)),
            sent,
            role,
            title: packet.map(dissect::title).unwrap_or_default(),
            summary: dissect::summary(&frame),
            explanation: dissect::explain(&frame),
            psn: packet.map_or(0, |packet| packet.bth.psn.0),
            payload: packet.map_or(0, |packet| packet.payload_len),
            reason: kept.reason,
        }
    }
}
