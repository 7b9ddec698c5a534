//! Transport packets: parsed packets are emitted byte for byte, and truncated packets are distinguished from short ones.
//!
//! Seeds: packets
#![no_main]

use ferroce_wire::malformed::Problem;
use ferroce_wire::packet::{ICRC_LEN, Packet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    if let Ok(packet) = Packet::parse(data) {
        assert_eq!(packet.wire_len(), data.len());
        let mut out = vec![0; data.len()];
        let written = packet.emit(&mut out).expect("a whole packet can be written");
        assert_eq!(out[..written], data[..data.len() - ICRC_LEN]);
    }
    for wire_len in [data.len() + 1, data.len() + 4096] {
        let (packet, problem) = Packet::parse_captured(data, wire_len);
        assert!(packet.is_some() || problem.is_some());
        assert!(packet.is_none_or(|packet| packet.payload.len() <= packet.payload_len));
        if let Some(Problem::Short { available, needed, .. }) = problem.map(|one| one.problem) {
            assert!(available < needed);
        }
    }
});
