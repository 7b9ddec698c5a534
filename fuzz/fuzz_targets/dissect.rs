//! Dissection of arbitrary frames: every field is within the frame.
//!
//! Seeds: frames
#![no_main]

use ferroce_trace::dissect::dissect;
use ferroce_trace::link::LinkType;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    for (link, original_len) in [
        (LinkType::ETHERNET, data.len()),
        (LinkType::ETHERNET, data.len() + 100),
        (LinkType::LINUX_SLL2, data.len()),
        (LinkType::ERF, data.len()),
    ] {
        let tree = dissect(link, data, original_len);
        assert!(!tree.summary.is_empty());
        for layer in &tree.layers {
            assert!(layer.offset + layer.length <= data.len(), "{}", layer.name);
        }
    }
});
