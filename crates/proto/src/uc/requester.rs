//! The send queue: which packet goes next.
//!
//! A request is done when its last packet is handed out (IBA 9.8.2). That packet still points into the request, and
//! its bytes may turn out to be unreadable: so the request leaves the queue at the next step, not at once.

use alloc::collections::VecDeque;

use ferroce_wire::number::Psn;
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{Bth, ImmDt, Reth};

use super::queue_pair::Config;
use crate::memory::Memory;
use crate::transmit::{Payload, Transmit, pad};
use crate::work::{
    Completion, CompletionKind, MAX_MESSAGE, Operation, SendRequest, Status, WorkId,
};

/// Why a work request was not taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostError {
    /// The queue holds as many requests as it was made for.
    Full,
    /// More bytes than a message may have.
    Length,
    /// The service has only SEND and RDMA WRITE: there are no responses that could carry anything (IBA table 38).
    Operation,
    /// The service has no SEND with invalidate (IBA 9.4.1.1).
    Invalidate,
}

/// A request could not be done, and has its completion: those behind it are flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Failed;

#[derive(Debug)]
pub(super) struct Requester {
    queue: VecDeque<SendRequest>,
    /// The PSN of the packet to send next.
    psn: Psn,
    /// Packets of the first request that were handed out.
    sent: u32,
    /// All of them were.
    finished: bool,
}

impl Requester {
    pub(super) fn new(config: &Config) -> Self {
        Self { queue: VecDeque::new(), psn: config.send_psn, sent: 0, finished: false }
    }

    /// Requests that are not finished.
    pub(super) fn len(&self) -> usize {
        self.queue.len() - usize::from(self.finished)
    }

    /// Whether no message is half sent.
    pub(super) fn is_between_messages(&self) -> bool {
        self.sent == 0 || self.finished
    }

    pub(super) fn post(&mut self, request: SendRequest, config: &Config) -> Result<(), PostError> {
        match request.operation {
            Operation::Send { invalidate: Some(_), .. } => return Err(PostError::Invalidate),
            Operation::Send { .. } | Operation::Write { .. } => {}
            ref local if local.is_local() => {}
            _ => return Err(PostError::Operation),
        }
        if request.data.len() > u64::from(MAX_MESSAGE) {
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
        self.queue.front().filter(|_| self.sent > 0).map(|request| request.id)
    }

    /// Completes the request whose last packet was handed out.
    pub(super) fn settle(&mut self, done: &mut VecDeque<Completion>) {
        if !self.finished {
            return;
        }
        if let Some(request) = self.take_first() {
            if request.signaled {
                done.push_back(completion(&request, Status::Success));
            }
        }
    }

    /// Executes the local requests whose turn it is, until one fails.
    pub(super) fn execute_local(
        &mut self,
        config: &Config,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Result<(), Failed> {
        while let Some(request) = self.queue.front().filter(|one| one.operation.is_local()) {
            let by = config.accessor();
            let executed = match &request.operation {
                Operation::Bind(bind) => memory.bind(by, bind).map_err(|_| Status::Binding),
                Operation::LocalInvalidate { key } => {
                    memory.invalidate(by, *key).map_err(|_| Status::LocalOperation)
                }
                _ => Ok(()),
            };
            if let Err(status) = executed {
                if let Some(request) = self.take_first() {
                    done.push_back(completion(&request, status));
                }
                return Err(Failed);
            }
            self.finished = true;
            self.settle(done);
        }
        Ok(())
    }

    fn take_first(&mut self) -> Option<SendRequest> {
        (self.sent, self.finished) = (0, false);
        self.queue.pop_front()
    }

    /// The next packet. Nothing holds it back: no window, no credits.
    pub(super) fn poll_transmit(&mut self, config: &Config) -> Option<Transmit<'_>> {
        let request = self.queue.front()?;
        let packets = request.data.len().div_ceil(config.packet_size()).max(1);
        let (index, psn) = (self.sent, self.psn);
        self.sent += 1;
        self.finished = u64::from(self.sent) >= packets;
        self.psn = self.psn.add(1);
        Some(packet(request, index, self.finished, psn, config))
    }

    /// The payload of a packet could not be read. False when the request is not here any more: its packet is lost,
    /// as any may be.
    pub(super) fn fail(&mut self, psn: Psn, done: &mut VecDeque<Completion>) -> bool {
        let back = i64::from(self.psn.distance(psn));
        if !(1..=i64::from(self.sent)).contains(&back) {
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

pub(super) fn completion(request: &SendRequest, status: Status) -> Completion {
    Completion {
        length: if status == Status::Success { request.data.len() as u32 } else { 0 },
        ..Completion::new(request.id, CompletionKind::from(&request.operation), status)
    }
}

/// One packet of a request.
fn packet<'a>(
    request: &'a SendRequest,
    index: u32,
    last: bool,
    psn: Psn,
    config: &Config,
) -> Transmit<'a> {
    let length = request.data.len();
    let offset = u64::from(index) * config.packet_size();
    let part = length.saturating_sub(offset).min(config.packet_size()) as u32;
    let payload = Payload::of(&request.data, offset, part);
    let first = index == 0;
    let (remote, immediate) = match request.operation {
        Operation::Send { immediate, .. } => (None, immediate),
        Operation::Write { remote, immediate } => (Some(remote), immediate),
        _ => (None, None), // Never taken into the queue.
    };
    let reth = remote.map(|remote| Reth {
        address: remote.address,
        key: remote.key,
        length: length as u32,
    });
    let extensions = ExtensionHeaders {
        reth: reth.filter(|_| first),
        immediate: immediate.filter(|_| last).map(|value| ImmDt { value }),
        ..ExtensionHeaders::default()
    };
    let bth = Bth {
        opcode: opcode(remote.is_some(), first, last, immediate.is_some()),
        solicited: request.solicited && last,
        // Without automatic path migration a connection's state is Migrated (IBA 17.2.8.1).
        migrated: true,
        pad: pad(payload.len()),
        partition: config.partition,
        destination: config.destination,
        psn,
        ..Bth::default()
    };
    Transmit { bth, extensions, payload, by: config.accessor() }
}

const fn opcode(write: bool, first: bool, last: bool, immediate: bool) -> Opcode {
    match (write, first, last, immediate) {
        (false, true, false, _) => Opcode::UC_SEND_FIRST,
        (false, false, false, _) => Opcode::UC_SEND_MIDDLE,
        (false, false, true, false) => Opcode::UC_SEND_LAST,
        (false, false, true, true) => Opcode::UC_SEND_LAST_WITH_IMMEDIATE,
        (false, true, true, false) => Opcode::UC_SEND_ONLY,
        (false, true, true, true) => Opcode::UC_SEND_ONLY_WITH_IMMEDIATE,
        (true, true, false, _) => Opcode::UC_RDMA_WRITE_FIRST,
        (true, false, false, _) => Opcode::UC_RDMA_WRITE_MIDDLE,
        (true, false, true, false) => Opcode::UC_RDMA_WRITE_LAST,
        (true, false, true, true) => Opcode::UC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
        (true, true, true, false) => Opcode::UC_RDMA_WRITE_ONLY,
        (true, true, true, true) => Opcode::UC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
    }
}
