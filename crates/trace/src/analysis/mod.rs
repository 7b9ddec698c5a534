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
mod options;
pub mod report;
mod requester;
mod sink;
mod stamp;
#[cfg(test)]
mod tests;
mod text;
mod unreliable;
mod window;

use std::io::Read;

use engine::Engine;
pub use options::Options;
pub use report::{FileReport, Report, SCHEMA};

use crate::file::{CaptureReader, Format};

/// Bytes of the file between two calls to `progress`.
const PROGRESS_STEP: u64 = 4 << 20;

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
