//! Link headers of every type.
//!
//! Seeds: frames
#![no_main]

use ferroce_trace::link::{LinkType, header, network};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    // All supported types, and an unsupported one.
    let other = LinkType(data.first().map_or(0, |&kind| u16::from(kind)));
    for link in [
        LinkType::NULL,
        LinkType::ETHERNET,
        LinkType::RAW,
        LinkType::LOOP,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::ERF,
        LinkType::IPV4,
        LinkType::IPV6,
        LinkType::INFINIBAND,
        other,
    ] {
        if let Ok(carried) = network(link, data) {
            assert!(carried.offset() + carried.data().len() <= data.len());
        }
        let _ = header(link, data);
    }
});
