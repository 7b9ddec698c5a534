//! rsocket datagrams between queue pairs, read from a capture.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use ferroce_tests::capture;
use ferroce_wire::mad::Mad;

#[allow(dead_code, unused_imports, reason = "not all of it is needed to read")]
#[path = "../../../crates/rsocket/src/datagram/wire.rs"]
mod wire;

use wire::SourceHeader;

/// A datagram.
pub(crate) struct Direct {
    /// The sender's address in the packet.
    pub(crate) sender: IpAddr,
    /// The source address in the datagram's header.
    pub(crate) source: SocketAddr,
    pub(crate) bytes: usize,
}

/// Returns all datagrams of a file. Asserts that each has the header that we would write.
pub(crate) fn datagrams(path: &Path) -> Vec<Direct> {
    let mut found = Vec::new();
    for recorded in capture::read(path) {
        let (_, frame) = recorded.frame();
        let (sender, _) = frame.addresses().expect("addresses");
        let packet = frame.packet.expect("a packet");
        if packet.extensions.deth.is_none() || Mad::parse(packet.payload).is_ok() {
            continue;
        }
        let (source, header) = SourceHeader::read(packet.payload).expect("a header of rsockets");
        assert_eq!(source.write(), packet.payload[..header]);
        found.push(Direct { sender, source: source.0, bytes: packet.payload.len() - header });
    }
    found
}
