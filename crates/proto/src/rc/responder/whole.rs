//! Whole messages: the receive fast path for a SEND or RDMA WRITE of one packet or one run, as most messages are. The
//! result is that of the slow path, which makes the checks one by one.

use alloc::collections::VecDeque;

use ferroce_wire::opcode::Opcode;
use ferroce_wire::syndrome::Syndrome;
use ferroce_wire::transport::{Bth, Reth};

use super::placement::Effect;
use super::{MessageInProgress, Responder};
use crate::memory::{AccessFlags, Begun, Memory, RemoteRange};
use crate::rc::queue_pair::{Config, Role};
use crate::rc::responses::ResponseKind;
use crate::reason::RefusedAccess;
use crate::receive::ReceiveQueue;
use crate::work::{Completion, CompletionKind, MAX_MESSAGE, Status};

/// A message of one packet, or of one run, without immediate data.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The base transport header.
    pub bth: &'a Bth,
    /// The RETH of an RDMA WRITE.
    pub reth: Option<&'a Reth>,
    /// The whole payload.
    pub payload: &'a [u8],
}

impl Responder {
    /// Executes a message that is one packet, or one run of `packets`. Returns false if it is not one, or if a check
    /// would fail: [`Responder::handle_request`] then decides, and changes whatever has been changed here as well.
    #[inline]
    pub(in crate::rc) fn handle_whole<M: Memory>(
        &mut self,
        message: &Message<'_>,
        packets: u32,
        config: &Config,
        receives: Option<&mut ReceiveQueue>,
        memory: &mut M,
        done: &mut VecDeque<Completion>,
    ) -> bool {
        let Message { bth, reth, payload } = message;
        let is_send = match bth.opcode {
            Opcode::RC_SEND_ONLY => true,
            Opcode::RC_RDMA_WRITE_ONLY => false,
            _ => return false,
        };
        let is_next = bth.psn == self.expected.psn()
            && matches!(self.message, MessageInProgress::None)
            && self.receive.is_none();
        let length = payload.len();
        let fits = match packets {
            // Avoids the division, which is slow.
            1 => length <= usize::from(config.mtu),
            _ => length > 0 && length.div_ceil(config.mtu.into()) == packets as usize,
        };
        if !is_next || !fits || config.role != Role::Both {
            return false;
        }
        let by = config.accessor();
        let sequence = self.expected.plus(packets - 1);
        if is_send {
            let Some(receives) = receives else { return false };
            let Some(request) = receives.first() else { return false };
            let id = request.id;
            let pending = |token, access| self.place(token, access, sequence);
            if length as u64 > request.sg_list.len()
                || request.sg_list.scatter(0, payload, by, memory, pending).is_err()
            {
                return false;
            }
            let _ = receives.take();
            let completion = Completion {
                length: length as u32,
                solicited: bth.solicited,
                ..Completion::new(id, CompletionKind::Receive, Status::Success)
            };
            if M::CAN_PEND && !self.withheld.is_empty() {
                self.withheld.push(Effect::Complete(completion));
            } else {
                done.push_back(completion);
            }
        } else {
            let Some(reth) = reth else { return false };
            let is_allowed = config.access.contains(AccessFlags::REMOTE_WRITE)
                && (1..=MAX_MESSAGE).contains(&reth.length)
                && reth.length as usize == length;
            if !is_allowed {
                return false;
            }
            let range = RemoteRange::from(*reth);
            match memory.begin_write_remote(by, range, payload) {
                Ok(Begun::Done(())) => {}
                Ok(Begun::Pending(token)) => {
                    let access = RefusedAccess::remote(range, AccessFlags::REMOTE_WRITE);
                    self.place(token, access, sequence);
                }
                Err(_) => return false,
            }
        }
        self.received = length as u64;
        self.receive_queue = None;
        self.nak_sent = false;
        self.msn = self.msn.wrapping_add(1);
        (self.last_ackable, self.expected) = (sequence, sequence.plus(1));
        if bth.ack_request {
            self.respond::<M>(sequence, ResponseKind::Acknowledge(Syndrome::ACK));
        }
        if M::CAN_PEND && !self.withheld.is_empty() {
            self.message = MessageInProgress::Placing;
        }
        true
    }
}
