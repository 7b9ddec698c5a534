//! Garbage and forged packets are counted and ignored, and do not disturb connections.

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};

use crate::support::{Side, connect, open_alone, over_sockets, pattern, side};
use ferroce::*;
use ferroce_wire::icrc::hidden::{Identification, UdpIpv4};
use ferroce_wire::number::PKey;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Bth, Reth};

/// A WRITE of four bytes to the start of a region, as a UDP payload with a valid ICRC.
fn forged(
    from: &UdpSocket,
    to: SocketAddr,
    queue_pair: Qpn,
    psn: Psn,
    remote: RemoteAddress,
) -> Vec<u8> {
    request(from, to, (Opcode::RC_RDMA_WRITE_ONLY, b"evil"), queue_pair, psn, remote)
}

/// A request for four bytes at the start of a region, with this payload.
fn request(
    from: &UdpSocket,
    to: SocketAddr,
    (opcode, payload): (Opcode, &[u8]),
    queue_pair: Qpn,
    psn: Psn,
    remote: RemoteAddress,
) -> Vec<u8> {
    let bth =
        Bth { opcode, partition: PKey(0xffff), destination: queue_pair, psn, ..Bth::default() };
    let reth = Reth { address: remote.address, key: remote.key, length: 4 };
    with_icrc(from, to, [&bth.to_bytes()[..], &reth.to_bytes(), payload].concat())
}

/// Appends the ICRC to a packet that this socket sends.
fn with_icrc(from: &UdpSocket, to: SocketAddr, mut packet: Vec<u8>) -> Vec<u8> {
    let octets = |address: SocketAddr| match address {
        SocketAddr::V4(address) => address.ip().octets(),
        SocketAddr::V6(_) => panic!("IPv4 only"),
    };
    let source = from.local_addr().unwrap();
    let flow = UdpIpv4 {
        source: octets(source),
        destination: octets(to),
        source_port: source.port(),
        destination_port: to.port(),
    };
    let first = packet.first_chunk().unwrap();
    let length = (8 + packet.len() + 4) as u16;
    let mut icrc = flow.icrc(Identification::of_segment(0), length, first);
    icrc.update(&packet[12..]);
    packet.extend(icrc.finish());
    packet
}

struct Scene {
    context: Context,
    one: Side,
    other: Side,
    to: SocketAddr,
}

fn scene() -> Scene {
    scene_with(&over_sockets())
}

fn scene_with(options: &Options) -> Scene {
    let context = open_alone(options);
    let one = side(&context, ServiceType::ReliableConnection, 1 << 16);
    let other = side(&context, ServiceType::ReliableConnection, 1 << 16);
    connect(&one, &other, 0, 1024);
    let port = 20_000 + (std::process::id() % 10_000) as u16;
    Scene { context, one, other, to: SocketAddr::from((Ipv4Addr::LOCALHOST, port)) }
}

impl Scene {
    /// Transfers data over the connection. Packets that were sent before have been processed then: the loopback keeps the
    /// order.
    fn still_works(&self, seed: u64) {
        let bytes = pattern(seed, 5000);
        self.one.region.write(0, &bytes).unwrap();
        let remote = self.other.region.remote(100);
        self.one.post(seed, Operation::Write { remote, immediate: None }, 0, 5000);
        self.one.expect(seed);
        assert_eq!(self.other.bytes(100, 5000), bytes);
    }
}

#[test]
fn garbage_is_counted_and_ignored() {
    let scene = scene();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    for length in [0, 1, 4, 11, 12, 15, 16, 17, 28, 60, 1000, 4200, 9000] {
        let mut bytes = pattern(length as u64 + 1, length);
        socket.send_to(&bytes, scene.to).unwrap();
        // The same with the QPN of an existing QP.
        if let Some(number) = bytes.get_mut(5..8) {
            number.copy_from_slice(&scene.other.queue_pair.number().0.to_be_bytes()[1..]);
            socket.send_to(&bytes, scene.to).unwrap();
        }
    }
    scene.still_works(1);
    let seen = scene.context.statistics();
    assert!(seen.malformed + seen.bad_icrc >= 10, "{seen:?}");
    assert_eq!(scene.other.queue_pair.state(), State::ReadyToSend);
}

#[test]
fn a_damaged_packet_is_not_executed() {
    let scene = scene();
    // From the peer's address, so that only the ICRC protects the memory.
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let remote = scene.other.region.remote(0);
    let good = forged(&socket, scene.to, scene.other.queue_pair.number(), Psn(0xff_fff0), remote);
    for bit in (12 * 8..good.len() * 8).step_by(7) {
        let mut bad = good.clone();
        bad[bit / 8] ^= 1 << (bit % 8);
        socket.send_to(&bad, scene.to).unwrap();
    }
    scene.still_works(2);
    assert_eq!(scene.other.bytes(0, 4), [0; 4]);
    assert!(scene.context.statistics().bad_icrc > 0);
}

/// A CNP needs only the QPN. Packets in shared memory meet no switch, so there is nothing to notify of.
#[test]
fn a_cnp_slows_only_a_queue_pair_that_sends_through_sockets() {
    for (local, handled) in [(Local::Sockets, 1), (Local::Memory, 0)] {
        let scene = scene_with(&Options { local, ..Options::default() });
        scene.still_works(1);
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        let bth = Bth {
            opcode: Opcode::CNP,
            partition: PKey(0xffff),
            destination: scene.one.queue_pair.number(),
            psn: Psn(0x12_3456),
            ..Bth::default()
        };
        let received = || scene.context.statistics().packets_in;
        let before = received();
        let cnp = with_icrc(&socket, scene.to, [&bth.to_bytes()[..], &[0; 16]].concat());
        socket.send_to(&cnp, scene.to).unwrap();
        while received() == before {
            std::thread::yield_now();
        }
        scene.still_works(2);
        assert_eq!(scene.context.statistics().rp_cnp_handled, handled, "{local:?}");
    }
}

#[test]
fn a_packet_from_another_host_is_ignored_despite_valid_keys() {
    let scene = scene();
    let before = scene.context.statistics().no_queue_pair;
    // To the device, this address is another host. It knows QPN, rkey, address and PSN.
    let socket = UdpSocket::bind("127.0.0.2:0").unwrap();
    let remote = scene.other.region.remote(0);
    let number = scene.other.queue_pair.number();
    socket.send_to(&forged(&socket, scene.to, number, Psn(0xff_fff0), remote), scene.to).unwrap();
    // A QPN that does not exist.
    let missing = Qpn(number.0 ^ 0x8000);
    socket.send_to(&forged(&socket, scene.to, missing, Psn(0), remote), scene.to).unwrap();
    scene.still_works(3);
    assert_eq!(scene.other.bytes(0, 4), [0; 4]);
    assert_eq!(scene.context.statistics().no_queue_pair, before + 2);
}

/// A forged READ with an old PSN, from the peer's address and with the right rkey.
#[test]
fn a_read_that_was_not_executed_is_counted_and_ignored() {
    let scene = scene();
    let before = scene.context.statistics();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let (number, remote) = (scene.other.queue_pair.number(), scene.other.region.remote(0));
    let read = (Opcode::RC_RDMA_READ_REQUEST, &[][..]);
    for psn in [0xff_ffef, 0xff_0000, 0x90_0000] {
        let bytes = request(&socket, scene.to, read, number, Psn(psn), remote);
        socket.send_to(&bytes, scene.to).unwrap();
    }
    scene.still_works(4);
    let seen = scene.context.statistics();
    assert_eq!(seen.out_of_window_request, before.out_of_window_request + 3);
    assert_eq!(scene.other.queue_pair.state(), State::ReadyToSend);
}
