//! The opcode table is total: any byte has a name, and what is said of it holds together.
//!
//! Seeds: packets
#![no_main]

use ferroce_wire::opcode::Opcode;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for &byte in data {
        let opcode = Opcode(byte);
        assert!(!opcode.name().is_empty());
        if let Some(info) = opcode.info() {
            assert_eq!(info.name, opcode.name());
        }
    }
});
