//! The receive buffer of a host that receives in batches.

use std::collections::VecDeque;

use ferroce_proto::congestion::cost;
use ferroce_wire::ethernet::Ethernet;
use ferroce_wire::ip::{Ipv4, Udp};
use ferroce_wire::opcode::{Opcode, Operation, Transport};
use ferroce_wire::packet::ICRC_LEN;
use ferroce_wire::transport::Bth;

/// The frames that wait for the end of a batch, counted as flow control counts them.
#[derive(Debug, Default)]
pub(in crate::rdma) struct ReceiveBuffer {
    /// More bytes than this are dropped, as by a socket.
    pub(in crate::rdma) limit: Option<usize>,
    frames: VecDeque<Vec<u8>>,
    bytes: usize,
    /// The bytes for which senders need credit, and the most of them so far.
    credited: usize,
    pub(in crate::rdma) peak: usize,
}

impl ReceiveBuffer {
    pub(super) fn push(&mut self, frame: &[u8]) {
        const HEADERS: usize = Ethernet::LEN + Ipv4::LEN + Udp::LEN;
        let packet = frame.len().saturating_sub(HEADERS + Bth::LEN + ICRC_LEN);
        if self.limit.is_some_and(|limit| self.bytes + cost(packet, 1) > limit) {
            return;
        }
        self.bytes += cost(packet, 1);
        self.frames.push_back(frame.to_vec());
        let info = frame.get(HEADERS).and_then(|&opcode| Opcode(opcode).info());
        let Some(info) = info else { return };
        let acknowledged = matches!(
            info.transport,
            Transport::ReliableConnection | Transport::ExtendedReliableConnection
        );
        // ACKs, NAKs, atomic responses and READ requests need no credit, nor does a READ response without payload: it answers an
        // ATOMIC WRITE (IBA A19), or an empty READ.
        let has_payload = info.payload && (info.request || packet > info.extensions_len);
        let needs_credit = has_payload || info.request && info.operation != Operation::ReadRequest;
        if acknowledged && needs_credit {
            self.credited += cost(packet.saturating_sub(info.extensions_len), 1);
            self.peak = self.peak.max(self.credited);
        }
    }

    /// Takes all frames.
    pub(super) fn take(&mut self) -> VecDeque<Vec<u8>> {
        (self.bytes, self.credited) = (0, 0);
        std::mem::take(&mut self.frames)
    }
}
