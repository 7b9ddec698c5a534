//! Execution of requests that passed all checks, and receive completions.

use alloc::collections::VecDeque;

use ferroce_wire::number::VirtualAddress;
use ferroce_wire::opcode::{OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::Syndrome;

use super::placement::{Effect, Placement};
use super::{MessageInProgress, Refusal, Reply, Responder, Verdict, remote_range};
use crate::memory::{AccessFlags, Accessor, Atomic, Begun, Denied, Memory, RemoteRange};
use crate::rc::queue_pair::Config;
use crate::rc::responses::{Executed, Request, ResponseKind, packets};
use crate::reason::{Reason, RefusedAccess};
use crate::work::{Completion, CompletionKind, Status};

impl Responder {
    /// Step 7: execution.
    pub(super) fn execute<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        by: Accessor,
        memory: &mut M,
        done: &mut VecDeque<Completion>,
    ) -> Verdict {
        // The last one of a run.
        let sequence = self.expected.plus(self.run - 1);
        let extensions = &packet.extensions;
        if info.position.opens() {
            self.received = 0;
        }
        match info.operation {
            Operation::Send => {
                self.write_payload(packet, by, memory)?;
                self.message = if info.position.ends() {
                    MessageInProgress::None
                } else {
                    MessageInProgress::Send
                };
            }
            Operation::Write => {
                let mut range = match (&self.message, extensions.reth) {
                    (MessageInProgress::Write(range), _) => *range,
                    (_, Some(reth)) => RemoteRange::from(&reth),
                    _ => return Err(unexpected(packet)),
                };
                let length = packet.payload.len() as u32;
                if length > 0 {
                    let part = RemoteRange { length, ..range };
                    let access = AccessFlags::REMOTE_WRITE;
                    match memory.begin_write_remote(by, part, packet.payload) {
                        Ok(Begun::Done(())) => {}
                        Ok(Begun::Pending(token)) => {
                            self.place(token, RefusedAccess::remote(part, access), sequence);
                        }
                        Err(denied) => return Err(refused(part, access, denied, by, memory)),
                    }
                }
                range.address = VirtualAddress(range.address.0.wrapping_add(u64::from(length)));
                range.length -= length;
                self.message = if info.position.ends() {
                    MessageInProgress::None
                } else {
                    MessageInProgress::Write(range)
                };
            }
            _ => return self.execute_with_response(packet, info, config, by, memory),
        }
        self.received += packet.payload.len() as u64;
        if let Some(ieth) = extensions.ieth {
            // An rkey that cannot be invalidated is a remote access error (IBA 9.4.1.1).
            let key = ieth.key;
            memory.invalidate(by, key).map_err(|denied| {
                Refusal::Invalidate.because(Reason::Invalidate { key, denied })
            })?;
        }
        if info.position.ends() {
            self.msn = self.msn.wrapping_add(1);
        }
        if info.completes {
            self.complete::<M>(packet, info, done);
        }
        self.last_ackable = sequence;
        self.expected = sequence.plus(1);
        if packet.bth.ack_request {
            self.respond::<M>(sequence, ResponseKind::Acknowledge(Syndrome::ACK));
        }
        if M::CAN_PEND && info.position.ends() && !self.withheld.is_empty() {
            self.message = MessageInProgress::Placing;
        }
        Ok(())
    }

    /// Executes a request that has its own response.
    fn execute_with_response<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        by: Accessor,
        memory: &mut M,
    ) -> Verdict {
        let range = remote_range(packet).ok_or_else(|| unexpected(packet))?;
        let mut psns = 1;
        let mut original = Begun::Done(0);
        // FLUSH and ATOMIC WRITE have an empty READ response (IBA A19).
        let mut kind =
            ResponseKind::Read { range: RemoteRange::default(), sent: 0, by, duplicate: false };
        match info.operation {
            Operation::ReadRequest => {
                kind = ResponseKind::Read { range, sent: 0, by, duplicate: false };
                psns = packets(range.length, config.mtu);
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let operation = atomic(packet, info).ok_or_else(|| unexpected(packet))?;
                original = memory.begin_atomic(by, range, operation).map_err(|denied| {
                    refused(range, AccessFlags::REMOTE_ATOMIC, denied, by, memory)
                })?;
                if let Begun::Done(original) = original {
                    kind = ResponseKind::Atomic { original, duplicate: false };
                }
            }
            Operation::AtomicWrite => {
                let payload = packet.payload.len();
                let bytes = packet.payload.try_into().map_err(|_| {
                    Refusal::Length.because(Reason::LengthMismatch { announced: 8, payload })
                })?;
                let operation = Atomic::Write(u64::from_ne_bytes(bytes));
                original = memory.begin_atomic(by, range, operation).map_err(|denied| {
                    refused(range, AccessFlags::REMOTE_WRITE, denied, by, memory)
                })?;
            }
            // Earlier WRITEs are in memory already: one thread executes all packets of a QP in order.
            Operation::Flush => {}
            _ => return Err(unexpected(packet)),
        }
        let sequence = self.expected;
        self.msn = self.msn.wrapping_add(1);
        let request = Request { operation: info.operation, range, by };
        let last_ackable = self.last_ackable;
        self.expected = sequence.plus(psns);
        let (start, packets) = (sequence, psns);
        match original {
            Begun::Done(original) => {
                let executed = Executed { start, packets, request, original, last_ackable };
                self.responses.remember(executed, config);
                self.respond::<M>(sequence, kind);
            }
            Begun::Pending(token) => {
                let executed = Executed { start, packets, request, original: 0, last_ackable };
                self.place_atomic(token, executed);
            }
        }
        Ok(())
    }

    /// Writes the payload of a SEND behind the bytes received before.
    fn write_payload(
        &mut self,
        packet: &Packet<'_>,
        by: Accessor,
        memory: &mut impl Memory,
    ) -> Verdict {
        let sequence = self.expected.plus(self.run - 1);
        let Self { receive, received, last_ackable, withheld, .. } = self;
        let Some(request) = receive else { return Err(unexpected(packet)) };
        let (sg_list, payload) = (&request.sg_list, packet.payload);
        let pending =
            |token, access| withheld.begin(token, Placement::new(access, sequence, *last_ackable));
        sg_list.scatter(*received, payload, by, memory, pending).map_err(|denied| {
            let part = (*received, payload.len() as u64);
            Refusal::Receive.because(sg_list.explain(part, true, denied, by, memory))
        })
    }

    fn complete<M: Memory>(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        done: &mut VecDeque<Completion>,
    ) {
        let Some(request) = self.receive.take() else { return };
        let kind = match info.operation {
            Operation::Write => CompletionKind::ReceiveWriteImmediate,
            _ => CompletionKind::Receive,
        };
        let completion = Completion {
            length: self.received as u32,
            immediate: packet.extensions.immediate.map(|immediate| immediate.value),
            invalidated: packet.extensions.ieth.map(|ieth| ieth.key),
            solicited: packet.bth.solicited,
            receive_queue: self.receive_queue,
            ..Completion::new(request.id, kind, Status::Success)
        };
        if M::CAN_PEND && !self.withheld.is_empty() {
            self.withheld.push(Effect::Complete(completion));
        } else {
            done.push_back(completion);
        }
    }

    /// Completes the receive request of the message in progress with a status and the number of a reason. Returns false when there is none.
    pub(super) fn end_receive(
        &mut self,
        status: Status,
        vendor_error: u16,
        done: &mut VecDeque<Completion>,
    ) -> bool {
        let Some(request) = self.receive.take() else { return false };
        let completion = Completion {
            receive_queue: self.receive_queue,
            vendor_error,
            ..Completion::new(request.id, CompletionKind::Receive, status)
        };
        // Its buffer is still written to.
        if self.withheld.is_empty() {
            done.push_back(completion);
        } else {
            self.withheld.push(Effect::Complete(completion));
        }
        true
    }
}

/// The refusal of a packet that the checks before should have refused.
#[cold]
fn unexpected(packet: &Packet<'_>) -> Reply {
    Refusal::Request.because(Reason::OpcodeSequence(packet.bth.opcode))
}

/// The refusal of a remote access.
#[cold]
pub(super) fn refused(
    range: RemoteRange,
    access: AccessFlags,
    denied: Denied,
    by: Accessor,
    memory: &impl Memory,
) -> Reply {
    let access = RefusedAccess::remote(range, access);
    Refusal::Access.because(Reason::denied(access, denied, by, memory))
}

fn atomic(packet: &Packet<'_>, info: &OpcodeInfo) -> Option<Atomic> {
    let eth = packet.extensions.atomic?;
    Some(match info.operation {
        Operation::CompareSwap => {
            Atomic::CompareSwap { compare: eth.compare.0, swap: eth.swap_or_add.0 }
        }
        _ => Atomic::FetchAdd(eth.swap_or_add.0),
    })
}
