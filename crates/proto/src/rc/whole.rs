//! Whole messages: the transmit fast path. For a message of one packet, as most messages of most programs are, it
//! yields the same packet as [`Requester::poll_transmit`]. A longer message becomes a run of all its packets: an ONLY
//! packet with the payload of all.

use ferroce_wire::opcode::Opcode;
use ferroce_wire::transport::{Bth, Reth};

use super::queue_pair::{Config, Role};
use super::requester::{QueuedRequest, RequestState, Requester};
use crate::congestion::RateControl;
use crate::memory::{Denied, Memory, Sge};
use crate::reason::{Reason, RefusedAccess};
use crate::time::Instant;
use crate::transmit::pad;
use crate::work::{Data, Operation, RemoteAddress};

/// A SEND or RDMA WRITE without immediate data: the headers of an ONLY packet, and the location of the payload.
#[derive(Debug)]
pub struct Whole<'a> {
    /// The base transport header.
    pub bth: Bth,
    /// The RETH of a WRITE.
    reth: Option<Reth>,
    /// Length of the payload, without the padding counted in the BTH.
    pub length: usize,
    /// The number of packets: one, unless it is a run of all packets of the message.
    pub packets: u32,
    /// Whether the program gets a completion.
    pub signaled: bool,
    data: &'a Data,
    config: &'a Config,
}

impl Whole<'_> {
    /// Encodes the headers, and returns what is left of `out` for the payload, its padding and the ICRC; `None` if `out` is
    /// too short.
    #[inline(always)]
    pub fn encode_headers<'a>(&self, out: &'a mut [u8]) -> Option<&'a mut [u8]> {
        let (bth, mut rest) = out.split_first_chunk_mut()?;
        *bth = self.bth.to_bytes();
        if let Some(found) = self.reth {
            let reth;
            (reth, rest) = rest.split_first_chunk_mut()?;
            *reth = found.to_bytes();
        }
        Some(rest)
    }

    /// The length of the headers.
    #[inline]
    pub fn headers_len(&self) -> usize {
        if self.reth.is_some() { Bth::LEN + Reth::LEN } else { Bth::LEN }
    }

    /// Copies the payload to `out`, which has its length.
    #[inline]
    pub fn read(&self, memory: &impl Memory, out: &mut [u8]) -> Result<(), Denied> {
        match self.data {
            Data::Inline(bytes) => {
                out.copy_from_slice(bytes);
                Ok(())
            }
            Data::SgList(sg_list) => {
                sg_list.gather(0, self.length as u64, out, self.config.pd, memory)
            }
        }
    }

    /// Why the payload could not be read, for `handle_denied`.
    #[inline(always)]
    pub fn explain(&self, denied: Denied, memory: &impl Memory) -> Reason {
        // Its parts: a message whose address is passed on is no longer kept in registers.
        explain(self.data, self.length, self.config, denied, memory)
    }
}

#[cold]
fn explain(
    data: &Data,
    length: usize,
    config: &Config,
    denied: Denied,
    memory: &impl Memory,
) -> Reason {
    match data {
        Data::SgList(sg_list) => {
            sg_list.explain((0, length as u64), false, denied, config.accessor(), memory)
        }
        Data::Inline(_) => {
            Reason::Memory(RefusedAccess::local(Sge::default(), false), denied.into())
        }
    }
}

impl Requester {
    /// Takes the next message as a whole, with the effect of [`Requester::poll_transmit`] for each of its packets.
    /// Returns `None`, with nothing changed, if the slow path has to decide. A message that is retransmitted, of which
    /// the responder may have executed some packets, is not taken as a whole.
    #[inline]
    pub(super) fn take_whole<'a>(
        &'a mut self,
        now: Instant,
        config: &'a Config,
    ) -> Option<Whole<'a>> {
        let queued = self.queue.get(self.next_index)?;
        let (opcode, remote) = match queued.request.operation {
            Operation::Send { immediate: None, invalidate: None } => (Opcode::RC_SEND_ONLY, None),
            Operation::Write { remote, immediate: None } => {
                (Opcode::RC_RDMA_WRITE_ONLY, Some(remote))
            }
            _ => return None,
        };
        let packets = queued.packets;
        let is_whole = match packets {
            1 => queued.state == RequestState::Queued,
            2.. => {
                let is_new = self.next == queued.start && self.newest == queued.start;
                is_new && packets <= self.max_run && queued.state == RequestState::Queued
            }
            0 => false,
        };
        let is_delayed = self.rnr_wait_until.is_some() || self.probe.is_pending();
        if !is_whole || is_delayed || config.role != Role::Both || !self.may_start(queued, config) {
            return None;
        }
        let sent = queued.cost(0, packets, config.mtu);
        self.rate.may_send(now, sent.peer).ok()?;
        let psn = self.next.psn();
        self.run = packets;
        let next = self.next.plus(packets);
        self.on_sent(now, next, sent);
        self.on_ack_requested(now, next);
        self.start_timer(now, config);
        let index = self.next_index;
        self.next_index += 1;
        let QueuedRequest { request, length, .. } = self.queue.get(index)?;
        let length = *length as usize;
        let reth = remote.map(|RemoteAddress { address, key }| Reth {
            address,
            key,
            length: length as u32,
        });
        let bth = Bth {
            opcode,
            solicited: request.solicited,
            migrated: true,
            pad: pad(length),
            partition: config.partition,
            destination: config.destination,
            ack_request: true,
            psn,
            ..Bth::default()
        };
        let (signaled, data) = (request.signaled, &request.data);
        Some(Whole { bth, reth, length, packets, signaled, data, config })
    }
}
