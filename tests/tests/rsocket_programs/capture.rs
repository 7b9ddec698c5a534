//! The messages of rdma-core's rstream over `rdma_rxe`, parsed by our code: private data, and every message.

use std::collections::HashMap;
use std::net::IpAddr;
use std::path::Path;

use ferroce_tests::capture;
use ferroce_wire::cm::CmMessage as Connection;
use ferroce_wire::mad::Mad;
use ferroce_wire::rdmacm;

#[allow(dead_code, reason = "not all of it is needed to read")]
#[path = "../../../crates/rsocket/src/stream/wire.rs"]
mod wire;

use wire::{ByteOrder, CONNECT_BYTES, ConnectData, StreamMessage, TARGET_BYTES, Target};

/// The memory of a host, as far as its messages reveal it.
struct Host {
    said: ConnectData,
    /// The buffer that its peer writes to next, and the next announced one.
    target: Target,
    next: Option<Target>,
    messages: Vec<StreamMessage>,
}

impl Host {
    fn new(bytes: &[u8]) -> Self {
        let said = ConnectData::read(bytes).expect("private data of an rsocket");
        assert_eq!(said.write(), bytes[..CONNECT_BYTES], "we would say the same");
        Self { said, target: said.buffer, next: None, messages: Vec::new() }
    }
}

#[test]
fn rdma_cores_messages_are_parsed() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("data/rxe/rstream.pcap");
    let mut hosts: HashMap<IpAddr, Host> = HashMap::new();
    for recorded in capture::read(&path) {
        let (_, frame) = recorded.frame();
        let (from, to) = frame.addresses().expect("addresses");
        let packet = frame.packet.expect("a packet");
        if let Ok(mad) = Mad::parse(packet.payload) {
            match Connection::from_mad(&mad) {
                Ok(Connection::Req(req)) => {
                    let data = &req.private_data.0;
                    let split = rdmacm::split_private_data(req.service_id, data);
                    hosts.insert(from, Host::new(split.expect("RDMA-CM's header").1));
                }
                Ok(Connection::Rep(rep)) => {
                    hosts.insert(from, Host::new(&rep.private_data.0));
                }
                _ => {}
            }
            continue;
        }
        let Some(immediate) = packet.extensions.immediate else { continue };
        let reth = packet.extensions.reth.expect("a write");
        let message = StreamMessage::from_immediate(immediate.value.0);
        assert_eq!(message.immediate(), immediate.value.0);
        let written = (reth.address.0, reth.key.0, reth.length);
        let list = hosts[&to].said.targets;
        match message {
            StreamMessage::Data(bytes) => {
                // The buffer that its receiver announced, from the first byte to the last.
                let host = hosts.get_mut(&to).expect("a host that has said where");
                if host.target.length == 0 {
                    host.target = host.next.take().expect("another target");
                }
                let target = &mut host.target;
                assert_eq!(written, (target.address, target.key, bytes));
                assert!(bytes <= target.length);
                target.address += u64::from(bytes);
                target.length -= bytes;
            }
            StreamMessage::Credits(_) if reth.length > 0 => {
                let entry = written.0 - list.address;
                assert_eq!((entry % TARGET_BYTES as u64, written.1), (0, list.key));
                assert!(entry < u64::from(list.length) * TARGET_BYTES as u64);
                let bytes = packet.payload.try_into().expect("the bytes of a target");
                let host = hosts.get_mut(&from).expect("a host that has said where");
                let target = Target::read(bytes, ByteOrder::Little);
                assert_eq!(target.key, host.said.buffer.key);
                assert_eq!(host.next.replace(target), None);
            }
            _ => assert_eq!(reth.length, 0, "{message:?}"),
        }
        hosts.get_mut(&from).expect("a host").messages.push(message);
    }
    assert_eq!(hosts.len(), 2);
    for host in hosts.values() {
        // The defaults of rsocket(7), except for the buffer: rstream requests 512 KiB, twice.
        assert_eq!(
            (host.said.credits, host.said.maps, host.said.order),
            (384, Some(0), ByteOrder::Little)
        );
        assert_eq!((host.said.targets.length, host.said.buffer.length), (2, 1 << 19));
        let bytes = host.messages.iter().map(|one| match one {
            StreamMessage::Data(bytes) => *bytes,
            _ => 0,
        });
        // Six times 2000 bytes, and a few at the start and the end.
        assert!(bytes.sum::<u32>() >= 12_000, "{:?}", host.messages);
        assert!(matches!(host.messages[0], StreamMessage::Credits(384)), "{:?}", host.messages);
    }
    let ends = |host: &Host| host.messages.last() == Some(&StreamMessage::Disconnect);
    assert!(hosts.values().any(ends));
}
