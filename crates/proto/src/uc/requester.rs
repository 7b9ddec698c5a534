//! The sending half: the checks on posted requests, local requests and segmentation.

use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{Bth, ImmDt, Reth};

use super::queue_pair::Config;
use crate::memory::Memory;
use crate::qp::Fault;
use crate::transmit::{Payload, Transmit, pad};
use crate::unacknowledged::{Queues, Segment, SendQueue, SendWork};
use crate::work::{MAX_MESSAGE, Operation, PostError, SendRequest, Status};

/// Checks that UC can execute a request: SEND without invalidate (IBA 9.4.1.1), RDMA WRITE, or a local operation. The
/// others need a response (IBA table 38).
pub(super) fn check(request: &SendRequest) -> Result<(), PostError> {
    match request.operation {
        Operation::Send { invalidate: None, .. } | Operation::Write { .. } => {}
        ref local if local.is_local() => {}
        _ => return Err(PostError::Operation),
    }
    if request.data.len() > u64::from(MAX_MESSAGE) {
        return Err(PostError::Length);
    }
    Ok(())
}

/// Executes the local requests at the head of the queue, until one fails.
pub(super) fn execute_local(
    queues: &mut Queues<SendRequest>,
    config: &Config,
    memory: &mut impl Memory,
) -> Result<(), Fault> {
    while let Some(request) = queues.send.oldest().filter(|oldest| oldest.operation.is_local()) {
        let executed = request.operation.execute_local(config.accessor(), memory);
        let (status, reason) = match executed {
            Ok(()) => (Status::Success, 0),
            Err((status, reason)) => (status, queues.reports.report(reason)),
        };
        queues.send.end_oldest(status, reason, &mut queues.send_done);
        executed.map_err(|_| Fault::Requester)?;
    }
    Ok(())
}

/// The next packet. UC has neither a window nor credits, so it can always be sent.
pub(super) fn poll_transmit<'a, M: Memory>(
    queue: &'a mut SendQueue<SendRequest>,
    config: &Config,
) -> Option<Transmit<'a>> {
    let packets = queue.oldest()?.packets(config.packet_size());
    let (request, staging, segment) = queue.take_segment(packets)?;
    let transmit = packet(request, segment, config);
    Some(staging.with_payload::<M>(transmit, segment.sequence, config.mtu))
}

/// One packet of a request.
fn packet<'a>(request: &'a SendRequest, segment: Segment, config: &Config) -> Transmit<'a> {
    let Segment { index, last, sequence } = segment;
    let length = request.data.len();
    let offset = u64::from(index) * config.packet_size();
    let part = length.saturating_sub(offset).min(config.packet_size()) as u32;
    let payload = Payload::of(&request.data, offset, part);
    let first = index == 0;
    let (remote, immediate) = match request.operation {
        Operation::Send { immediate, .. } => (None, immediate),
        Operation::Write { remote, immediate } => (Some(remote), immediate),
        _ => (None, None), // Rejected by `check`.
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
        // Without APM, the migration state is always Migrated (IBA 17.2.8).
        migrated: true,
        pad: pad(payload.len()),
        partition: config.partition,
        destination: config.destination,
        psn: sequence.psn(),
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
