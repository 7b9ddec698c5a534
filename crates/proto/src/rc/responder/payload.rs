//! The payload of READ responses, where memory takes time to read it.

use ferroce_wire::number::VirtualAddress;
use ferroce_wire::syndrome::NakCode;

use super::Responder;
use crate::memory::{AccessFlags, Memory, RemoteRange};
use crate::rc::queue_pair::Config;
use crate::rc::responses::{Response, ResponseKind};
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::sequence::Sequence;
use crate::staging::{Payload, READ_AHEAD};

/// Bytes of a part of a READ response.
const PART: u32 = 64 * 1024;

impl Responder {
    /// Position of the next packet of a response.
    pub(in crate::rc) fn next_position(&self, config: &Config) -> Sequence {
        self.responses.front().map_or(self.expected, |response| response.next(config.mtu))
    }

    /// Asks memory for the payload of the next response, and for what follows. Returns whether it can be sent; an error if it
    /// cannot be read. The response to a duplicate is dropped then: a peer that still needs the data sends its request again.
    pub(in crate::rc) fn prepare_response(
        &mut self,
        config: &Config,
        memory: &mut impl Memory,
    ) -> Result<bool, (NakCode, Reason)> {
        self.awaits_payload = false;
        let Some(&response) = self.responses.front() else { return Ok(true) };
        let Response { sequence, kind: ResponseKind::Read { range, by, duplicate, .. }, .. } =
            response
        else {
            return Ok(true);
        };
        if range.length == 0 {
            return Ok(true);
        }
        let mtu = u32::from(config.mtu);
        let position = response.next(config.mtu);
        self.staging.release(position);
        let mut at = position;
        for _ in 0..=READ_AHEAD {
            if at >= response.end(config.mtu) {
                break;
            }
            if self.staging.payload(at) == Payload::Unknown {
                let offset = at.since(sequence) * mtu;
                let length = (range.length - offset).min(PART / mtu * mtu);
                let address = VirtualAddress(range.address.0.wrapping_add(u64::from(offset)));
                let part = RemoteRange { address, length, ..range };
                let access = RefusedAccess::remote(part, AccessFlags::REMOTE_READ);
                match memory.begin_read_remote(by, part, duplicate) {
                    Ok(begun) => {
                        let end = at.plus(length.div_ceil(mtu));
                        self.staging.push(at, end, access, begun);
                    }
                    Err(_) if duplicate && at == position => {
                        self.responses.drop_front();
                        return self.prepare_response(config, memory);
                    }
                    Err(denied) if at == position => {
                        let reason = Reason::denied(access, denied, by, memory);
                        return Err((NakCode::RemoteAccessError, reason));
                    }
                    Err(_) => break,
                }
            }
            at = self.staging.end(at).unwrap_or(at.plus(1));
        }
        match self.staging.payload(position) {
            Payload::Failed(_) if duplicate => {
                self.responses.drop_front();
                self.staging.clear();
                self.prepare_response(config, memory)
            }
            Payload::Failed(access) => {
                let reason = Reason::Memory(access, KeyFault::CopyFailed);
                Err((NakCode::RemoteOperationalError, reason))
            }
            Payload::Reading => {
                self.awaits_payload = true;
                Ok(false)
            }
            Payload::Ready | Payload::Unknown => Ok(true),
        }
    }
}
