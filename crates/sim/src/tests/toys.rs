//! Toy hosts with predictable behaviour.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use ferroce_proto::time::Instant;
use ferroce_wire::address::{Gid, Ip4, Mac};
use ferroce_wire::ethernet::{EtherType, Ethernet};
use ferroce_wire::frame::{Frame, IcrcVerdict, Network};
use ferroce_wire::ip::{Ecn, IpProtocol, Ipv4, Ipv6, ROCE_PORT, Udp};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::transport::Bth;

use crate::{Destination, EventLog, Fabric, Host, HostId, LinkConfig, Settings};

pub(super) const ECT0: Ecn = Ecn(2);
pub(super) const NOT_ECT: Ecn = Ecn(0);

/// Bytes of a frame in addition to its payload, over IPv4.
pub(super) const HEADERS: usize = 14 + 20 + 8 + 12 + 4;

pub(super) fn v4(host: u32) -> IpAddr {
    Ipv4Addr::from(0x0a00_0000 | host).into()
}

pub(super) fn v6(host: u32) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, (host >> 16) as u16, host as u16).into()
}

pub(super) const fn at(nanoseconds: u64) -> Instant {
    Instant::from_nanos(nanoseconds)
}

/// Returns an RC SEND with this payload, whose length is a multiple of 4.
pub(super) fn roce(source: IpAddr, destination: IpAddr, ecn: Ecn, payload: &[u8]) -> Vec<u8> {
    let bth = Bth { opcode: Opcode::RC_SEND_ONLY, ..Bth::default() };
    let (extensions, payload_len) = (ExtensionHeaders::default(), payload.len());
    let packet = Packet { bth, extensions, payload, payload_len, pad: &[], icrc: None };
    let length = (8 + packet.wire_len()) as u16;
    let network = match (source, destination) {
        (IpAddr::V4(source), IpAddr::V4(destination)) => {
            let ip = Ipv4 {
                version: 4,
                header_words: 5,
                ecn,
                total_length: 20 + length,
                time_to_live: 64,
                protocol: IpProtocol::UDP,
                source: Ip4(source.octets()),
                destination: Ip4(destination.octets()),
                ..Ipv4::default()
            };
            Network::Ipv4(ip.with_checksum(), &[])
        }
        _ => Network::Ipv6(Ipv6 {
            version: 6,
            ecn,
            payload_length: length,
            next_header: IpProtocol::UDP,
            hop_limit: 64,
            source: Gid::from_ip(source),
            destination: Gid::from_ip(destination),
            ..Ipv6::default()
        }),
    };
    let ethertype = match network {
        Network::Ipv4(..) => EtherType::IPV4,
        _ => EtherType::IPV6,
    };
    let macs = (Mac([2, 0, 0, 0, 0, 2]), Mac([2, 0, 0, 0, 0, 1]));
    let frame = Frame {
        ethernet: Some(Ethernet { destination: macs.0, source: macs.1, ethertype }),
        network: Some(network),
        udp: Some(Udp { destination_port: ROCE_PORT, length, ..Udp::default() }),
        packet: Some(packet),
        ..Frame::default()
    };
    let mut bytes = vec![0; 128 + payload.len()];
    let len = frame.emit(&mut bytes).expect("a whole frame");
    bytes.truncate(len);
    bytes
}

/// Sends the given frames, and keeps the frames it receives.
#[derive(Debug, Default)]
pub(super) struct Station {
    pub(super) to_send: VecDeque<(Destination, Vec<u8>)>,
    pub(super) received: Vec<(Instant, Vec<u8>)>,
    pub(super) wake_at: Option<Instant>,
    pub(super) woken: Vec<Instant>,
}

impl Station {
    /// Sends frames from `source` to `to`, with their number in the first bytes of the payload.
    pub(super) fn sending(
        source: IpAddr,
        to: IpAddr,
        ecn: Ecn,
        count: u32,
        payload: usize,
    ) -> Self {
        let frame = |number: u32| {
            let mut bytes = vec![0; payload];
            bytes[..4].copy_from_slice(&number.to_be_bytes());
            (Destination::Header, roce(source, to, ecn, &bytes))
        };
        Self { to_send: (0..count).map(frame).collect(), ..Self::default() }
    }

    /// Returns the numbers of the frames received.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let number = |(_, frame): &(Instant, Vec<u8>)| {
            let packet = Frame::ethernet(frame, frame.len()).packet.expect("a packet");
            u32::from_be_bytes(*packet.payload.first_chunk().expect("a number"))
        };
        self.received.iter().map(number).collect()
    }
}

impl Host for Station {
    fn handle_frame(&mut self, now: Instant, frame: &[u8]) {
        self.received.push((now, frame.to_vec()));
    }

    fn handle_timeout(&mut self, now: Instant) {
        self.woken.push(now);
        self.wake_at = None;
    }

    fn poll_transmit(&mut self, _now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
        let (destination, bytes) = self.to_send.pop_front()?;
        frame.extend_from_slice(&bytes);
        Some(destination)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.wake_at
    }
}

/// Creates a receiver (host 0) and a sender (host 1) of `count` frames.
pub(super) fn pair(seed: u64, settings: Settings, ecn: Ecn, count: u32) -> Fabric<Station> {
    let mut fabric = Fabric::new(seed, settings);
    fabric.add_host(Station::default(), &[v4(0)]).expect("a new address");
    let sender = Station::sending(v4(1), v4(0), ecn, count, 100);
    fabric.add_host(sender, &[v4(1)]).expect("a new address");
    fabric
}

pub(super) const RECEIVER: HostId = HostId(0);
pub(super) const SENDER: HostId = HostId(1);

/// Returns settings with this uplink and no other faults.
pub(super) fn uplink(uplink: LinkConfig) -> Settings {
    Settings { uplink, ..Settings::default() }
}

/// Stop-and-wait: one message at a time, retransmitted until it is acknowledged.
#[derive(Debug)]
pub(super) struct StopAndWait {
    own: IpAddr,
    peer: IpAddr,
    /// Messages to send; the first is in flight.
    messages: VecDeque<u32>,
    sequence: u32,
    expected: u32,
    transmit: VecDeque<[u8; 12]>,
    retransmit_at: Option<Instant>,
    pub(super) received: Vec<u32>,
}

const MESSAGE: u32 = 1;
const ACK: u32 = 2;
const RETRANSMIT_TIMEOUT: Duration = Duration::from_micros(300);

impl StopAndWait {
    pub(super) fn new(own: IpAddr, peer: IpAddr, count: u32) -> Self {
        let mut host = Self {
            own,
            peer,
            messages: (0..count).map(|number| number.wrapping_mul(77)).collect(),
            sequence: 0,
            expected: 0,
            transmit: VecDeque::new(),
            retransmit_at: None,
            received: Vec::new(),
        };
        host.send_message();
        host
    }

    pub(super) fn is_done(&self) -> bool {
        self.messages.is_empty()
    }

    fn send(&mut self, words: [u32; 3]) {
        let mut payload = [0; 12];
        for (bytes, word) in payload.chunks_exact_mut(4).zip(words) {
            bytes.copy_from_slice(&word.to_be_bytes());
        }
        self.transmit.push_back(payload);
    }

    fn send_message(&mut self) {
        if let Some(&message) = self.messages.front() {
            self.send([MESSAGE, self.sequence, message]);
        }
    }
}

impl Host for StopAndWait {
    fn handle_frame(&mut self, _now: Instant, frame: &[u8]) {
        let frame = Frame::ethernet(frame, frame.len());
        let Some(packet) = frame.packet.filter(|_| frame.check_icrc() == IcrcVerdict::Ok) else {
            return;
        };
        let mut words = packet.payload.chunks_exact(4);
        let mut word =
            || words.next().map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()));
        match [word(), word(), word()] {
            [MESSAGE, sequence, message] => {
                if sequence == self.expected {
                    self.received.push(message);
                    self.expected += 1;
                }
                self.send([ACK, sequence, 0]);
            }
            [ACK, sequence, _] if sequence == self.sequence => {
                self.messages.pop_front();
                self.sequence += 1;
                self.retransmit_at = None;
                self.send_message();
            }
            _ => {}
        }
    }

    fn handle_timeout(&mut self, _now: Instant) {
        self.retransmit_at = None;
        self.send_message();
    }

    fn poll_transmit(&mut self, now: Instant, frame: &mut Vec<u8>) -> Option<Destination> {
        let payload = self.transmit.pop_front()?;
        if payload[3] == MESSAGE as u8 {
            self.retransmit_at = Some(now + RETRANSMIT_TIMEOUT);
        }
        frame.extend_from_slice(&roce(self.own, self.peer, ECT0, &payload));
        Some(Destination::Header)
    }

    fn poll_timeout(&mut self) -> Option<Instant> {
        self.retransmit_at
    }
}

/// Adds pairs of hosts that exchange `count` messages in both directions.
pub(super) fn exchange<T: EventLog>(
    fabric: &mut Fabric<StopAndWait, T>,
    pairs: u32,
    count: u32,
    address: fn(u32) -> IpAddr,
) {
    for host in 0..pairs * 2 {
        let (own, peer) = (address(host), address(host ^ 1));
        fabric.add_host(StopAndWait::new(own, peer, count), &[own]).expect("a new address");
    }
}
