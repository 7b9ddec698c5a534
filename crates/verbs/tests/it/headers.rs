//! Source ports and ECN bits of the packets of queue pairs, as a capture shows them.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::PathBuf;

use crate::support::*;
use ferroce::*;
use ferroce_trace::file::CaptureReader;

/// Maximum number of sockets that an address sends from.
const MAX_SENDERS: usize = 16;

/// The relevant fields of a packet.
#[derive(Clone, Copy, Debug)]
struct Packet {
    source_port: u16,
    ecn: u8,
    opcode: u8,
    destination: Qpn,
}

/// A device whose packets are captured.
struct Captured {
    context: Option<Context>,
    path: PathBuf,
}

impl Captured {
    fn new(name: &str, options: Options) -> Self {
        let file = format!("ferroce-headers-{}-{name}.pcapng", std::process::id());
        let path = std::env::temp_dir().join(file);
        let context = open_alone(&Options { capture: Some(path.clone()), ..options });
        Self { context: Some(context), path }
    }

    fn context(&self) -> &Context {
        self.context.as_ref().unwrap()
    }

    /// Closes the device, and returns the packets that it sent.
    fn packets(mut self) -> Vec<Packet> {
        assert_eq!(self.context().statistics().bad_icrc, 0);
        self.context = None;
        let mut reader = CaptureReader::new(File::open(&self.path).unwrap()).unwrap();
        let mut packets = Vec::new();
        while let Some(record) = reader.next_record().unwrap() {
            let frame = record.data;
            let ipv4 = frame[12..14] == [8, 0];
            let (udp, ecn) = if ipv4 { (34, frame[15] & 3) } else { (54, frame[15] >> 4 & 3) };
            let bth = &frame[udp + 8..];
            packets.push(Packet {
                source_port: u16::from_be_bytes([frame[udp], frame[udp + 1]]),
                ecn,
                opcode: bth[0],
                destination: Qpn(u32::from_be_bytes([0, bth[5], bth[6], bth[7]])),
            });
        }
        packets
    }
}

impl Drop for Captured {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

fn pair(context: &Context, service: ServiceType, ipv6: bool, flow_label: u32) -> Option<[Side; 2]> {
    let index = gid_index(context, ipv6)?;
    let sides = [side(context, service, 8192), side(context, service, 8192)];
    for (side, peer) in [(&sides[0], &sides[1]), (&sides[1], &sides[0])] {
        let mut attributes = attributes(context, index, peer.queue_pair.number(), 1024);
        attributes.path.as_mut().unwrap().flow_label = flow_label;
        bring_up(&side.queue_pair, &attributes);
    }
    Some(sides)
}

/// A WRITE of several packets.
fn write([one, other]: &[Side; 2]) {
    let write = Operation::Write { remote: other.region.remote(0), immediate: None };
    one.post(1, write, 0, 8192);
    one.expect(1);
}

/// The source ports of packets to each queue pair.
fn ports(packets: &[Packet]) -> BTreeMap<u32, BTreeSet<u16>> {
    let mut ports: BTreeMap<u32, BTreeSet<u16>> = BTreeMap::new();
    for packet in packets {
        ports.entry(packet.destination.0).or_default().insert(packet.source_port);
    }
    ports
}

#[test]
fn queue_pairs_spread_over_a_bounded_number_of_source_ports() {
    for ipv6 in [false, true] {
        let captured = Captured::new(if ipv6 { "v6" } else { "v4" }, options());
        let mut pairs = Vec::new();
        for _ in 0..40 {
            let Some(pair) = pair(captured.context(), ServiceType::ReliableConnection, ipv6, 0)
            else {
                return;
            };
            pairs.push(pair);
        }
        // Twice, so that all sockets are open in the second round.
        for _ in 0..2 {
            pairs.iter().for_each(write);
        }
        drop(pairs);
        let ports = ports(&captured.packets());
        assert_eq!(ports.len(), 80);
        for (number, ports) in &ports {
            assert_eq!(ports.len(), 1, "all packets to QP {number:#x} from one port: {ports:?}");
        }
        let all: BTreeSet<_> = ports.into_values().flatten().collect();
        assert!(all.iter().all(|&port| port >= 0xc000), "{all:?}");
        assert!((MAX_SENDERS / 2..=MAX_SENDERS).contains(&all.len()), "{all:?}");
    }
}

#[test]
fn the_flow_label_decides_the_source_port() {
    let captured = Captured::new("labels", options());
    let labels = [0x12345, 0x54321, 0x12345];
    let numbers = labels.map(|label| {
        let context = captured.context();
        let pair = pair(context, ServiceType::ReliableConnection, false, label).unwrap();
        write(&pair);
        pair[1].queue_pair.number()
    });
    let ports = ports(&captured.packets());
    let [first, second, third] = numbers.map(|number| &ports[&number.0]);
    assert_eq!(first, third);
    assert_ne!(first, second);
}

#[test]
fn only_packets_with_congestion_control_are_ecn_capable() {
    let dcqcn = Congestion::Dcqcn(DcqcnParameters::default());
    let unlimited = Some(Congestion::Unlimited);
    for (service, congestion, ecn) in [
        (ServiceType::ReliableConnection, None, 2),
        (ServiceType::ReliableConnection, Some(dcqcn), 2),
        (ServiceType::ReliableConnection, unlimited, 0),
        (ServiceType::UnreliableConnection, None, 0),
        (ServiceType::UnreliableConnection, Some(dcqcn), 0),
    ] {
        for ipv6 in [false, true] {
            let options = Options { congestion, ..options() };
            // A new file each time, because an existing one is continued.
            let name = format!("ecn-{service:?}-{ecn}-{ipv6}-{}", congestion.is_some());
            let captured = Captured::new(&name, options);
            let Some(pair) = pair(captured.context(), service, ipv6, 0) else { continue };
            write(&pair);
            drop(pair);
            let packets = captured.packets();
            assert!(packets.len() >= 8);
            for packet in packets {
                assert_eq!(packet.ecn, ecn, "{service:?}, {congestion:?}: {packet:?}");
            }
        }
    }
}

#[test]
fn datagrams_are_not_ecn_capable_and_have_the_port_of_their_address() {
    let captured = Captured::new("datagrams", options());
    let context = captured.context();
    let index = gid_index(context, false).unwrap();
    let [one, other] = [0, 1].map(|_| side(context, ServiceType::UnreliableDatagram, 8192));
    for side in [&one, &other] {
        bring_up(&side.queue_pair, &attributes(context, index, Qpn(0), 1024));
    }
    let path = attributes(context, index, Qpn(0), 1024).path.unwrap();
    let address = one.pd.address_handle(&AddressVector { traffic_class: 0xff, ..path }).unwrap();
    for id in 0..4 {
        other.post_receive(id, 0, 140);
        let to = other.queue_pair.number();
        let datagram = address.request(WorkId(id), to, QKey(0x1234), one.data(0, 100));
        one.queue_pair.post_datagram(datagram).unwrap();
        one.expect(id);
        other.expect(id);
    }
    let number = other.queue_pair.number();
    drop((one, other, address));
    let packets = captured.packets();
    let sent: Vec<_> = packets.iter().filter(|packet| packet.destination == number).collect();
    assert_eq!(sent.len(), 4);
    assert!(sent.iter().all(|packet| packet.ecn == 0 && packet.opcode == 0x64), "{sent:?}");
    assert_eq!(ports(&packets)[&number.0].len(), 1);
}
