//! Duplicate requests: SENDs and WRITEs are acknowledged again and not executed (IBA C9-105). Responses of READs,
//! atomics, FLUSHes and ATOMIC WRITEs are sent again (IBA C9-110), a READ with the current contents of the memory.
//!
//! An old PSN proves only that some request was executed under it. So a READ, atomic, FLUSH or ATOMIC WRITE is only
//! answered if it matches a remembered request; all others are dropped before any state changes.

use ferroce_wire::opcode::{OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::Syndrome;

use super::{PSN_WINDOW, Responder, checks, has_response, remote_range};
use crate::memory::{Accessor, Memory, RemoteRange};
use crate::rc::queue_pair::Config;
use crate::rc::responses::{Request, Response, ResponseKind};
use crate::reason::Reason;
use crate::sequence::Sequence;

impl Responder {
    pub(super) fn duplicate(
        &mut self,
        sequence: Sequence,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        by: Option<Accessor>,
        memory: &mut impl Memory,
    ) {
        // The keepalive of a connection that has sent no request carries the PSN before the first.
        let first = if has_response(info.operation) { self.first } else { self.first.before() };
        if sequence < first {
            self.counters.get_mut().out_of_window_request += 1;
            let (psn, expected) = (packet.bth.psn, self.expected.psn());
            self.counters.report(Reason::PsnOutOfWindow { psn, expected });
            return;
        }
        if self.withheld.oldest().is_some_and(|oldest| sequence >= oldest.sequence)
            && has_response(info.operation)
        {
            return; // It is being executed: the response follows.
        }
        if !has_response(info.operation) {
            self.counters.get_mut().out_of_window_request +=
                u64::from(self.expected.since(sequence) > PSN_WINDOW);
            return self.acknowledge_duplicate(sequence);
        }
        let (Some(range), Some(by)) = (remote_range(packet), by) else { return };
        let request = Request { operation: info.operation, range, by };
        let Some(executed) = self.responses.executed(sequence, &request, config.mtu) else {
            self.counters.get_mut().out_of_window_request += 1;
            return;
        };
        // Permissions may have changed since the original request.
        if checks::check_permission(packet, info, config).is_err()
            || checks::check_key(packet, info, by, memory).is_err()
        {
            return;
        }
        // What is being read is not read again, but the response may begin with another part.
        self.awaits_payload = false;
        let kind = match info.operation {
            Operation::ReadRequest => ResponseKind::Read { range, sent: 0, by, duplicate: true },
            Operation::CompareSwap | Operation::FetchAdd => {
                ResponseKind::Atomic { original: executed.original, duplicate: true }
            }
            _ => ResponseKind::Read { range: RemoteRange::default(), sent: 0, by, duplicate: true },
        };
        let response = Response { sequence, msn: self.msn, kind };
        self.responses.push_duplicate(&executed, response, config.mtu);
    }

    /// Acknowledges a duplicate SEND or WRITE packet (IBA C9-105), with the newest PSN that an ACK can cover.
    ///
    /// The ACK stops before the next READ or atomic: their responses may be lost, and an ACK beyond them is an
    /// implied NAK. It never carries the PSN of one: to some requesters that would mean that the response arrived, or
    /// that it was empty.
    fn acknowledge_duplicate(&mut self, sequence: Sequence) {
        let newest = self
            .responses
            .first_after(sequence)
            .map_or(self.last_ackable, |next| next.last_ackable);
        let acknowledge = |sequence| Response {
            sequence,
            msn: self.msn,
            kind: ResponseKind::Acknowledge(Syndrome::ACK),
        };
        let Some(placed) = self.withheld.oldest().map(|oldest| oldest.ackable) else {
            return self.responses.push(acknowledge(newest));
        };
        // What is being placed is acknowledged when that is done, but the packets before it at once: the requester's
        // timer runs.
        if sequence <= placed {
            self.responses.push(acknowledge(newest.min(placed)));
        }
        if newest > placed {
            self.withhold_response(acknowledge(newest));
        }
    }
}
