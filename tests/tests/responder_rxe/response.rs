//! The compared parts of a response.

use std::fmt;

use ferroce_tests::exchange::Exchange;
use ferroce_wire::number::{Msn, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::{NakCode, Syndrome, SyndromeKind};
use ferroce_wire::transport::Bth;

/// One packet of a responder, without the ICRC.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Response {
    /// The whole BTH: opcode, PSN, destination, partition, pad, flags.
    pub(crate) bth: Bth,
    /// The whole syndrome byte, timer and credits included, and the MSN.
    pub(crate) acknowledge: Option<(Syndrome, Msn)>,
    /// The original value of an atomic.
    pub(crate) original: Option<Word>,
    pub(crate) payload: Vec<u8>,
}

/// Returns the responses of rdma_rxe, in order, except for the one bit in which all of ours differ: MigReq is 0 in all
/// packets of rdma_rxe, and must be 1 in all of ours.
pub(crate) fn expected(exchange: &Exchange) -> Vec<Response> {
    let responses = exchange.responses.iter().map(|sent| {
        let mut response = Response::of(&sent.packet());
        assert!(!response.bth.migrated, "rdma_rxe sets MigReq: {response}");
        response.bth.migrated = true;
        response
    });
    responses.collect()
}

impl Response {
    pub(crate) fn of(packet: &Packet<'_>) -> Self {
        Self {
            bth: packet.bth,
            acknowledge: packet.extensions.aeth.map(|aeth| (aeth.syndrome, aeth.msn)),
            original: packet.extensions.atomic_ack.map(|atomic| atomic.original),
            payload: packet.payload.to_vec(),
        }
    }

    /// Returns the NAK code, if it is a NAK.
    pub(crate) fn nak(&self) -> Option<NakCode> {
        match self.acknowledge?.0.kind() {
            SyndromeKind::Nak(code) => Some(code),
            _ => None,
        }
    }

    /// Whether it is an RNR NAK.
    pub(crate) fn is_rnr_nak(&self) -> bool {
        (self.acknowledge)
            .is_some_and(|(syndrome, _)| matches!(syndrome.kind(), SyndromeKind::RnrNak(_)))
    }

    pub(crate) fn msn(&self) -> Option<Msn> {
        self.acknowledge.map(|(_, msn)| msn)
    }

    /// Returns its class, for the statistics.
    pub(crate) fn class(&self) -> &'static str {
        match self.acknowledge.map(|(syndrome, _)| syndrome.kind()) {
            _ if self.original.is_some() => "atomic response",
            _ if self.bth.opcode != Opcode::RC_ACKNOWLEDGE => "READ response",
            Some(SyndromeKind::Ack(_)) => "ACK",
            Some(SyndromeKind::RnrNak(_)) => "RNR NAK",
            _ => "NAK",
        }
    }
}

impl fmt::Display for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} PSN {:#08x}", self.bth.opcode.name(), self.bth.psn.0)?;
        if let Some((syndrome, msn)) = self.acknowledge {
            write!(f, ", {}, MSN {}", syndrome.kind(), msn.0)?;
        }
        if let Some(original) = self.original {
            write!(f, ", original {:#x}", original.0)?;
        }
        if let Some(first) = self.payload.first() {
            write!(f, ", {} bytes from {first:#04x} on", self.payload.len())?;
        }
        Ok(())
    }
}
