//! A simulated host with queue pairs of reliable connections: whole frames in and out, ICRCs computed and checked.

use std::net::Ipv4Addr;

use ferroce_proto::rc::{Config, QueuePair};
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_proto::transmit::EncodeError;
use ferroce_proto::work::Completion;
use ferroce_wire::address::{Ip4, Mac};
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::ip::{Ecn, IpProtocol, Ipv4, ROCE_PORT, Udp};
use ferroce_wire::packet::{ICRC_LEN, Packet};

use super::memory::{DOMAIN, Regions};
use crate::{Destination, Host};

/// Queue pairs are numbered from here on: 0 and 1 are taken for management, 2 for the set-up exchange.
pub(super) const FIRST_QPN: u32 = 16;

/// One end of a connection.
#[derive(Debug)]
pub(super) struct End {
    pub(super) qp: QueuePair,
    pub(super) receives: ReceiveQueue,
    pub(super) peer: Ipv4Addr,
    pub(super) sent: Vec<Completion>,
    pub(super) received: Vec<Completion>,
}

/// A host with its memory.
#[derive(Debug)]
pub(super) struct RdmaHost {
    pub(super) address: Ipv4Addr,
    pub(super) memory: Regions,
    pub(super) ends: Vec<End>,
    /// Frames that were dropped because of their ICRC.
    pub(super) damaged: u64,
    /// The end to ask for a packet next: each in turn.
    turn: usize,
    buffer: Vec<u8>,
}

impl RdmaHost {
    pub(super) fn new(address: Ipv4Addr) -> Self {
        Self {
            address,
            memory: Regions::default(),
            ends: Vec::new(),
            damaged: 0,
            turn: 0,
            buffer: vec![0; 8192],
        }
    }

    /// Adds an end; its queue pair's number is [`FIRST_QPN`] plus its index.
    pub(super) fn connect(&mut self, config: Config, peer: Ipv4Addr) {
        self.ends.push(End {
            qp: QueuePair::new(config),
            receives: ReceiveQueue::new(1024),
            peer,
            sent: Vec::new(),
            received: Vec::new(),
        });
    }

    fn collect(end: &mut End) {
        while let Some(completion) = end.qp.poll_send_completion() {
            end.sent.push(completion);
        }
        while let Some(completion) = end.qp.poll_receive_completion() {
            end.received.push(completion);
        }
    }
}

impl Host for RdmaHost {
    fn handle_frame(&mut self, now: Instant, bytes: &[u8]) {
        let frame = Frame::ethernet(bytes, bytes.len());
        // What a fault has changed is not always the packet: a frame for somebody else is not ours to judge.
        let Some(packet) = frame.packet.filter(|_| frame.problem.is_none()) else {
            self.damaged += 1;
            return;
        };
        if frame.check_icrc() != IcrcVerdict::Ok {
            self.damaged += 1;
            return;
        }
        let index = packet.bth.destination.0.wrapping_sub(FIRST_QPN) as usize;
        if let Some(end) = self.ends.get_mut(index) {
            end.qp.handle_packet(now, &packet, &mut end.receives, &mut self.memory);
            Self::collect(end);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        for end in &mut self.ends {
            if end.qp.poll_timeout().is_some_and(|time| time <= now) {
                end.qp.handle_timeout(now);
                Self::collect(end);
            }
        }
    }

    fn poll_transmit(&mut self, now: Instant, out: &mut Vec<u8>) -> Option<Destination> {
        let count = self.ends.len();
        for _ in 0..count {
            let index = self.turn % count;
            let end = &mut self.ends[index];
            let Some(transmit) = end.qp.poll_transmit(now) else {
                self.turn = index + 1;
                continue;
            };
            let (bth, extensions) = (transmit.bth, transmit.extensions);
            let encoded = transmit.encode(DOMAIN, &self.memory, &mut self.buffer);
            let length = match encoded {
                Ok(length) => length,
                Err(error) => {
                    end.qp.handle_denied(bth.psn, matches!(error, EncodeError::Local(_)));
                    Self::collect(end);
                    continue;
                }
            };
            // Headers are written by the frame: what `encode` wrote of them is passed over.
            let headers = 12 + extensions.set().len();
            let pad = usize::from(bth.pad);
            let packet = Packet {
                bth,
                extensions,
                payload: &self.buffer[headers..length - pad],
                payload_len: length - pad - headers,
                pad: &[0; 3][..pad],
                icrc: None,
            };
            let port = 0xc000 | (index as u16 & 0x3fff);
            emit(&packet, self.address, end.peer, port, out);
            return Some(Destination::Header);
        }
        None
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.ends.iter().filter_map(|end| end.qp.poll_timeout()).min()
    }
}

/// A packet as a whole frame.
fn emit(packet: &Packet<'_>, from: Ipv4Addr, to: Ipv4Addr, port: u16, out: &mut Vec<u8>) {
    let mac = |address: Ipv4Addr| {
        let [a, b, c, d] = address.octets();
        Mac([2, 0, a, b, c, d])
    };
    let udp_len = Udp::LEN + packet.wire_len();
    let ip = Ipv4 {
        version: 4,
        header_words: 5,
        // ECN-capable: queues of the fabric mark instead of dropping while they can.
        ecn: Ecn(2),
        total_length: (Ipv4::LEN + udp_len) as u16,
        dont_fragment: true,
        time_to_live: 64,
        protocol: IpProtocol::UDP,
        source: Ip4(from.octets()),
        destination: Ip4(to.octets()),
        ..Ipv4::default()
    };
    let frame = Frame {
        ethernet: Some(Ethernet {
            destination: mac(to),
            source: mac(from),
            ethertype: EtherType::IPV4,
        }),
        network: Some(Network::Ipv4(ip.with_checksum(), &[])),
        udp: Some(Udp {
            source_port: port,
            destination_port: ROCE_PORT,
            length: udp_len as u16,
            ..Udp::default()
        }),
        packet: Some(*packet),
        ..Frame::default()
    };
    out.resize(Ethernet::LEN + Ipv4::LEN + udp_len + ICRC_LEN, 0);
    let length = frame.emit(out).unwrap_or(0);
    out.truncate(length);
}
