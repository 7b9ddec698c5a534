//! Analysis of a capture: conversations, messages, anomalies and a diagnosis.
//!
//! One pass over the file in bounded memory. Lists (messages, anomalies, packets) have a limit beyond which entries are
//! only counted; protocol state (conversations, unacknowledged requests) has a budget beyond which the oldest entry is
//! evicted.

pub mod anomaly;
mod assembly;
mod cm;
mod datagrams;
pub mod detail;
mod engine;
mod findings;
mod flow;
mod gaps;
mod graph;
mod hierarchy;
mod identification;
mod latency;
pub mod losses;
mod observer;
mod options;
mod pairs;
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
pub use observer::{Observer, PacketEvent};
pub use options::Options;
pub use pairs::ConnectedPairs;
pub use report::{FileReport, Report, SCHEMA};

use crate::file::{CaptureReader, FileError, Format, Problem};

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
    run(Engine::new(path, options, None), input, progress, &|| false)
}

/// Like [`analyze`], and calls `observer` with each packet that the filter selects, as soon as it was read. The analysis
/// ends after the packet for which the observer returns `Break`. `may_be_incomplete` is asked when the input ends within a
/// record: that is no problem of a file that is still being written when its reader was interrupted.
pub fn observe<'o>(
    path: &str,
    input: impl Read,
    options: &'o Options,
    observer: &'o mut Observer<'o>,
    may_be_incomplete: &dyn Fn() -> bool,
) -> FileReport {
    run(Engine::new(path, options, Some(observer)), input, &mut |_| (), may_be_incomplete)
}

/// Reads a whole file for the pairs of connected queue pairs, for [`Options::pairs`] of a second pass with the same limits.
pub fn connected_pairs(
    input: impl Read,
    options: &Options,
    progress: &mut dyn FnMut(u64),
) -> ConnectedPairs {
    let max_conversations = options.max_conversations;
    // Lists are not needed.
    let options = Options {
        max_conversations,
        max_messages: 0,
        max_anomalies: 0,
        max_cm: 0,
        max_problems: 0,
        ..Options::default()
    };
    let mut engine = Engine::new("", &options, None);
    if let Ok(mut reader) = CaptureReader::new(input) {
        // Damage ends the second pass as well, and is reported there.
        let _ = records(&mut engine, &mut reader, progress);
    }
    engine.connected_pairs()
}

fn run(
    mut engine: Engine<'_>,
    input: impl Read,
    progress: &mut dyn FnMut(u64),
    may_be_incomplete: &dyn Fn() -> bool,
) -> FileReport {
    let is_cut = |problem: &Problem| {
        matches!(problem, Problem::Empty | Problem::Truncated { .. }) && may_be_incomplete()
    };
    let mut reader = match CaptureReader::new(input) {
        Ok(reader) => reader,
        Err(error) => {
            if !is_cut(&error.problem) {
                engine.damaged(error.offset, error.problem.to_string());
            }
            return engine.finish("", 0, 0);
        }
    };
    match records(&mut engine, &mut reader, progress) {
        Err(error) if !is_cut(&error.problem) => {
            engine.damaged(error.offset, error.problem.to_string());
        }
        _ => {}
    }
    let format = match reader.format() {
        Format::Pcap => "pcap",
        Format::Pcapng => "pcapng",
    };
    progress(reader.offset());
    engine.finish(format, reader.offset(), reader.dropped())
}

/// Feeds all records to the engine, or those until it stops.
fn records(
    engine: &mut Engine<'_>,
    reader: &mut CaptureReader<impl Read>,
    progress: &mut dyn FnMut(u64),
) -> Result<(), FileError> {
    let mut reported = 0;
    while let Some(record) = reader.next_record()? {
        engine.record(&record);
        if engine.stopped {
            break;
        }
        if record.offset >= reported + PROGRESS_STEP {
            reported = record.offset;
            progress(reported);
        }
    }
    Ok(())
}
