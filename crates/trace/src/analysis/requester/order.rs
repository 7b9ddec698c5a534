//! The order in which a responder sent its responses, by their MSNs.

use std::collections::VecDeque;

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::Packet;

/// Responses remembered, to distinguish a copy from a response that is late.
const MAX_RESPONSES: usize = 16;

/// An MSN further behind than this is that of a new connection.
const MAX_LATE: i32 = 1 << 10;

/// The MSNs of a responder, which never decrease (IBA 9.7.7.1). A response to a repeated request may have a newer one than
/// the responses that wait behind it, so that PSNs must be in the same order.
#[derive(Debug, Default)]
pub(super) struct ResponseOrder {
    /// The newest MSN, and the PSN of its response.
    newest: Option<(Psn, Psn)>,
    recent: VecDeque<(Opcode, Psn, Psn)>,
}

impl ResponseOrder {
    /// Records a response. Returns whether it arrived after responses that were sent later.
    pub(super) fn is_late(&mut self, packet: &Packet<'_>) -> bool {
        let Some(aeth) = packet.extensions.aeth else { return false };
        // MSNs count modulo 2^24, as PSNs do.
        let msn = Psn::new(aeth.msn.0);
        let response = (packet.bth.opcode, packet.bth.psn, msn);
        let seen = self.recent.contains(&response);
        if self.recent.len() == MAX_RESPONSES {
            self.recent.pop_front();
        }
        self.recent.push_back(response);
        let psn = packet.bth.psn;
        if let Some((newest, of)) = self.newest {
            if (-MAX_LATE..0).contains(&msn.distance(newest)) {
                return !seen && psn.is_before(of);
            }
        }
        self.newest = Some((msn, psn));
        false
    }
}
