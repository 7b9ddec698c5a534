//! Frames of every encapsulation: a completely parsed frame with a correct ICRC is emitted byte for byte.
//!
//! Seeds: frames
#![no_main]

use ferroce_wire::ethernet::EtherType;
use ferroce_wire::frame::{Frame, IcrcVerdict};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    // The first byte also selects the captured length.
    let Some(&kept) = bytes.first() else { return };
    let captured = &bytes[..bytes.len() - bytes.len().min(usize::from(kept / 4))];
    for frame in [
        Frame::ethernet(bytes, bytes.len()),
        Frame::ethernet(captured, bytes.len()),
        Frame::network(EtherType::IPV4, bytes, 0, bytes.len()),
        Frame::network(EtherType::IPV6, captured, 0, bytes.len()),
        Frame::network(EtherType::ROCE_V1, bytes, usize::from(kept), bytes.len()),
        Frame::infiniband(captured, 0, bytes.len()),
    ] {
        let verdict = frame.check_icrc();
        if verdict == IcrcVerdict::Ok && frame.problem.is_none() {
            let mut out = vec![0; frame.bytes.len()];
            let written = frame.emit(&mut out).expect("a whole frame can be written");
            assert!(frame.bytes.ends_with(&out[..written]));
        }
        let _ = frame.addresses();
    }
});
