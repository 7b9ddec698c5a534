//! Answers on their way back, in the order of their requests, and those that may be asked for again.

use alloc::collections::VecDeque;

use ferroce_wire::number::{Msn, VirtualAddress, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::syndrome::Syndrome;
use ferroce_wire::transport::{Aeth, AtomicAckEth, Bth};

use super::queue_pair::Config;
use super::sequence::Sequence;
use crate::memory::{Accessor, RemoteSpan};
use crate::transmit::{Payload, Transmit, pad};

/// One answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Response {
    /// The request that it answers.
    pub(super) sequence: Sequence,
    /// Messages completed when it was made (IBA 9.7.7.1).
    pub(super) msn: u32,
    pub(super) answer: Answer,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Answer {
    /// Acknowledge, or refuse.
    Acknowledge(Syndrome),
    /// Memory that a READ asked for; empty for a FLUSH or an ATOMIC WRITE.
    Read { span: RemoteSpan, sent: u32, by: Accessor, again: bool },
    /// The original value of an atomic.
    Atomic(u64),
}

/// An atomic that was executed: asked for again, it is answered again and not executed again (IBA 9.4.5).
#[derive(Clone, Copy, Debug)]
pub(super) struct Executed {
    pub(super) sequence: Sequence,
    pub(super) original: u64,
}

#[derive(Debug, Default)]
pub(super) struct Responses {
    queue: VecDeque<Response>,
    executed: VecDeque<Executed>,
}

impl Responses {
    /// Adds an answer. An acknowledgement right behind another says all that the other did (IBA 9.7.5.1.2).
    pub(super) fn push(&mut self, response: Response) {
        if let (Some(Answer::Acknowledge(earlier)), Answer::Acknowledge(_)) =
            (self.queue.back().map(|last| last.answer), response.answer)
        {
            if earlier.is_ack() {
                self.queue.pop_back();
            }
        }
        self.queue.push_back(response);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.queue.is_empty()
    }

    /// READs and atomics that are not yet answered.
    pub(super) fn unanswered(&self) -> usize {
        let answers = self.queue.iter();
        answers.filter(|one| !matches!(one.answer, Answer::Acknowledge(_))).count()
    }

    /// Keeps the result of an atomic for as long as the requester can ask for it again.
    pub(super) fn remember(&mut self, executed: Executed, config: &Config) {
        while self.executed.len() >= usize::from(config.max_dest_rd_atomic.max(1)) {
            self.executed.pop_front();
        }
        self.executed.push_back(executed);
    }

    pub(super) fn executed(&self, sequence: Sequence) -> Option<Executed> {
        self.executed.iter().copied().find(|one| one.sequence == sequence)
    }

    /// Forgets answers that a requester that goes back will ask for again: those from `sequence` on.
    pub(super) fn forget_from(&mut self, sequence: Sequence) {
        self.queue.retain(|response| {
            matches!(response.answer, Answer::Acknowledge(_)) || response.sequence < sequence
        });
    }

    pub(super) fn forget_all(&mut self) {
        self.queue.clear();
    }

    /// Payload bytes of the next packet, if it is one of a READ response.
    pub(super) fn next_read_payload(&self, config: &Config) -> Option<usize> {
        match self.queue.front()?.answer {
            Answer::Read { span, sent, .. } if span.length > 0 => {
                Some((span.length - sent).min(u32::from(config.mtu)) as usize)
            }
            _ => None,
        }
    }

    /// The next packet.
    pub(super) fn poll_transmit(&mut self, config: &Config) -> Option<Transmit<'static>> {
        let Response { sequence, msn, answer } = self.queue.front_mut()?;
        let aeth = |syndrome| Some(Aeth { syndrome, msn: Msn(*msn & 0xff_ffff) });
        let mut extensions = ExtensionHeaders::default();
        let mut payload = Payload::None;
        let mut last = true;
        let mut own = *sequence;
        let mut by = config.accessor();
        let opcode = match answer {
            Answer::Acknowledge(syndrome) => {
                extensions.aeth = aeth(*syndrome);
                Opcode::RC_ACKNOWLEDGE
            }
            Answer::Atomic(original) => {
                extensions.aeth = aeth(Syndrome::ACK);
                extensions.atomic_ack = Some(AtomicAckEth { original: Word(*original) });
                Opcode::RC_ATOMIC_ACKNOWLEDGE
            }
            Answer::Read { span, sent, by: reader, again } => {
                by = *reader;
                let mtu = u32::from(config.mtu);
                own = sequence.plus(*sent / mtu);
                let length = (span.length - *sent).min(mtu);
                let first = *sent == 0;
                if length > 0 {
                    let span = RemoteSpan {
                        address: VirtualAddress(span.address.0.wrapping_add(u64::from(*sent))),
                        length,
                        ..*span
                    };
                    payload =
                        if *again { Payload::RemoteAgain(span) } else { Payload::Remote(span) };
                }
                *sent += length;
                last = *sent == span.length;
                // IBA 9.7.5.1.1: the first and the last response packet carry an AETH.
                extensions.aeth = aeth(Syndrome::ACK).filter(|_| first || last);
                match (first, last) {
                    (true, true) => Opcode::RC_RDMA_READ_RESPONSE_ONLY,
                    (true, false) => Opcode::RC_RDMA_READ_RESPONSE_FIRST,
                    (false, false) => Opcode::RC_RDMA_READ_RESPONSE_MIDDLE,
                    (false, true) => Opcode::RC_RDMA_READ_RESPONSE_LAST,
                }
            }
        };
        if last {
            self.queue.pop_front();
        }
        let bth = Bth {
            opcode: config.role.opcode(opcode),
            pad: pad(payload.len()),
            partition: config.partition,
            destination: config.destination,
            psn: own.psn(),
            ..Bth::default()
        };
        Some(Transmit { bth, extensions, payload, by })
    }
}
