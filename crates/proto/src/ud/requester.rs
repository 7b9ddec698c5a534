//! The sending half: the checks on posted requests, and their packets.

use ferroce_wire::number::{Psn, QKey};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{Bth, Deth, ImmDt};

use super::queue_pair::Config;
use super::request::{SendRequest, UdTransmit};
use crate::memory::Memory;
use crate::transmit::{Payload, Transmit, pad};
use crate::unacknowledged::{Segment, SendQueue};
use crate::work::PostError;

/// Top bit of a queue key that a work request cannot choose (IBA 10.2.5).
const CONTROLLED: u32 = 1 << 31;

/// Checks that the message fits into one packet (IBA 9.8.3).
pub(super) fn check<R>(request: &SendRequest<R>, config: &Config) -> Result<(), PostError> {
    if request.data.len() > u64::from(config.mtu) { Err(PostError::Length) } else { Ok(()) }
}

/// The next packet. Its PSN counts on, though no receiver checks it (IBA 9.8.3).
pub(super) fn poll_transmit<'a, M: Memory, R: Copy>(
    queue: &'a mut SendQueue<SendRequest<R>>,
    config: &Config,
) -> Option<UdTransmit<'a, R>> {
    let (request, staging, Segment { sequence, .. }) = queue.take_segment(1)?;
    let route = request.address.route;
    let transmit = packet(request, sequence.psn(), config);
    let transmit = staging.with_payload::<M>(transmit, sequence, config.mtu);
    Some(UdTransmit { route, transmit })
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
    Transmit { bth, extensions, payload, by: config.accessor() }
}
