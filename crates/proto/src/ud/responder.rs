//! Inbound datagrams: checked (IBA 9.8.3), and written behind the space for the GRH.
//!
//! Destination → Q_Key → length → receive request → delivery. A datagram that fails a check is dropped silently.
//!
//! Datagrams are not ordered, so none waits for memory that takes time to write the one before; only the completions are in
//! the order of the receive requests (IBA 10.8.5).

use alloc::collections::VecDeque;

use ferroce_wire::address::Gid;
use ferroce_wire::infiniband::Grh;
use ferroce_wire::number::Qpn;
use ferroce_wire::opcode::Transport;
use ferroce_wire::packet::Packet;

use super::groups::Groups;
use super::queue_pair::Config;
use crate::counters::Uncollected;
use crate::memory::{Memory, Outcome, Token};
use crate::qp::Fault;
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::receive::ReceiveQueue;
use crate::withheld::{Released, Withheld};
use crate::work::{Completion, ReceiveRequest, Status};

/// Bytes reserved for the GRH at the start of every receive buffer (IBA 11.4.1.2).
pub const GRH_LEN: usize = Grh::LEN;

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
    /// The completions behind unfinished accesses to memory.
    pub(super) withheld: Withheld<RefusedAccess, Completion>,
    /// The reason why a part of the datagram could not be written whose completion is next.
    failed: Option<u16>,
}

impl Responder {
    pub(super) fn new(config: &Config) -> Self {
        let (drops, withheld) = (Drops::default(), Withheld::default());
        Self { groups: Groups::new(config.group_capacity), drops, withheld, failed: None }
    }

    /// Forgets what was received. Groups stay attached.
    pub(super) fn reset(&mut self) {
        let groups = core::mem::take(&mut self.groups);
        let (drops, withheld) = (Drops::default(), Withheld::default());
        *self = Self { groups, drops, withheld, failed: None };
    }

    #[allow(clippy::too_many_arguments)] // Everything that a packet may change.
    pub(super) fn handle_packet(
        &mut self,
        packet: &Packet<'_>,
        envelope: &Envelope,
        config: &Config,
        receives: &mut ReceiveQueue,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
        reports: &mut Uncollected,
    ) -> Result<(), Fault> {
        let Some(source) = self.admit(packet, envelope, config, reports) else { return Ok(()) };
        // PSNs are not checked: datagrams are unordered (IBA 9.8.3).
        let Some(request) = receives.take() else {
            self.drops.no_receive += 1;
            reports.report(Reason::NoReceive { queue: None, repeated: false });
            return Ok(());
        };
        let pending = |token, access| self.withheld.begin(token, access);
        let delivered = deliver(packet, envelope, source, &request, config, memory, pending);
        let completion = match &delivered {
            Ok(completion) => *completion,
            Err((status, reason)) => request.completion(*status).because(reports.report(*reason)),
        };
        if self.withheld.is_empty() {
            done.push_back(completion);
        } else {
            self.withheld.push(completion);
        }
        match delivered {
            Err((Status::LocalProtection, _)) => Err(Fault::Responder),
            _ => Ok(()),
        }
    }

    /// An access to memory has finished. `None` if it is of no datagram. A copy that fails is an error of this host, as
    /// with a receive request whose own lkey denies the access.
    pub(super) fn handle_finished(
        &mut self,
        token: Token,
        outcome: Outcome,
        done: &mut VecDeque<Completion>,
        reports: &mut Uncollected,
    ) -> Option<Result<(), Fault>> {
        if !self.withheld.finish(token, outcome) {
            return None;
        }
        let mut result = Ok(());
        while let Some(released) = self.withheld.pop() {
            match released {
                Released::Access(access, Outcome::Failed) => {
                    let reason = Reason::Memory(access, KeyFault::CopyFailed);
                    self.failed = Some(reports.report(reason));
                    result = Err(Fault::Responder);
                }
                Released::Access(..) => {}
                Released::Effect(completion) => {
                    let status = Status::LocalProtection;
                    done.push_back(match self.failed.take() {
                        Some(reason) => Completion { status, ..completion }.because(reason),
                        None => completion,
                    });
                }
            }
        }
        Some(result)
    }

    /// Returns the source QPN of an acceptable datagram; counts all others as drops.
    fn admit(
        &mut self,
        packet: &Packet<'_>,
        envelope: &Envelope,
        config: &Config,
        reports: &mut Uncollected,
    ) -> Option<Qpn> {
        let info = packet.bth.opcode.info();
        let ours = info.is_some_and(|info| info.transport == Transport::UnreliableDatagram);
        let whole = packet.payload.len() == packet.payload_len;
        let Some(deth) = packet.extensions.deth.filter(|_| ours && whole) else {
            self.drops.foreign += 1;
            reports.report(Reason::WrongService(packet.bth.opcode));
            return None;
        };
        // Multicast datagrams carry the multicast QPN (IBA 10.5).
        let for_us = match packet.bth.destination {
            Qpn::MULTICAST => self.groups.contains(envelope.destination),
            destination => destination == config.number,
        };
        let (count, reason) = if !for_us {
            (&mut self.drops.destination, Reason::NotAttached)
        } else if deth.queue_key != config.queue_key {
            let (received, expected) = (deth.queue_key, config.queue_key);
            let reason = Reason::WrongQueueKey { source: deth.source, received, expected };
            (&mut self.drops.queue_key, reason)
        } else if packet.payload.len() > usize::from(config.mtu) {
            let (payload, mtu) = (packet.payload.len(), config.mtu);
            (&mut self.drops.length, Reason::PayloadOverMtu { payload, mtu })
        } else {
            return Some(deth.source);
        };
        *count += 1;
        reports.report(reason);
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
    mut pending: impl FnMut(Token, RefusedAccess),
) -> Result<Completion, (Status, Reason)> {
    let length = GRH_LEN + packet.payload.len();
    // A buffer that is too small completes with an error (IBA 11.6.2), but the QP stays operational: error classes D
    // and E of IBA 9.9.3 change no state. Otherwise any sender could disable the QP with one long datagram.
    if length as u64 > request.sg_list.len() {
        let (payload, receive) = (packet.payload.len(), request.sg_list.len());
        return Err((Status::LocalLength, Reason::DatagramTooLong { payload, receive }));
    }
    // The receive request's own lkey denies the access: the request fails, and the QP enters ERR (IBA 10.3.1.7).
    let header = envelope.header.as_ref().map_or(&[][..], |header| header);
    let sg_list = &request.sg_list;
    let by = config.accessor();
    (sg_list.scatter(0, header, by, memory, &mut pending))
        .and_then(|()| sg_list.scatter(GRH_LEN as u64, packet.payload, by, memory, &mut pending))
        .map_err(|denied| {
            let reason = sg_list.explain((0, length as u64), true, denied, by, memory);
            (Status::LocalProtection, reason)
        })?;
    Ok(Completion {
        length: length as u32,
        immediate: packet.extensions.immediate.map(|immediate| immediate.value),
        solicited: packet.bth.solicited,
        source: Some(source),
        over_ipv4: envelope.destination.to_ip().is_ipv4(),
        ..request.completion(Status::Success)
    })
}
