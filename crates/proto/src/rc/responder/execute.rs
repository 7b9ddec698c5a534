//! Execution of requests that passed all checks, and receive completions.

use alloc::collections::VecDeque;

use ferroce_wire::number::VirtualAddress;
use ferroce_wire::opcode::{OpcodeInfo, Operation};
use ferroce_wire::packet::Packet;
use ferroce_wire::syndrome::Syndrome;

use super::{Message, Refusal, Responder, Verdict, named};
use crate::memory::{Accessor, Atomic, Memory, RemoteRange};
use crate::rc::queue_pair::Config;
use crate::rc::responses::{Answer, Executed, Request, packets};
use crate::work::{Completion, CompletionKind, Status};

impl Responder {
    /// 7. Execution.
    pub(super) fn execute(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        by: Accessor,
        memory: &mut impl Memory,
        done: &mut VecDeque<Completion>,
    ) -> Verdict {
        let sequence = self.expected;
        let extensions = &packet.extensions;
        if info.position.opens() {
            self.received = 0;
        }
        match info.operation {
            Operation::Send => {
                self.place(packet.payload, by, memory)?;
                self.message = if info.position.ends() { Message::None } else { Message::Send };
            }
            Operation::Write => {
                let mut range = match (&self.message, extensions.reth) {
                    (Message::Write(range), _) => *range,
                    (_, Some(reth)) => RemoteRange::from(&reth),
                    _ => return Err(Refusal::Request.into()),
                };
                let length = packet.payload.len() as u32;
                if length > 0 {
                    let part = RemoteRange { length, ..range };
                    (memory.write_remote(by, part, packet.payload)).map_err(|_| Refusal::Access)?;
                }
                range.address = VirtualAddress(range.address.0.wrapping_add(u64::from(length)));
                range.length -= length;
                self.message =
                    if info.position.ends() { Message::None } else { Message::Write(range) };
            }
            _ => return self.execute_with_response(packet, info, config, by, memory),
        }
        self.received += packet.payload.len() as u64;
        if let Some(ieth) = extensions.ieth {
            // An rkey that cannot be invalidated is a remote access error (IBA 9.4.1.1).
            (memory.invalidate(by, ieth.key)).map_err(|_| Refusal::Invalidate)?;
        }
        if info.position.ends() {
            self.msn = self.msn.wrapping_add(1);
        }
        if info.completes {
            self.complete(packet, info, done);
        }
        self.plain = sequence;
        self.expected = sequence.plus(1);
        if packet.bth.ack_request {
            self.answer(sequence, Answer::Acknowledge(Syndrome::ACK));
        }
        Ok(())
    }

    /// Executes a request that has its own response.
    fn execute_with_response(
        &mut self,
        packet: &Packet<'_>,
        info: &OpcodeInfo,
        config: &Config,
        by: Accessor,
        memory: &mut impl Memory,
    ) -> Verdict {
        let range = named(packet).ok_or(Refusal::Request)?;
        let mut taken = 1;
        let mut original = 0;
        // FLUSH and ATOMIC WRITE have an empty READ response (IBA A19).
        let mut answer = Answer::Read { range: RemoteRange::default(), sent: 0, by, again: false };
        match info.operation {
            Operation::ReadRequest => {
                answer = Answer::Read { range, sent: 0, by, again: false };
                taken = packets(range.length, config.mtu);
            }
            Operation::CompareSwap | Operation::FetchAdd => {
                let what = atomic(packet, info).ok_or(Refusal::Request)?;
                original = memory.atomic(by, range, what).map_err(|_| Refusal::Access)?;
                answer = Answer::Atomic { original, again: false };
            }
            Operation::AtomicWrite => {
                let bytes = packet.payload.try_into().map_err(|_| Refusal::Length)?;
                let what = Atomic::Write(u64::from_ne_bytes(bytes));
                memory.atomic(by, range, what).map_err(|_| Refusal::Access)?;
            }
            // Earlier WRITEs are in memory already: one thread executes all packets of a QP in order.
            Operation::Flush => {}
            _ => return Err(Refusal::Request.into()),
        }
        let sequence = self.expected;
        self.msn = self.msn.wrapping_add(1);
        let request = Request { operation: info.operation, range, by };
        let plain = self.plain;
        let executed = Executed { start: sequence, packets: taken, request, original, plain };
        self.responses.remember(executed, config);
        self.answer(sequence, answer);
        self.expected = sequence.plus(taken);
        Ok(())
    }

    /// Writes the payload of a SEND behind the bytes received before.
    fn place(&mut self, payload: &[u8], by: Accessor, memory: &mut impl Memory) -> Verdict {
        let Some(request) = &self.receive else { return Err(Refusal::Request.into()) };
        (request.sg_list.scatter(self.received, payload, by.pd, memory))
            .map_err(|_| Refusal::Receive.into())
    }

    fn complete(
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
        done.push_back(Completion {
            length: self.received as u32,
            immediate: packet.extensions.immediate.map(|immediate| immediate.value),
            invalidated: packet.extensions.ieth.map(|ieth| ieth.key),
            solicited: packet.bth.solicited,
            receive_queue: self.receive_queue,
            ..Completion::new(request.id, kind, Status::Success)
        });
    }

    /// Completes the receive request of the message in progress with `status`. Returns false when there is none.
    pub(super) fn end_receive(&mut self, status: Status, done: &mut VecDeque<Completion>) -> bool {
        let Some(request) = self.receive.take() else { return false };
        done.push_back(Completion {
            receive_queue: self.receive_queue,
            ..Completion::new(request.id, CompletionKind::Receive, status)
        });
        true
    }
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
