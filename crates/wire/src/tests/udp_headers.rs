use core::net::SocketAddr;

use super::bytes;
use super::frames::{ACKNOWLEDGE, READ_RESPONSE};
use crate::frame::{Frame, Network};
use crate::icrc::hidden::Identification;
use crate::udp_headers::Headers;

/// The addresses of a frame, its IP header, and the packet from the BTH to the ICRC.
fn split(frame: &[u8]) -> (Headers, &[u8], &[u8]) {
    let parsed = Frame::ethernet(frame, frame.len());
    let ((source, destination), udp) = (parsed.addresses().unwrap(), parsed.udp.unwrap());
    let headers = Headers {
        source: SocketAddr::new(source, udp.source_port),
        destination: SocketAddr::new(destination, udp.destination_port),
    };
    let at = parsed.at;
    (headers, &frame[at.network..at.udp], &frame[at.transport..])
}

/// The IP header and the ICRC are those of rdma_rxe.
#[test]
fn headers_and_icrc_are_those_of_the_kernel() {
    for text in [ACKNOWLEDGE, READ_RESPONSE] {
        let frame = bytes(text);
        let (headers, ip, packet) = split(&frame);
        let identification = match Frame::ethernet(&frame, frame.len()).network {
            Some(Network::Ipv4(ip, _)) => {
                Identification { id: ip.identification.0, dont_fragment: ip.dont_fragment }
            }
            _ => Identification::of_segment(0),
        };
        // The index is a guess that the identification replaces.
        assert_eq!(headers.check(packet, 0), Some(identification));
        let route = headers.global_route(packet, identification, 0, 64);
        let (zero, built) = route.split_at(route.len() - ip.len());
        assert_eq!(built, ip);
        assert!(zero.iter().all(|byte| *byte == 0));
        for at in 12..packet.len() {
            let mut damaged = packet.to_vec();
            damaged[at] ^= 0x80;
            assert_eq!(headers.check(&damaged, 0), None, "byte {at} of {text}");
        }
    }
}

/// In a segmented batch the IPv4 identification is the index of the packet.
#[test]
fn the_icrc_covers_the_index_of_a_packet_in_its_batch() {
    for (text, differs) in [(ACKNOWLEDGE, true), (READ_RESPONSE, false)] {
        let frame = bytes(text);
        let (headers, _, packet) = split(&frame);
        let (covered, _) = packet.split_last_chunk::<4>().unwrap();
        assert_eq!(headers.icrc(covered, 0) != headers.icrc(covered, 5), differs);
        let sent = [covered, &headers.icrc(covered, 5)].concat();
        assert_eq!(headers.check(&sent, 5), Some(Identification::of_segment(5)));
    }
}

#[test]
fn a_packet_without_a_bth_has_no_icrc() {
    let (frame, short) = (bytes(ACKNOWLEDGE), [0; 11]);
    let (headers, ..) = split(&frame);
    assert_eq!(headers.icrc(&short, 0), [0; 4]);
    assert_eq!(headers.check(&short, 0), None);
    assert_eq!(headers.check(&[], 0), None);
}
