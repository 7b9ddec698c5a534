//! The send queue. A request is done when its packet is handed out (IBA 9.8.3). The packet still points into the
//! request, and its bytes may turn out to be unreadable: so the request leaves the queue at the next step, not at once.

use alloc::collections::VecDeque;

use ferroce_wire::number::{Psn, QKey};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{Bth, Deth, ImmDt};

use super::queue_pair::Config;
use super::request::{AddressHandle, PostError, SendRequest, UdTransmit};
use crate::memory::Accessor;
use crate::transmit::{Payload, Transmit, pad};
use crate::work::{Completion, CompletionKind, Status, WorkId};

/// Marks a queue key that a work request cannot choose (IBA 10.2.5).
const CONTROLLED: u32 = 1 << 31;

#[derive(Debug)]
pub(super) struct Requester<R> {
    queue: VecDeque<SendRequest<R>>,
    /// The PSN of the packet to send next.
    psn: Psn,
    /// The first request was handed out.
    sent: bool,
}

impl<R: Copy> Requester<R> {
    pub(super) fn new(config: &Config) -> Self {
        Self { queue: VecDeque::new(), psn: config.send_psn, sent: false }
    }

    /// Requests that are not finished.
    pub(super) fn len(&self) -> usize {
        self.queue.len() - usize::from(self.sent)
    }

    pub(super) fn post(
        &mut self,
        request: SendRequest<R>,
        config: &Config,
    ) -> Result<(), PostError> {
        if request.data.len() > u64::from(config.mtu) {
            return Err(PostError::Length);
        }
        if self.len() >= config.send_capacity {
            return Err(PostError::Full);
        }
        self.queue.push_back(request);
        Ok(())
    }

    /// The request whose packet was handed out last.
    pub(super) fn last_sent(&self) -> Option<WorkId> {
        self.queue.front().filter(|_| self.sent).map(|request| request.id)
    }

    /// Whom the next packet goes to.
    pub(super) fn next_address(&self) -> Option<&AddressHandle<R>> {
        self.queue.get(usize::from(self.sent)).map(|request| &request.address)
    }

    /// Completes the request whose packet was handed out.
    pub(super) fn settle(&mut self, done: &mut VecDeque<Completion>) {
        if !self.sent {
            return;
        }
        if let Some(request) = self.take_first() {
            if request.signaled {
                done.push_back(completion(&request, Status::Success));
            }
        }
    }

    fn take_first(&mut self) -> Option<SendRequest<R>> {
        self.sent = false;
        self.queue.pop_front()
    }

    pub(super) fn poll_transmit(&mut self, config: &Config) -> Option<UdTransmit<'_, R>> {
        let request = self.queue.front()?;
        let psn = self.psn;
        // IBA 9.8.3: counted on, though no receiver looks at it.
        self.psn = self.psn.add(1);
        self.sent = true;
        Some(UdTransmit { route: request.address.route, transmit: packet(request, psn, config) })
    }

    /// The payload of a packet could not be read. False when the request is not here any more: its packet is lost,
    /// as any may be.
    pub(super) fn fail(&mut self, psn: Psn, done: &mut VecDeque<Completion>) -> bool {
        if !self.sent || self.psn.distance(psn) != 1 {
            return false;
        }
        if let Some(request) = self.take_first() {
            done.push_back(completion(&request, Status::LocalProtection));
        }
        true
    }

    pub(super) fn flush(&mut self, done: &mut VecDeque<Completion>) {
        self.settle(done);
        while let Some(request) = self.take_first() {
            done.push_back(completion(&request, Status::Flushed));
        }
    }
}

pub(super) fn completion<R>(request: &SendRequest<R>, status: Status) -> Completion {
    Completion {
        length: if status == Status::Success { request.data.len() as u32 } else { 0 },
        ..Completion::new(request.id, CompletionKind::Send, status)
    }
}

fn packet<'a, R>(request: &'a SendRequest<R>, psn: Psn, config: &Config) -> Transmit<'a> {
    let payload = Payload::of(&request.data, 0, request.data.len() as u32);
    let queue_key = match request.address.queue_key {
        QKey(key) if key & CONTROLLED != 0 => config.queue_key,
        key => key,
    };
    let extensions = ExtensionHeaders {
        deth: Some(Deth { queue_key, source: config.number, ..Deth::default() }),
        immediate: request.immediate.map(|value| ImmDt { value }),
        ..ExtensionHeaders::default()
    };
    let bth = Bth {
        opcode: match request.immediate {
            Some(_) => Opcode::UD_SEND_ONLY_WITH_IMMEDIATE,
            None => Opcode::UD_SEND_ONLY,
        },
        solicited: request.solicited,
        pad: pad(payload.len()),
        partition: config.partition,
        destination: request.address.destination,
        psn,
        ..Bth::default()
    };
    let by = Accessor { pd: config.pd, queue_pair: config.number };
    Transmit { bth, extensions, payload, by }
}
