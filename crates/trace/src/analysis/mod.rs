//! Analysis of a capture: conversations, messages, anomalies and a diagnosis.
//!
//! One pass over the file in bounded memory. Lists (messages, anomalies, packets) have a limit beyond which entries are
//! only counted; protocol state (conversations, unacknowledged requests) has a budget beyond which the oldest entry is
//! evicted.

pub mod anomaly;
mod assembly;
mod cm;
mod engine;
mod findings;
mod flow;
mod graph;
mod hierarchy;
mod identification;
mod latency;
pub mod report;
mod requester;
mod sink;
#[cfg(test)]
mod tests;
mod text;
mod unreliable;
mod window;

use std::io::Read;

use engine::Engine;
pub use report::{FileReport, Report, SCHEMA};

use crate::file::{CaptureReader, Format};

/// Bytes of the file between two calls to `progress`.
const PROGRESS_STEP: u64 = 4 << 20;

/// Limits of an analysis, and what it keeps.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keep a row for each packet ([`FileReport::packet_list`]), from which the ladder is drawn.
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

/// Analyses one capture file. Never fails: damage is reported in the report's `problems`, next to everything that was
/// readable. Calls `progress` with the number of bytes read so far, every 4 MiB and at the end.
pub fn analyze(
    path: &str,
    input: impl Read,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> FileReport {
    let mut engine = Engine::new(path, options);
    let mut reader = match CaptureReader::new(input) {
        Ok(reader) => reader,
        Err(error) => {
            engine.damaged(error.offset, error.problem.to_string());
            return engine.finish("", 0, 0);
        }
    };
    let mut reported = 0;
    loop {
        match reader.next_record() {
            Ok(Some(record)) => {
                engine.record(&record);
                if record.offset >= reported + PROGRESS_STEP {
                    reported = record.offset;
                    progress(reported);
                }
            }
            Ok(None) => break,
            Err(error) => {
                engine.damaged(error.offset, error.problem.to_string());
                break;
            }
        }
    }
    let format = match reader.format() {
        Format::Pcap => "pcap",
        Format::Pcapng => "pcapng",
    };
    progress(reader.offset());
    engine.finish(format, reader.offset(), reader.dropped())
}
