//! `ferroce report` of captures that tests of other programs write.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use ferroce_test_support::built;
use serde_json::Value;

use crate::tool;

/// Messages and bytes of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Messages.
    pub messages: u64,
    /// Bytes of payload.
    pub bytes: u64,
}

/// Returns the data of the report of one capture. Panics if the command fails, which it does for damaged files.
pub fn of(capture: &Path) -> Value {
    let mut command = Command::new(built::folder().join("ferroce"));
    command.args(["report", "--json", "--packets", "1"]).arg(capture);
    let printed = tool::run(command.env_remove("FERROCE_CAPTURE"));
    serde_json::from_slice::<Value>(&printed).expect("JSON")["files"][0].take()
}

/// Returns the statements of a report that are more than information.
pub fn alarms(report: &Value) -> Vec<&Value> {
    let topics = report["topics"].as_array().into_iter().flatten();
    topics.filter(|topic| topic["severity"] != "info").collect()
}

/// Returns what all conversations of a report moved, by operation.
pub fn moved(report: &Value) -> BTreeMap<String, Moved> {
    let mut all = BTreeMap::<_, Moved>::new();
    for conversation in report["conversations"].as_array().into_iter().flatten() {
        for (name, stats) in conversation["operations"].as_object().into_iter().flatten() {
            let entry = all.entry(name.clone()).or_default();
            entry.messages += stats["messages"].as_u64().unwrap_or(0);
            entry.bytes += stats["bytes"].as_u64().unwrap_or(0);
        }
    }
    all
}
