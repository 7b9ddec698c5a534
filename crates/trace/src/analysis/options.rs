//! Options of an analysis.

/// Limits of an analysis, and what it keeps.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keep a row for each packet ([`super::FileReport::packet_list`]), from which the ladder is drawn.
    pub packet_list: bool,
    /// Keep packet rows, messages and anomalies of this conversation only.
    pub conversation: Option<u32>,
    /// Interval of the traffic graph in nanoseconds; by default chosen from the file's duration.
    pub graph_interval_ns: Option<u64>,
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
            graph_interval_ns: None,
            max_packet_rows: 10_000,
            max_messages: 100_000,
            max_anomalies: 100_000,
            max_cm: 10_000,
            max_problems: 1_000,
            max_conversations: 65_536,
        }
    }
}
