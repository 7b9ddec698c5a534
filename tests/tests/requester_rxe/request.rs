//! The compared parts of a request packet.

use std::fmt;

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::Operation;
use ferroce_wire::packet::{ICRC_LEN, Packet};

/// The byte and the bit of AckReq in the BTH.
const ACK_REQUEST: (usize, u8) = (8, 0x80);

/// The byte and the bit of MigReq in the BTH: 0 in all packets of rdma_rxe, 1 in all of ours.
const MIGRATED: (usize, u8) = (1, 0x40);

/// A request without the ICRC: headers, payload and pad.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct Request(Vec<u8>);

impl Request {
    /// Creates it from a packet from BTH to pad.
    pub(crate) fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Creates it from a packet of rdma_rxe with its ICRC, with MigReq as in ours.
    pub(crate) fn captured(bytes: &[u8]) -> Self {
        let mut request = Self::new(&bytes[..bytes.len() - ICRC_LEN]);
        let (at, bit) = MIGRATED;
        assert_eq!(request.0[at] & bit, 0, "rdma_rxe sets MigReq: {request}");
        request.0[at] |= bit;
        request
    }

    /// Whether AckReq is set.
    pub(crate) fn requests_ack(&self) -> bool {
        self.0[ACK_REQUEST.0] & ACK_REQUEST.1 != 0
    }

    /// Whether they are equal except for AckReq.
    pub(crate) fn same(&self, other: &Self) -> bool {
        let (at, bit) = ACK_REQUEST;
        let (ours, theirs) = (self.0.split_at(at + 1), other.0.split_at(at + 1));
        ours.1 == theirs.1
            && ours.0[..at] == theirs.0[..at]
            && (ours.0[at] ^ theirs.0[at]) & !bit == 0
    }

    pub(crate) fn psn(&self) -> Psn {
        Psn::new(u32::from_be_bytes([0, self.0[9], self.0[10], self.0[11]]))
    }

    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.0
    }

    /// Calls `look` with the parsed packet.
    fn parsed<T>(&self, look: impl FnOnce(Option<&Packet<'_>>) -> T) -> T {
        let mut bytes = self.0.clone();
        bytes.extend([0; ICRC_LEN]); // Not the queue pair's: any bytes stand for it.
        look(Packet::parse(&bytes).ok().as_ref())
    }

    /// Returns its class, for the statistics.
    pub(crate) fn class(&self) -> &'static str {
        let info = self.parsed(|packet| packet.and_then(|packet| packet.bth.opcode.info()));
        match info.map(|info| info.operation) {
            Some(Operation::Send) => "SEND",
            Some(Operation::Write) => "WRITE",
            Some(Operation::ReadRequest) => "READ",
            Some(Operation::CompareSwap | Operation::FetchAdd) => "atomic",
            _ => "other",
        }
    }
}

impl fmt::Display for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.parsed(|packet| {
            let Some(packet) = packet else { return write!(f, "unreadable {:02x?}", self.0) };
            write!(f, "{} PSN {:#08x}", packet.bth.opcode.name(), packet.bth.psn.0)?;
            if let Some(reth) = packet.extensions.reth {
                write!(f, ", {} bytes at {:#x}", reth.length, reth.address.0)?;
            }
            write!(f, ", headers {:02x?}", &self.0[..self.0.len().min(40)])
        })
    }
}
