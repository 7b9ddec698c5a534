//! Our responder, fed with the requests of a capture.

use std::collections::BTreeMap;

use ferroce_proto::rc::QueuePair;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_tests::exchange::{Exchange, Sent};
use ferroce_wire::opcode::Operation;
use ferroce_wire::packet::{ICRC_LEN, MAX_PAYLOAD, Packet};

use crate::answer::Answer;
use crate::situation::Situation;

/// When our responder gets to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// After every request packet.
    EachPacket,
    /// When rdma_rxe did: where its answers stand between the requests. Until then, answers wait.
    AsCaptured,
}

/// What our responder answers when it hears what rdma_rxe heard.
pub(crate) fn replay(exchange: &Exchange, pace: Pace) -> Vec<Answer> {
    let mut situation = Situation::of(exchange);
    let mut queue_pair = QueuePair::new(situation.config.clone());
    let mut receives = ReceiveQueue::new(1);
    let mut attempts: BTreeMap<u32, usize> = BTreeMap::new();
    let mut answers = Vec::new();
    for (index, sent) in exchange.requests.iter().enumerate() {
        let (packet, info) = (sent.packet(), sent.info());
        let psn = packet.bth.psn.0;
        let opens_send = info.operation == Operation::Send && info.position.opens();
        if opens_send || info.immediate {
            let earlier = attempts.entry(psn).or_default();
            let ready = *earlier >= situation.not_ready.get(&psn).copied().unwrap_or_default();
            *earlier += 1;
            if ready && receives.is_empty() {
                receives.post(situation.receive()).expect("there is room for one");
            }
        }
        for (address, bytes) in situation.refreshed.get(&psn).into_iter().flatten() {
            situation.memory.put(*address, bytes);
        }
        queue_pair.handle_packet(
            Instant::ZERO,
            &packet,
            false,
            Some(&mut receives),
            &mut situation.memory,
        );
        let next = exchange.requests.get(index + 1).map_or(u64::MAX, |next| next.number);
        let answered = |answer: &Sent| (sent.number..next).contains(&answer.number);
        if pace == Pace::EachPacket || exchange.answers.iter().any(answered) {
            drain(&mut queue_pair, &mut situation, &mut answers);
        }
    }
    drain(&mut queue_pair, &mut situation, &mut answers);
    answers
}

/// Takes all answers that are due.
fn drain(queue_pair: &mut QueuePair, situation: &mut Situation, answers: &mut Vec<Answer>) {
    let mut buffer = [0; MAX_PAYLOAD + 64];
    while let Some(transmit) = queue_pair.poll_transmit(Instant::ZERO, &mut situation.memory) {
        let length = transmit
            .encode(&situation.memory, &mut buffer)
            .expect("the memory was checked a moment ago");
        // The ICRC is not the queue pair's: any bytes stand for it.
        let packet = Packet::parse(&buffer[..length + ICRC_LEN]).expect("what we send can be read");
        answers.push(Answer::of(&packet));
    }
}
