//! One conversation, and the streams that identify it.

use std::net::IpAddr;

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::{Position, Transport};
use ferroce_wire::packet::{MAX_PAYLOAD, Packet};

use crate::analysis::report::{JoinedBy, Traffic};
use crate::analysis::requester::{Progress, Requester};
use crate::analysis::sink::Reporter;
use crate::analysis::stamp::Stamp;
use crate::analysis::unreliable::UnreliableSender;
use crate::analysis::window::ObservedPacket;

/// One side: its address, and its QPN once a packet to it was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::analysis) struct Peer {
    pub(in crate::analysis) address: IpAddr,
    pub(in crate::analysis) qpn: Option<u32>,
}

/// One direction of a conversation.
#[derive(Debug, Default)]
pub(in crate::analysis) struct Direction {
    pub(in crate::analysis) traffic: Traffic,
    pub(super) requester: Requester,
    pub(super) unreliable: UnreliableSender,
}

/// A conversation under construction.
#[derive(Debug)]
pub(in crate::analysis) struct Flow {
    pub(in crate::analysis) transport: Transport,
    pub(in crate::analysis) a: Peer,
    pub(in crate::analysis) b: Peer,
    pub(in crate::analysis) joined_by: JoinedBy,
    pub(in crate::analysis) mtu: Option<u32>,
    /// From `a` to `b`, and back.
    pub(in crate::analysis) directions: [Direction; 2],
    pub(in crate::analysis) first: Stamp,
    pub(in crate::analysis) last: Stamp,
    /// The conversation whose opposite direction this one turned out to be.
    pub(in crate::analysis) merged_into: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(in crate::analysis) struct StreamKey {
    pub(super) transport: Transport,
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) qpn: u32,
    /// QPN of the sender, which datagrams carry as well.
    pub(super) source_qpn: Option<u32>,
}

impl StreamKey {
    pub(super) fn of(
        source: IpAddr,
        destination: IpAddr,
        packet: &Packet<'_>,
        transport: Transport,
    ) -> Self {
        Self {
            // A CNP may belong to any transport; assume a reliable connection.
            transport: match transport {
                Transport::CongestionNotification => Transport::ReliableConnection,
                transport => transport,
            },
            source,
            destination,
            qpn: packet.bth.destination.0,
            source_qpn: packet.extensions.deth.map(|deth| deth.source.0),
        }
    }

    /// Whether sender and receiver are the same queue pair.
    pub(super) fn is_to_itself(&self) -> bool {
        self.source == self.destination && self.source_qpn == Some(self.qpn)
    }
}

impl Flow {
    /// The stream of a one-way conversation.
    pub(in crate::analysis) fn stream(&self) -> StreamKey {
        StreamKey {
            transport: self.transport,
            source: self.a.address,
            destination: self.b.address,
            qpn: self.b.qpn.unwrap_or(0),
            source_qpn: None,
        }
    }

    /// Returns how far the requester of one direction is.
    pub(in crate::analysis) fn progress(&self, from_a: bool) -> Option<Progress> {
        self.directions[usize::from(!from_a)].requester.progress()
    }

    pub(super) fn expects(&self, psn: Psn) -> bool {
        self.directions[0].requester.expects(psn)
    }

    /// Learns the path MTU from a first or middle packet, whose payload has that length (IBA 9.7.4.1.6).
    pub(super) fn learn_mtu(&mut self, observed: &ObservedPacket<'_>) {
        let full = matches!(observed.info.position, Position::First | Position::Middle);
        let len = observed.packet.payload_len;
        if self.mtu.is_some()
            || !full
            || !len.is_power_of_two()
            || !(256..=MAX_PAYLOAD).contains(&len)
        {
            return;
        }
        self.mtu = Some(len as u32);
        for direction in &mut self.directions {
            direction.requester.learn_mtu(len as u32);
        }
    }

    pub(super) fn reliable(&mut self, observed: &ObservedPacket<'_>, reporter: &mut Reporter<'_>) {
        let own = usize::from(!reporter.side.from_a);
        if observed.info.request {
            self.directions[own].requester.request(observed, &mut self.mtu, reporter);
        } else {
            // A response concerns the opposite side's requester.
            reporter.side.from_a = !reporter.side.from_a;
            self.directions[1 - own].requester.response(observed, reporter);
        }
    }
}
