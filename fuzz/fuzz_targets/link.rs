//! Link headers of every kind.
//!
//! Seeds: frames
#![no_main]

use ferroce_trace::link::{LinkType, header, network};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&kind, bytes)) = data.split_first() else { return };
    let links = [
        LinkType::NULL,
        LinkType::ETHERNET,
        LinkType::RAW,
        LinkType::LOOP,
        LinkType::LINUX_SLL,
        LinkType::LINUX_SLL2,
        LinkType::ERF,
        LinkType::IPV4,
        LinkType::INFINIBAND,
    ];
    let link = links.get(usize::from(kind)).copied().unwrap_or(LinkType(u16::from(kind)));
    if let Ok(carried) = network(link, bytes) {
        assert!(carried.offset() + carried.data().len() <= bytes.len());
    }
    let _ = header(link, bytes);
});
