//! Messages of the set-up exchange: parsed messages are emitted byte for byte.
//!
//! Seeds: none
#![no_main]

use ferroce_wire::field::{Meaning, Value};
use ferroce_wire::setup::{MAX_LEN, SetupMessage};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Ok(message) = SetupMessage::parse(data) else { return };
    assert_eq!(message.emit(&mut [0; MAX_LEN]), data);
    message.visit(&mut |_, value| drop((Value(value).to_string(), Meaning(value).to_string())));
});
