//! From packets to conversations, messages and a diagnosis.
//!
//! One pass over a file, in bounded memory: what grows with the file (lists of messages, anomalies, packets) has a
//! limit beyond which it is only counted, what tracks the protocol (conversations, requests not yet acknowledged)
//! has a budget beyond which the oldest is given up.

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

/// Bytes of the file between two calls of `progress`.
const PROGRESS_STEP: u64 = 4 << 20;

/// What to keep, and how much.
#[derive(Clone, Debug)]
pub struct Options {
    /// Keep a row for each packet ([`FileReport::packet_list`]), which the ladder is drawn from.
    pub packet_list: bool,
    /// Keep packet rows, messages and anomalies of this conversation only.
    pub conversation: Option<u32>,
    /// Step of the traffic graph in nanoseconds; by default it fits the file's length.
    pub graph_interval_ns: Option<u64>,
    /// Longest list of packets.
    pub max_packet_rows: usize,
    /// Longest list of messages.
    pub max_messages: usize,
    /// Longest list of anomalies.
    pub max_anomalies: usize,
    /// Longest list of connection manager messages, and of set-up messages: some kilobytes each.
    pub max_cm: usize,
    /// Longest list of problems.
    pub max_problems: usize,
    /// Most conversations tracked at once; packets of further ones are counted only.
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

/// Analyses one capture file. Never fails: what is wrong with the file stands in the report's `problems`, beside
/// everything that was readable. `progress` hears the number of bytes read so far, now and then.
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
