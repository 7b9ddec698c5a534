//! The rows of a report grouped by conversation, once for all ladders.

use std::collections::HashMap;

use super::side::Sides;
use crate::analysis::report::{Anomaly, CmEvent, FileReport, PacketRow};

/// The rows of one conversation.
#[derive(Debug, Default)]
pub(super) struct Rows<'a> {
    pub(super) anomalies: Vec<&'a Anomaly>,
    pub(super) cm: Vec<&'a CmEvent>,
    pub(super) packets: Vec<&'a PacketRow>,
}

/// The ladders of one file.
#[derive(Debug)]
pub struct Ladders<'a> {
    by_conversation: HashMap<u32, Rows<'a>>,
    pub(super) sides: Sides,
}

impl<'a> Ladders<'a> {
    /// Groups the report's rows by conversation.
    pub fn new(file: &'a FileReport) -> Self {
        let mut rows: HashMap<u32, Rows<'a>> = HashMap::new();
        for anomaly in &file.anomalies {
            if let Some(id) = anomaly.conversation {
                rows.entry(id).or_default().anomalies.push(anomaly);
            }
        }
        for event in &file.cm {
            if let Some(id) = event.conversation {
                rows.entry(id).or_default().cm.push(event);
            }
        }
        for packet in &file.packet_list {
            if let Some(id) = packet.conversation {
                rows.entry(id).or_default().packets.push(packet);
            }
        }
        Self { by_conversation: rows, sides: Sides::new(file) }
    }

    pub(super) fn rows(&self, conversation: u32) -> Option<&Rows<'a>> {
        self.by_conversation.get(&conversation)
    }
}
