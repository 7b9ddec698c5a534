//! Packets that neither end sends: those of a switch that marks, and of a peer that violates the protocol.

use std::io::IoSlice;
use std::net::{Ipv4Addr, SocketAddr};

use ferroce::{Psn, Qpn, RemoteAddress};
use ferroce_sys::{Batch, Options, ROCE_PORT, SOURCE_PORTS, Socket};
use ferroce_wire::icrc::hidden::{Identification, UdpIpv4};
use ferroce_wire::number::{Msn, PKey};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::Syndrome;
use ferroce_wire::transport::{Aeth, AtomicAckEth, Bth, Reth};

use super::Outcome;
use super::setup::FIRST_PSN;

/// The ECN bits of the type of service: "congestion experienced" (RFC 3168).
const CONGESTION_EXPERIENCED: u8 = 3;

fn bth(opcode: Opcode, destination: Qpn, psn: Psn) -> Bth {
    // The ACK request bit is set.
    Bth { opcode, partition: PKey(0xffff), destination, psn, ack_request: true, ..Bth::default() }
}

/// The second WRITE of a connection, 4 bytes long, with a congestion mark.
pub(super) fn marked_write(to: Qpn, remote: RemoteAddress) -> Outcome<()> {
    let reth = Reth { address: remote.address, key: remote.key, length: 4 };
    let bth = bth(Opcode::RC_RDMA_WRITE_ONLY, to, Psn(FIRST_PSN.0 + 1));
    send([&bth.to_bytes()[..], &reth.to_bytes(), &[0; 4]].concat(), CONGESTION_EXPERIENCED)
}

/// The response of an atomic operation, for the first request of a connection.
pub(super) fn atomic_response(to: Qpn) -> Outcome<()> {
    let aeth = Aeth { syndrome: Syndrome::ACK, msn: Msn(1) };
    let original = AtomicAckEth::default();
    let bth = bth(Opcode::RC_ATOMIC_ACKNOWLEDGE, to, FIRST_PSN);
    send([&bth.to_bytes()[..], &aeth.to_bytes(), &original.to_bytes()].concat(), 0)
}

/// Sends a packet to the loopback with a correct ICRC.
fn send(mut packet: Vec<u8>, tos: u8) -> Outcome<()> {
    let text = |error: ferroce_sys::Error| error.to_string();
    let loopback = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    let options = Options::default();
    let socket = Socket::source(loopback(*SOURCE_PORTS.start()), &options).map_err(text)?;
    let flow = UdpIpv4 {
        source: Ipv4Addr::LOCALHOST.octets(),
        destination: Ipv4Addr::LOCALHOST.octets(),
        source_port: socket.port(),
        destination_port: ROCE_PORT,
    };
    let first = packet.first_chunk().ok_or("a packet has a BTH")?;
    let length = (8 + packet.len() + 4) as u16;
    let mut icrc = flow.icrc(Identification::of_segment(0), length, first);
    icrc.update(packet.get(12..).unwrap_or_default());
    packet.extend(icrc.finish());
    let batch = Batch {
        destination: loopback(ROCE_PORT),
        tos,
        hop_limit: None,
        segment: packet.len(),
        pieces: &[IoSlice::new(&packet)],
    };
    socket.send(&batch).map(|_| ()).map_err(text)
}
