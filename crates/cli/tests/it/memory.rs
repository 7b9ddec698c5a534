//! Memory stays bounded whatever a file holds: the real command reads endless hostile captures under a limit that the
//! kernel enforces.

use std::io::{BufWriter, Write};
use std::process::{Command, Stdio};

use ferroce_trace::file::{Packet as Captured, PcapWriter, Timestamp};
use ferroce_trace::link::LinkType;
use ferroce_wire::address::Ip4;
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, Network};
use ferroce_wire::ip::{IpProtocol, Ipv4, Udp};
use ferroce_wire::number::{Psn, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::transport::Bth;

/// Limit of the address space of the command, in KiB, which must suffice for captures of any size.
const LIMIT_KIB: u64 = 768 * 1024;

/// One packet of a hostile capture.
struct HostilePacket {
    opcode: Opcode,
    qpn: u32,
    psn: u32,
}

/// Feeds `count` packets to `ferroce analyze --json -` under the limit and returns its report.
fn analyzed(count: u32, packet: impl Fn(u32) -> HostilePacket) -> serde_json::Value {
    let mut child = Command::new("sh")
        .arg("-c")
        .arg(format!("ulimit -v {LIMIT_KIB} && exec \"$0\" analyze --json -"))
        .arg(env!("CARGO_BIN_EXE_ferroce"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let input = BufWriter::with_capacity(1 << 20, child.stdin.take().unwrap());
    let mut writer = PcapWriter::new(input, LinkType::ETHERNET).unwrap();
    let mut out = [0; 256];
    for number in 0..count {
        let len = frame(&packet(number), &mut out);
        let time = Timestamp::from_nanoseconds(i64::from(number) * 1_000);
        writer.write(&Captured::new(time, &out[..len])).unwrap();
    }
    writer.finish().unwrap().flush().unwrap();
    let output = child.wait_with_output().unwrap();
    assert!(!output.stdout.is_empty(), "the command died: {:?}", output.status);
    serde_json::from_slice(&output.stdout).unwrap()
}

fn frame(hostile: &HostilePacket, out: &mut [u8]) -> usize {
    let bth = Bth {
        opcode: hostile.opcode,
        destination: Qpn(hostile.qpn),
        psn: Psn::new(hostile.psn),
        ..Bth::default()
    };
    let packet = Packet {
        bth,
        extensions: ExtensionHeaders::default(),
        payload: &[1; 8],
        payload_len: 8,
        pad: &[],
        icrc: None,
    };
    let udp_len = Udp::LEN + packet.wire_len();
    let ip = Ipv4 {
        version: 4,
        header_words: 5,
        total_length: (Ipv4::LEN + udp_len) as u16,
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source: Ip4([10, 0, 0, 1]),
        destination: Ip4([10, 0, 0, 2]),
        ..Ipv4::default()
    };
    let frame = Frame {
        ethernet: Some(Ethernet { ethertype: EtherType::IPV4, ..Ethernet::default() }),
        network: Some(Network::Ipv4(ip, &[])),
        udp: Some(Udp { destination_port: 4791, length: udp_len as u16, ..Udp::default() }),
        packet: Some(packet),
        ..Frame::default()
    };
    frame.emit(out).expect("the buffer is long enough")
}

#[test]
fn memory_is_bounded_with_a_queue_pair_per_packet() {
    let count = 400_000;
    let report = analyzed(count, |number| HostilePacket {
        opcode: Opcode::RC_SEND_ONLY,
        qpn: number & 0xff_ffff,
        psn: number,
    });
    let file = &report["files"][0];
    assert_eq!(file["packets"], count);
    assert_eq!(file["conversations"].as_array().unwrap().len(), 65_536);
    assert!(file["problems"][0]["text"].as_str().unwrap().contains("conversations"));
}

#[test]
fn memory_is_bounded_without_acknowledgements() {
    // Alternates between many queue pairs, so that all windows fill at the same time.
    let count = 1_500_000;
    let report = analyzed(count, |number| HostilePacket {
        opcode: Opcode::RC_SEND_MIDDLE,
        qpn: number % 64,
        psn: number / 64,
    });
    assert_eq!(report["files"][0]["packets"], count);
    assert_eq!(report["files"][0]["roce_packets"], count);
}

#[test]
fn memory_is_bounded_with_endless_gaps_and_duplicates() {
    let count = 600_000;
    let report = analyzed(count, |number| HostilePacket {
        opcode: Opcode::RC_SEND_ONLY,
        qpn: 7,
        // The PSN jumps back and forth, so that nearly every packet is an anomaly.
        psn: number.wrapping_mul(2_654_435_761) >> 17,
    });
    let file = &report["files"][0];
    assert_eq!(file["packets"], count);
    assert_eq!(file["anomalies"].as_array().unwrap().len(), 100_000);
}
