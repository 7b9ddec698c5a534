//! Inbound datagrams: checked (IBA 9.8.3), and written behind the space for the GRH.
//!
//! Destination → Q_Key → length → receive request → delivery. A datagram that fails a check is dropped silently.

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

/// Bytes reserved for the GRH at the start of every receive buffer (IBA 11.4.1.2).
pub const GRH_LEN: usize = 40;

/// The IP header of a received datagram.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    /// The destination: the local address or a multicast group.
    pub destination: Gid,
    /// The bytes for the start of the buffer: an IPv6 header as is, an IPv4 header in the last 20 bytes (IBA A17).
    /// With `None`, that part of the buffer is not written.
    pub header: Option<[u8; GRH_LEN]>,
}

/// Number of silently dropped datagrams, by reason (IBA 9.8.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// Datagrams of another service, and truncated ones.
    pub foreign: u64,
    /// Datagrams for another QP, or for a group that the QP is not attached to.
    pub destination: u64,
    /// Wrong Q_Key (IBA 10.2.5).
    pub queue_key: u64,
    /// Longer than the MTU.
    pub length: u64,
    /// No receive request posted.
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
        // PSNs are not checked: datagrams are unordered (IBA 9.8.3).
        let Some(request) = receives.take() else {
            self.drops.no_receive += 1;
            return Ok(());
        };
        let delivered = deliver(packet, envelope, source, &request, config, memory);
        done.push_back(delivered.unwrap_or_else(|status| request.completion(status)));
        if delivered == Err(Status::LocalProtection) { Err(Fault::Responder) } else { Ok(()) }
    }

    /// Returns the source QPN of an acceptable datagram; counts all others as drops.
    fn admit(&mut self, packet: &Packet<'_>, envelope: &Envelope, config: &Config) -> Option<Qpn> {
        let info = packet.bth.opcode.info();
        let ours = info.is_some_and(|info| info.transport == Transport::UnreliableDatagram);
        let whole = packet.payload.len() == packet.payload_len;
        let Some(deth) = packet.extensions.deth.filter(|_| ours && whole) else {
            self.drops.foreign += 1;
            return None;
        };
        // Multicast datagrams carry the multicast QPN (IBA 10.5).
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
    // A buffer that is too small completes with an error (IBA 11.6.2), but the QP stays operational: error classes D
    // and E of IBA 9.9.3 change no state. Otherwise any sender could disable the QP with one long datagram.
    if length as u64 > request.sg_list.len() {
        return Err(Status::LocalLength);
    }
    // The receive request's own lkey denies the access: the request fails, and the QP enters ERR (IBA 10.3.1.7).
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
