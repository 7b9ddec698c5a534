//! Requests that were executed before (IBA 9.7.5.1.5): they are answered again, and never executed again, but for a
//! READ, whose answer is the memory as it is now.
//!
//! A PSN of the past says only that something was executed under it. So a READ, atomic, FLUSH or ATOMIC WRITE is
//! answered only if it is one of those remembered; everything else is dropped before any state changes.

use ferroce_wire::opcode::{OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::Syndrome;

use super::{Responder, WINDOW, checks, has_response, named};
use crate::memory::{Accessor, Memory, RemoteRange};
use crate::rc::queue_pair::Config;
use crate::rc::responses::{Answer, Request, Response};
use crate::rc::sequence::Sequence;

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
        if sequence < self.first {
            self.counters.out_of_window_request += 1;
            return;
        }
        if !has_response(info.operation) {
            self.counters.out_of_window_request +=
                u64::from(self.expected.since(sequence) > WINDOW);
            return self.acknowledge_again(sequence);
        }
        let (Some(range), Some(by)) = (named(packet), by) else { return };
        let request = Request { operation: info.operation, range, by };
        let Some(executed) = self.responses.executed(sequence, &request, config.mtu) else {
            self.counters.out_of_window_request += 1;
            return;
        };
        // What was allowed then may not be any more.
        if checks::check_permission(packet, info, config).is_err()
            || checks::check_key(packet, info, by, memory).is_err()
        {
            return;
        }
        let answer = match info.operation {
            Operation::ReadRequest => Answer::Read { range, sent: 0, by, again: true },
            Operation::CompareSwap | Operation::FetchAdd => {
                Answer::Atomic { original: executed.original, again: true }
            }
            _ => Answer::Read { range: RemoteRange::default(), sent: 0, by, again: true },
        };
        let response = Response { sequence, msn: self.msn, answer };
        self.responses.push_again(&executed, response, config.mtu);
    }

    /// IBA 9.7.5.1.2: the newest acknowledgement covers a SEND or WRITE packet that came again.
    ///
    /// It stops before the next READ or atomic: their answers may be lost, and an acknowledgement beyond them is an
    /// implied NAK. It never has the PSN of one: that would say that the answer carried nothing, or, to requesters that
    /// do not look, that it arrived.
    fn acknowledge_again(&mut self, sequence: Sequence) {
        let newest = self.responses.first_behind(sequence).map_or(self.plain, |next| next.plain);
        self.answer(newest, Answer::Acknowledge(Syndrome::ACK));
    }
}
