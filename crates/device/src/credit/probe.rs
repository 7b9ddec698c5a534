//! Probes and their acknowledgements: UD packets to and from a QPN that is reserved in each process's slot.

use ferroce_wire::number::{PKey, Qpn};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::setup::QUEUE_KEY;
use ferroce_wire::transport::{Bth, Deth};

use crate::receiver::Receiver;

/// The QPN within each slot that sends and receives probes. It is never allocated to a QP.
const QPN_IN_SLOT: u32 = 3;

const PROBE: [u8; 4] = *b"FeE?";
const ACK: [u8; 4] = *b"FeE!";

/// The length of a probe or its acknowledgement without ICRC: headers, type, number.
pub const LENGTH: usize = 12 + 8 + 8;

/// A packet and its route.
pub type ProbePacket<R> = (R, [u8; LENGTH]);

/// A packet to the reserved QPN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// Acknowledge it: everything before it was read from the socket.
    Probe {
        /// Its number, to be repeated in the acknowledgement.
        number: u32,
        /// The QPN that expects the acknowledgement.
        sender: Qpn,
    },
    /// A probe was acknowledged.
    Ack {
        /// The number of the probe.
        number: u32,
        /// The QPN that received the probe.
        sender: Qpn,
    },
}

impl Message {
    /// The message in a packet to the reserved QPN, unless it is malformed.
    pub fn parse(packet: &Packet<'_>) -> Option<Self> {
        let deth = packet.extensions.deth.filter(|deth| deth.queue_key == QUEUE_KEY)?;
        let (kind, number) = packet.payload.split_first_chunk::<4>()?;
        let (number, sender) = (u32::from_be_bytes(number.try_into().ok()?), deth.source);
        match *kind {
            PROBE => Some(Self::Probe { number, sender }),
            ACK => Some(Self::Ack { number, sender }),
            _ => None,
        }
    }
}

/// Whether a QPN is the reserved one.
#[inline]
pub fn is_for(number: Qpn) -> bool {
    number.0 & 0xffff == QPN_IN_SLOT
}

/// The reserved QPN of a slot.
pub(super) fn qpn(slot: u8) -> Qpn {
    Qpn(u32::from(slot) << 16 | QPN_IN_SLOT)
}

/// A probe from this process's slot to a receiver.
pub(super) fn probe(number: u32, receiver: Receiver, slot: u8) -> [u8; LENGTH] {
    packet(PROBE, number, qpn(receiver.slot), slot)
}

/// The acknowledgement of a probe that this process has received.
pub fn ack(number: u32, sender: Qpn, slot: u8) -> [u8; LENGTH] {
    packet(ACK, number, sender, slot)
}

fn packet(kind: [u8; 4], number: u32, destination: Qpn, slot: u8) -> [u8; LENGTH] {
    let bth = Bth {
        opcode: Opcode::UD_SEND_ONLY,
        partition: PKey(0xffff),
        destination,
        ..Bth::default()
    };
    let deth = Deth { queue_key: QUEUE_KEY, source: qpn(slot), ..Deth::default() };
    let mut bytes = [0; LENGTH];
    bytes[..12].copy_from_slice(&bth.to_bytes());
    bytes[12..20].copy_from_slice(&deth.to_bytes());
    bytes[20..24].copy_from_slice(&kind);
    bytes[24..].copy_from_slice(&number.to_be_bytes());
    bytes
}
