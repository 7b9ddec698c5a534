//! Packets shown while they are analysed.

use std::ops::ControlFlow;

use ferroce_wire::frame::{Frame, IcrcVerdict};

use super::anomaly::AnomalyKind;
use crate::file::Record;

/// A packet, and what the analysis found at it.
#[derive(Debug)]
pub struct PacketEvent<'a> {
    /// The record, or one of the packets of a record that held several.
    pub record: &'a Record<'a>,
    /// The parsed frame; `None` for records whose link layer cannot be read.
    pub frame: Option<&'a Frame<'a>>,
    /// The result of the ICRC check of a RoCE packet.
    pub icrc: Option<IcrcVerdict>,
    /// The anomalies found at this packet.
    pub anomalies: &'a [(AnomalyKind, String)],
}

/// Receives packets. `Break` ends the analysis.
pub type Observer<'o> = dyn FnMut(&PacketEvent<'_>) -> ControlFlow<()> + 'o;
