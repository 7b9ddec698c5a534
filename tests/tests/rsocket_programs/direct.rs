//! Datagrams of rsockets between queue pairs, as a capture has them.

use std::net::{IpAddr, SocketAddr};
use std::path::Path;

use ferroce_tests::capture;
use ferroce_wire::mad::Mad;

#[allow(dead_code, unused_imports, reason = "not all of it is needed to read")]
#[path = "../../../crates/capi/src/rsocket/datagram/wire/mod.rs"]
mod wire;

use wire::Source;

/// One of them.
pub(crate) struct Direct {
    /// Whence, by the packet.
    pub(crate) sender: IpAddr,
    /// Whose, by what it says itself.
    pub(crate) source: SocketAddr,
    pub(crate) bytes: usize,
}

/// All of a file, each with the header that rsockets have, which we would write in the same way.
pub(crate) fn datagrams(path: &Path) -> Vec<Direct> {
    let mut found = Vec::new();
    for recorded in capture::read(path) {
        let (_, frame) = recorded.frame();
        let (sender, _) = frame.addresses().expect("addresses");
        let packet = frame.packet.expect("a packet");
        if packet.extensions.deth.is_none() || Mad::parse(packet.payload).is_ok() {
            continue;
        }
        let (source, header) = Source::read(packet.payload).expect("a header of rsockets");
        assert_eq!(source.write(), packet.payload[..header]);
        found.push(Direct { sender, source: source.0, bytes: packet.payload.len() - header });
    }
    found
}
