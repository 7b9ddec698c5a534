//! The payload of requests, which memory reads ahead of their packets.

use super::queue_pair::Config;
use super::requester::{QueuedRequest, RequestState, Requester};
use crate::memory::Memory;
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::staging::{Payload, READ_AHEAD};
use crate::work::{Data, Operation, SgList};

impl Requester {
    /// Asks memory for the payload of the next packet, and for what follows. An error if the next one cannot be read.
    pub(super) fn prepare(
        &mut self,
        config: &Config,
        memory: &mut impl Memory,
    ) -> Result<(), Reason> {
        self.staging.release(self.unacknowledged);
        let by = config.accessor();
        let (mut at, mut parts) = (self.next, 0);
        for index in self.next_index..self.queue.len() {
            let queued = &self.queue[index];
            // The payload of a fenced request may be the result of an earlier READ.
            let is_ready = match index == self.next_index {
                true => self.may_start(queued, config),
                false => !queued.request.fence,
            };
            if !is_ready || queued.packets == 0 || queued.state != RequestState::Queued {
                if index == self.next_index {
                    return Ok(()); // Nothing is sent, or it has failed already.
                }
                break;
            }
            at = at.max(queued.start);
            let Some(sg_list) = payload(queued) else { continue };
            while at < queued.end() {
                let from = at.since(queued.start);
                let end = self.chunk_end(queued, from);
                if parts > READ_AHEAD {
                    return self.check_next();
                }
                if self.staging.payload(at) == Payload::Unknown {
                    if at > self.next && self.staging.is_full(self.next) {
                        return self.check_next();
                    }
                    let offset = u64::from(from) * u64::from(config.mtu);
                    let length = queued.bytes(from, end, config.mtu) as u32;
                    match memory.begin_read_local(by, sg_list, offset, length) {
                        Ok(begun) => {
                            let sge = sg_list.range(offset, length.into()).next();
                            let access = RefusedAccess::local(sge.unwrap_or_default(), false);
                            self.staging.push(at, queued.start.plus(end), access, begun);
                        }
                        Err(denied) if at == self.next => {
                            let part = (offset, length.into());
                            return Err(sg_list.explain(part, false, denied, by, memory));
                        }
                        Err(_) => return self.check_next(),
                    }
                }
                parts += 1;
                at = self.staging.end(at).unwrap_or(queued.end());
            }
        }
        self.check_next()
    }

    fn check_next(&self) -> Result<(), Reason> {
        match self.staging.payload(self.next) {
            Payload::Failed(access) => Err(Reason::Memory(access, KeyFault::CopyFailed)),
            _ => Ok(()),
        }
    }

    /// Whether all of the next message can be read when it is encoded.
    pub(super) fn is_next_in_memory(&self) -> bool {
        let Some(queued) = self.queue.get(self.next_index) else { return true };
        payload(queued).is_none() || self.staging.is_in_memory(self.next, queued.end())
    }
}

/// The payload of a request, if it is in registered memory.
fn payload(queued: &QueuedRequest) -> Option<&SgList> {
    let sends = matches!(
        queued.request.operation,
        Operation::Send { .. } | Operation::Write { .. } | Operation::AtomicWrite { .. }
    );
    match &queued.request.data {
        Data::SgList(sg_list) if sends && queued.length > 0 => Some(sg_list),
        _ => None,
    }
}
