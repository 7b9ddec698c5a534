//! The payload of requests, which memory reads ahead of their packets.

use super::{Queues, SendQueue, SendWork};
use crate::memory::{Accessor, Memory, Staged, Token};
use crate::qp::Fault;
use crate::reason::{KeyFault, Reason, RefusedAccess};
use crate::staging::{Payload, READ_AHEAD};
use crate::work::{CompletionKind, Data, Status};

/// Bytes that are read at once, as one piece.
const PART: u64 = 128 * 1024;

impl<T: SendWork> SendQueue<T> {
    /// Asks memory for the payload of the next packet, and for what follows. Returns whether the next packet can be sent, or
    /// why its payload cannot be read.
    fn prepare(
        &mut self,
        by: Accessor,
        mtu: u64,
        memory: &mut impl Memory,
    ) -> Result<bool, Reason> {
        let Self { requests, staging, next, sent, waits, .. } = self;
        staging.release(*next);
        let (mut at, mut index, mut parts) = (*next, u64::from(*sent), 0);
        'requests: for request in requests.iter().take(1 + READ_AHEAD) {
            // Local operations are executed in order.
            if matches!(request.kind(), CompletionKind::LocalInvalidate | CompletionKind::Bind) {
                break;
            }
            let packets = request.packets(mtu);
            let sg_list = match request.data() {
                Data::SgList(sg_list) if request.len() > 0 => sg_list,
                _ => {
                    (at, index) = (at.plus((packets - index) as u32), 0);
                    continue;
                }
            };
            while index < packets {
                if parts > READ_AHEAD {
                    break 'requests;
                }
                if staging.payload(at) == Payload::Unknown {
                    let end = packets.min(index + (PART / mtu).max(1));
                    let offset = index * mtu;
                    let length = request.len().min(end * mtu) - offset;
                    match memory.begin_read_local(by, sg_list, offset, length as u32) {
                        Ok(begun) => {
                            let sge = sg_list.range(offset, length).next().unwrap_or_default();
                            let access = RefusedAccess::local(sge, false);
                            staging.push(at, at.plus((end - index) as u32), access, begun);
                        }
                        Err(denied) if at == *next => {
                            return Err(sg_list.explain(
                                (offset, length),
                                false,
                                denied,
                                by,
                                memory,
                            ));
                        }
                        Err(_) => break 'requests,
                    }
                }
                let end = staging.end(at).unwrap_or(at.plus(1));
                (index, at, parts) = (index + u64::from(end.since(at)), end, parts + 1);
            }
            index = 0;
        }
        let payload = staging.payload(*next);
        *waits = payload == Payload::Reading;
        match payload {
            Payload::Failed(access) => Err(Reason::Memory(access, KeyFault::CopyFailed)),
            _ => Ok(!*waits),
        }
    }

    /// Whether there is a packet to send, and its payload is not being read.
    #[inline]
    pub(crate) fn wants_to_send(&self) -> bool {
        self.len() > 0 && !self.waits
    }

    /// Forgets the payload of all requests.
    pub(super) fn clear_payload(&mut self) {
        self.staging.clear();
        self.waits = false;
    }

    /// Number of unfinished reads.
    pub(crate) fn unfinished(&self) -> usize {
        self.staging.unfinished()
    }

    /// Handles the end of a read. Returns false if it is of no request.
    pub(crate) fn handle_read(&mut self, token: Token, payload: Option<Staged>) -> bool {
        self.waits = false;
        self.staging.finish(token, payload).is_ok()
    }
}

impl<T: SendWork> Queues<T> {
    /// Asks memory for the payload of the next packet, and returns whether it can be sent. If the payload cannot be read, the
    /// request fails, and all later ones are flushed (IBA 10.3.1.6).
    pub(crate) fn prepare(&mut self, by: Accessor, mtu: u64, memory: &mut impl Memory) -> bool {
        let reason = match self.send.prepare(by, mtu, memory) {
            Ok(ready) => return ready,
            Err(reason) => self.reports.report(reason),
        };
        self.send.end_oldest(Status::LocalProtection, reason, &mut self.send_done);
        self.enter_error(Fault::Requester);
        false
    }
}
