//! Accesses to memory that take time.

use super::{QueuePair, Refused};
use crate::held::HeldPacket;
use crate::memory::{Memory, Outcome, Staged, Token};
use crate::qp::Fault;

impl QueuePair {
    /// Handles the end of an access to memory that this QP has begun. Returns false if it has not.
    pub fn handle_finished(&mut self, token: Token, outcome: Outcome) -> bool {
        let Self { responder, requester, config, receive_done, send_done, .. } = self;
        let in_error = self.fault.is_some();
        let of_request = responder.handle_finished(token, outcome, config, in_error, receive_done);
        let failed = match of_request {
            Some(Ok(())) => None,
            Some(Err(Refused { code, reported })) => {
                self.refusal = Some(code).filter(|_| !reported);
                Some(Fault::Responder)
            }
            None => {
                let ended = requester.handle_finished(token, outcome, in_error, send_done);
                let Some(result) = ended else { return false };
                result.err()
            }
        };
        if let Some(fault) = failed {
            self.enter_error(fault);
        }
        true
    }

    /// Handles the end of a read that this QP has begun. Returns false if it has not.
    pub fn handle_read(&mut self, token: Token, payload: Option<Staged>) -> bool {
        let Err(payload) = self.requester.staging.finish(token, payload) else {
            self.requester.stalled = false;
            return true;
        };
        self.responder.awaits_payload = false;
        self.responder.staging.finish(token, payload).is_ok()
    }

    /// Asks memory for the payload of the next request. If it cannot be read, the request fails.
    pub(super) fn prepare_request(&mut self, memory: &mut impl Memory) {
        if let Err(reason) = self.requester.prepare(&self.config, memory) {
            self.requester.is_new = false;
            self.handle_denied(self.requester.next.psn(), true, reason);
        }
    }

    /// Whether the next response can be sent. A READ response waits for its payload, and all later ones behind it (IBA
    /// 9.7.5.1), but no requests.
    #[inline]
    pub(super) fn is_response_ready<M: Memory>(&mut self, memory: &mut M) -> bool {
        if !M::CAN_PEND {
            return true;
        }
        match self.responder.prepare_response(&self.config, memory) {
            Ok(true) if self.responder.wants_to_send() => true,
            Ok(_) => {
                // It waits for memory, and not for a time that may have passed.
                self.responses_paced_until = None;
                false
            }
            Err((code, reason)) => {
                self.counters.report(reason);
                self.responder.fail_read(self.responder.next_position(&self.config), code);
                if self.fault.is_none() {
                    self.refusal = Some(code);
                    self.enter_error(Fault::Responder);
                }
                true
            }
        }
    }

    /// The next packet that was held while memory was written, if it can be handled now. It is to be passed to
    /// [`QueuePair::handle_run`] before any other packet.
    pub fn take_held<M: Memory>(&mut self) -> Option<HeldPacket> {
        if self.responder.is_placing() || self.fault.is_some() {
            return None;
        }
        let packet = self.responder.held.pop();
        if packet.is_none() {
            self.responder.ask_for_dropped::<M>();
        }
        packet
    }

    /// Number of accesses to memory that have begun and not finished.
    pub fn unfinished(&self) -> usize {
        let Self { responder, requester, .. } = self;
        let reads = responder.staging.unfinished() + requester.staging.unfinished();
        responder.withheld.unfinished() + requester.withheld.unfinished() + reads
    }

    /// Whether receive completions wait for the end of an access to memory.
    pub(crate) fn withholds_receives(&self) -> bool {
        !self.responder.withheld.is_empty()
    }
}
