//! Options of an analysis.

use std::sync::Arc;

use super::detail::DetailOptions;
use super::pairs::ConnectedPairs;
use crate::filter::Filter;

/// Limits of an analysis, and what it keeps.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keep a row for each packet ([`super::FileReport::packet_list`]), from which the ladder is drawn.
    pub packet_list: bool,
    /// Keep packet rows, messages and anomalies of this conversation only.
    pub conversation: Option<u32>,
    /// The packets to report. All packets are tracked, but only the selected ones, their anomalies, and their conversations
    /// with their messages are in the report; of messages only those of the selected operations.
    pub filter: Filter,
    /// What [`super::connected_pairs`] found in the same file. A filter by queue pair then selects the packets that the queue
    /// pair sent before both directions of its conversation were matched.
    pub pairs: Arc<ConnectedPairs>,
    /// Interval of the traffic graph in nanoseconds; by default chosen from the file's duration.
    pub graph_interval_ns: Option<u64>,
    /// Collect the data of [`super::FileReport::detail`].
    pub detail: Option<DetailOptions>,
    /// Limit of the packet list.
    pub max_packet_rows: usize,
    /// Limit of the message list.
    pub max_messages: usize,
    /// Limit of the anomaly list.
    pub max_anomalies: usize,
    /// Limit of the list of CM messages and of the list of set-up messages, which take a few kilobytes each.
    pub max_cm: usize,
    /// Limit of the problem list.
    pub max_problems: usize,
    /// Limit of tracked conversations; packets of further ones are only counted.
    pub max_conversations: usize,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            packet_list: false,
            conversation: None,
            filter: Filter::default(),
            pairs: Arc::default(),
            graph_interval_ns: None,
            detail: None,
            max_packet_rows: 10_000,
            max_messages: 100_000,
            max_anomalies: 100_000,
            max_cm: 10_000,
            max_problems: 1_000,
            max_conversations: 65_536,
        }
    }
}
