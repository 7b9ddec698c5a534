//! Datagrams that arrive: checked (IBA 9.8.3), and put behind the space for their global route header.
//!
//! Destination → queue key → length → receive request → delivery. What does not pass is dropped in silence.

use alloc::collections::VecDeque;

use ferroce_wire::address::Gid;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::Packet;

use super::groups::Groups;
use super::queue_pair::Config;
use crate::memory::Memory;
use crate::qp::Fault;
use crate::receive::ReceiveQueue;
use crate::work::{Completion, ReceiveRequest, Status};

/// Bytes at the front of every receive buffer that are kept for the global route header (IBA 11.4.1.2).
pub const GRH_LEN: usize = 40;

/// What carried a datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// Whom it was sent to: our own address, or a group's.
    pub destination: Gid,
    /// What goes to the front of the buffer: an IPv6 header as it is, an IPv4 header in the last 20 bytes (IBA
    /// A17). With none, these bytes stay as they are.
    pub header: Option<[u8; GRH_LEN]>,
}

/// How many datagrams were dropped in silence, for each reason (IBA 9.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// They are not of this service, or not here in full.
    pub foreign: u64,
    /// They are for another queue pair, or for a group that we are not attached to.
    pub destination: u64,
    /// They have another queue key (IBA 10.2.5).
    pub queue_key: u64,
    /// They are longer than the MTU.
    pub length: u64,
    /// No receive request was posted.
    pub no_receive: u64,
}

/// The receiving half.
#[derive(Debug)]
pub(super) struct Responder {
    pub(super) groups: Groups,
    pub(super) drops: Drops,
}

impl Responder {
    pub(super) fn new(config: &Config) -> Self {
        Self { groups: Groups::new(config.group_capacity), drops: Drops::default() }
    }

    pub(super) fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        envelope: &Envelope,
        config: &Config,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Fault> {
        let Some(source) = self.admit(packet, envelope, config) else { return Ok(()) };
        // No PSN is checked: datagrams are in no order (IBA 9.8.3).
        let Some(request) = receives.take() else {
            self.drops.no_receive += 1;
            return Ok(());
        };
        let delivered = deliver(packet, envelope, source, &request, config, memory);
        done.push_back(delivered.unwrap_or_else(|status| request.completion(status)));
        if delivered == Err(Status::LocalProtection) { Err(Fault::Responder) } else { Ok(()) }
    }

    /// The source of a datagram that is for us and may come in; all others are counted.
    fn admit(&mut self, packet: &Packet<'_>, envelope: &Envelope, config: &Config) -> Option<Qpn> {
        let info = packet.bth.opcode.info();
        let ours = info.is_some_and(|info| info.transport == Transport::UnreliableDatagram);
        let whole = packet.payload.len() == packet.payload_len;
        let Some(deth) = packet.extensions.deth.filter(|_| ours && whole) else {
            self.drops.foreign += 1;
            return None;
        };
        // IBA 9.6.1.1, 10.5: a group's datagrams are for the multicast queue pair number.
        let for_us = match packet.bth.destination {
            Qpn::MULTICAST => self.groups.contains(envelope.destination),
            destination => destination == config.number,
        };
        let reason = if !for_us {
            &mut self.drops.destination
        } else if deth.queue_key != config.queue_key {
            &mut self.drops.queue_key
        } else if packet.payload.len() > usize::from(config.mtu) {
            &mut self.drops.length
        } else {
            return Some(deth.source);
        };
        *reason += 1;
        None
    }
}

fn deliver(
    packet: &Packet<'_>,
    envelope: &Envelope,
    source: Qpn,
    request: &ReceiveRequest,
    config: &Config,
    memory: &mut impl Memory,
) -> Result<Completion, Status> {
    let length = GRH_LEN + packet.payload.len();
    // The owner is told that the buffer is too small (IBA 11.6.2), but the queue pair goes on: the error is of class D
    // or E of IBA 9.9.3, which change no state, or any stranger could end it with one long datagram.
    if length as u64 > request.sg_list.len() {
        return Err(Status::LocalLength);
    }
    // Our own request names memory that it may not: it ends in error, and with it the queue pair (IBA 10.3.1.7).
    let header = envelope.header.as_ref().map_or(&[][..], |header| header);
    let sg_list = &request.sg_list;
    (sg_list.scatter(0, header, config.pd, memory))
        .and_then(|()| sg_list.scatter(GRH_LEN as u64, packet.payload, config.pd, memory))
        .map_err(|_| Status::LocalProtection)?;
    Ok(Completion {
        length: length as u32,
        immediate: packet.extensions.immediate.map(|immediate| immediate.value),
        solicited: packet.bth.solicited,
        source: Some(source),
        over_ipv4: envelope.destination.to_ip().is_ipv4(),
        ..request.completion(Status::Success)
    })
}
