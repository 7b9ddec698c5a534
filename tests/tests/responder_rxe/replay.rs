//! Replays the requests of a capture to our responder.

use std::collections::BTreeMap;

use ferroce_proto::budget::Budget;
use ferroce_proto::rc::QueuePair;
use ferroce_proto::receive::ReceiveQueue;
use ferroce_proto::time::Instant;
use ferroce_tests::exchange::{Exchange, Sent};
use ferroce_wire::opcode::Operation;
use ferroce_wire::packet::{ICRC_LEN, MAX_PAYLOAD, Packet};

use crate::response::Response;
use crate::situation::Situation;

/// When our responder may send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// After every request packet.
    EachPacket,
    /// When rdma_rxe did, by the position of its responses between the requests. Until then, responses are delayed.
    AsCaptured,
}

/// Returns the responses of our responder to the requests that rdma_rxe received.
pub(crate) fn replay(exchange: &Exchange, pace: Pace) -> Vec<Response> {
    let mut situation = Situation::of(exchange);
    let mut queue_pair = QueuePair::new(situation.config.clone());
    let mut receives = ReceiveQueue::new(1);
    let mut attempts: BTreeMap<u32, usize> = BTreeMap::new();
    let mut responses = Vec::new();
    for (index, sent) in exchange.requests.iter().enumerate() {
        let (packet, info) = (sent.packet(), sent.info());
        let psn = packet.bth.psn.0;
        let opens_send = info.operation == Operation::Send && info.position.opens();
        if opens_send || info.immediate {
            let earlier = attempts.entry(psn).or_default();
            let ready = *earlier >= situation.not_ready.get(&psn).copied().unwrap_or_default();
            *earlier += 1;
            if ready && receives.is_empty() {
                receives.post(situation.receive()).expect("the capacity is one");
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
        let responded = |response: &Sent| (sent.number..next).contains(&response.number);
        if pace == Pace::EachPacket || exchange.responses.iter().any(responded) {
            drain(&mut queue_pair, &mut situation, &mut responses);
        }
    }
    drain(&mut queue_pair, &mut situation, &mut responses);
    responses
}

/// Collects all responses that are due.
fn drain(queue_pair: &mut QueuePair, situation: &mut Situation, responses: &mut Vec<Response>) {
    let mut buffer = [0; MAX_PAYLOAD + 64];
    while let Some(transmit) =
        queue_pair.poll_transmit(Instant::ZERO, &mut { Budget::UNLIMITED }, &mut situation.memory)
    {
        let length = transmit
            .encode(&situation.memory, &mut buffer)
            .expect("the memory was checked a moment ago");
        // The queue pair does not compute the ICRC: any bytes will do.
        let packet = Packet::parse(&buffer[..length + ICRC_LEN]).expect("what we send can be read");
        responses.push(Response::of(&packet));
    }
}
