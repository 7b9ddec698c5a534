//! Captured frames: their ICRC must be valid.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr};

use ferroce_wire::address::{Gid, Ip4};
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::icrc::Icrc;
use ferroce_wire::ip::{Ecn, Identification, IpProtocol, Ipv4, Ipv6, Udp};
use ferroce_wire::number::{PKey, Psn, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::Bth;

use super::namespace::{self, FAR, Tap};
use super::{at, pattern, plain, skipped};
use crate::{Batch, Options, ROCE_PORT, Socket};

const PAYLOAD: usize = 1024;
const SEGMENT: usize = 12 + PAYLOAD + 4;

#[test]
fn the_port_is_that_of_rocev2() {
    assert_eq!(ROCE_PORT, ferroce_wire::ip::ROCE_PORT);
}

/// A packet as a sender builds it, with the ICRC over the headers that the kernel will write.
fn packet(socket: &Socket, destination: SocketAddr, index: u16) -> Vec<u8> {
    let bth = Bth {
        opcode: Opcode::RC_SEND_ONLY,
        partition: PKey(0xffff),
        destination: Qpn(0x02_0003),
        psn: Psn::new(u32::from(index)),
        ..Bth::default()
    };
    let (bth, payload) = (bth.to_bytes(), pattern(PAYLOAD));
    let udp_length = (8 + SEGMENT) as u16;
    let udp = Udp {
        source_port: socket.port(),
        destination_port: ROCE_PORT,
        length: udp_length,
        ..Udp::default()
    };
    let mut icrc = match (socket.local().ip(), destination.ip()) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4 {
                version: 4,
                header_words: 5,
                total_length: 20 + udp_length,
                identification: Identification(index),
                dont_fragment: true,
                protocol: IpProtocol::UDP,
                source: Ip4(source.octets()),
                destination: Ip4(destination.octets()),
                ..Ipv4::default()
            };
            Icrc::ipv4(&ip.to_bytes(), &udp.to_bytes(), &bth)
        }
        (source, destination) => {
            let ip = Ipv6 {
                version: 6,
                payload_length: udp_length,
                next_header: IpProtocol::UDP,
                source: Gid::from_ip(source),
                destination: Gid::from_ip(destination),
                ..Ipv6::default()
            };
            Icrc::ipv6(&ip.to_bytes(), &udp.to_bytes(), &bth)
        }
    };
    icrc.update(&payload);
    [&bth[..], &payload, &icrc.finish()].concat()
}

/// Sends packets over the veth pair and returns the captured frames.
fn send_over_cable(
    socket: &Socket,
    destination: SocketAddr,
    packets: &[Vec<u8>],
) -> Option<Vec<Vec<u8>>> {
    let tap = match Tap::open(FAR) {
        Ok(tap) => tap,
        Err(error) => {
            skipped("frames on the wire", &format!("no capture: {error}"));
            return None;
        }
    };
    let pieces: Vec<IoSlice<'_>> = packets.iter().map(|packet| IoSlice::new(packet)).collect();
    let batch = Batch { tos: 0x02, hop_limit: Some(9), ..plain(destination, SEGMENT, &pieces) };
    assert_eq!(socket.send(&batch).unwrap(), packets.len());
    let roce = |frame: &[u8]| Frame::ethernet(frame, frame.len()).is_roce();
    Some(packets.iter().map(|_| tap.next(roce)).collect())
}

fn check_frames(frames: &[Vec<u8>], port: u16, identification: impl Fn(usize) -> u16) {
    for (index, bytes) in frames.iter().enumerate() {
        let frame = Frame::ethernet(bytes, bytes.len());
        assert_eq!(frame.check_icrc(), IcrcVerdict::Ok, "packet {index}: {frame:?}");
        assert_eq!(frame.packet.unwrap().bth.psn, Psn::new(index as u32));
        assert_eq!(frame.udp.unwrap().source_port, port);
        match frame.network.unwrap() {
            Network::Ipv4(ip, options) => {
                assert_eq!(ip.identification, Identification(identification(index)));
                assert!(ip.dont_fragment && options.is_empty());
                assert_eq!((ip.ecn, ip.time_to_live), (Ecn(2), 9));
            }
            Network::Ipv6(ip) => assert_eq!((ip.ecn, ip.hop_limit), (Ecn(2), 9)),
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn the_identification_of_a_segment_is_its_index() {
    namespace::run("the_identification_of_a_segment_is_its_index", || {
        let socket = Socket::source(at("10.9.0.1:49200"), &Options::default()).unwrap();
        assert!(socket.gso());
        let destination = at("10.9.0.2:4791");
        // Twice: the second batch starts at 0 again.
        for _ in 0..2 {
            let packets: Vec<_> = (0..60).map(|i| packet(&socket, destination, i)).collect();
            let Some(frames) = send_over_cable(&socket, destination, &packets) else { return };
            check_frames(&frames, 49200, |index| index as u16);
        }
    });
}

#[test]
fn the_identification_is_0_without_segmentation() {
    namespace::run("the_identification_is_0_without_segmentation", || {
        let options = Options { gso: false, ..Options::default() };
        let socket = Socket::source(at("10.9.0.1:49200"), &options).unwrap();
        let destination = at("10.9.0.2:4791");
        let mut packets: Vec<_> = (0..20).map(|_| packet(&socket, destination, 0)).collect();
        let Some(frames) = send_over_cable(&socket, destination, &packets) else { return };
        for frame in &frames {
            check_frames(std::slice::from_ref(frame), 49200, |_| 0);
        }
        // The same holds for a batch of one packet with segmentation on.
        let socket = Socket::source(at("10.9.0.1:49300"), &Options::default()).unwrap();
        packets = vec![packet(&socket, destination, 0)];
        let Some(frames) = send_over_cable(&socket, destination, &packets) else { return };
        check_frames(&frames, 49300, |_| 0);
    });
}

#[test]
fn frames_over_ipv6_have_valid_icrcs() {
    namespace::run("frames_over_ipv6_have_valid_icrcs", || {
        for (gso, port) in [(true, 50000), (false, 50010)] {
            let options = Options { gso, ..Options::default() };
            let local = at(&format!("[fd09::1]:{port}"));
            let socket = Socket::source(local, &options).unwrap();
            let destination = at("[fd09::2]:4791");
            let packets: Vec<_> = (0..60).map(|i| packet(&socket, destination, i)).collect();
            let Some(frames) = send_over_cable(&socket, destination, &packets) else { return };
            check_frames(&frames, port, |_| 0);
        }
    });
}
