//! Analysis of arbitrary files, with limits small enough to be reached.
//!
//! Seeds: files
#![no_main]

use ferroce_trace::analysis::{Options, analyze};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let options = Options {
        packet_list: true,
        max_packet_rows: 20,
        max_messages: 10,
        max_anomalies: 10,
        max_cm: 4,
        max_problems: 10,
        max_conversations: 4,
        ..Options::default()
    };
    let report = analyze("fuzz", data, &options, &mut |_| ());
    assert!(report.messages.len() <= 10 && report.anomalies.len() <= 10);
    assert!(report.packet_list.len() <= 20 && report.conversations.len() <= 4);
    // Work is bounded per packet; the constant is the accumulated credit for matching responses with streams.
    assert!(report.steps <= 48 * report.packets + (1 << 18), "{} steps", report.steps);
    assert_eq!(report.roce_packets, report.icrc.ok + report.icrc.bad + report.icrc.unverifiable);
});
