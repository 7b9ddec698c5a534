//! Segmentation: the headers and payload of one packet of a request.

use ferroce_wire::number::{Psn, VirtualAddress, Word};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::ExtensionHeaders;
use ferroce_wire::transport::{AtomicEth, Bth, Feth, Ieth, ImmDt, Reth, Xrceth};

use super::queue_pair::Config;
use super::requester::QueuedRequest;
use crate::transmit::{Payload, Transmit, pad};
use crate::work::{Operation, RemoteAddress};

/// One packet of a request: of its message, or the READ request for these packets of the response. A run of MIDDLE packets
/// is one with the payload of all.
#[inline]
pub(super) fn packet<'a>(
    queued: &'a QueuedRequest,
    part: core::ops::Range<u32>,
    psn: Psn,
    ack_request: bool,
    config: &Config,
) -> Transmit<'a> {
    let request = &queued.request;
    let mtu = u64::from(config.mtu);
    let length = queued.length;
    let offset = u64::from(part.start) * mtu;
    let (first, last) = (part.start == 0, part.end == queued.packets);
    let reth = |remote: RemoteAddress, length: u64| Reth {
        address: remote.address,
        key: remote.key,
        length: length as u32,
    };
    let atomic = |remote: RemoteAddress, swap_or_add: u64, compare: u64| AtomicEth {
        address: remote.address,
        key: remote.key,
        swap_or_add: Word(swap_or_add),
        compare: Word(compare),
    };
    let mut extensions = ExtensionHeaders::default();
    let mut payload = Payload::None;
    let run = u64::from(part.end - part.start) * mtu;
    let body = || Payload::of(&request.data, offset, (length - offset).min(run) as u32);
    let opcode = match request.operation {
        Operation::Send { immediate, invalidate } => {
            payload = body();
            if last {
                extensions.immediate = immediate.map(|value| ImmDt { value });
                extensions.ieth = invalidate.map(|key| Ieth { key });
            }
            match (first, last) {
                (true, false) => Opcode::RC_SEND_FIRST,
                (false, false) => Opcode::RC_SEND_MIDDLE,
                (true, true) if invalidate.is_some() => Opcode::RC_SEND_ONLY_WITH_INVALIDATE,
                (true, true) if immediate.is_some() => Opcode::RC_SEND_ONLY_WITH_IMMEDIATE,
                (true, true) => Opcode::RC_SEND_ONLY,
                (false, true) if invalidate.is_some() => Opcode::RC_SEND_LAST_WITH_INVALIDATE,
                (false, true) if immediate.is_some() => Opcode::RC_SEND_LAST_WITH_IMMEDIATE,
                (false, true) => Opcode::RC_SEND_LAST,
            }
        }
        Operation::Write { remote, immediate } => {
            payload = body();
            extensions.reth = first.then(|| reth(remote, length));
            if last {
                extensions.immediate = immediate.map(|value| ImmDt { value });
            }
            match (first, last) {
                (true, false) => Opcode::RC_RDMA_WRITE_FIRST,
                (false, false) => Opcode::RC_RDMA_WRITE_MIDDLE,
                (true, true) if immediate.is_some() => Opcode::RC_RDMA_WRITE_ONLY_WITH_IMMEDIATE,
                (true, true) => Opcode::RC_RDMA_WRITE_ONLY,
                (false, true) if immediate.is_some() => Opcode::RC_RDMA_WRITE_LAST_WITH_IMMEDIATE,
                (false, true) => Opcode::RC_RDMA_WRITE_LAST,
            }
        }
        Operation::Read { remote } => {
            // A retransmitted READ requests only the missing part (IBA 9.4.4).
            let address = VirtualAddress(remote.address.0.wrapping_add(offset));
            let bytes = queued.bytes(part.start, part.end, config.mtu);
            extensions.reth = Some(reth(RemoteAddress { address, ..remote }, bytes as u64));
            Opcode::RC_RDMA_READ_REQUEST
        }
        Operation::CompareSwap { remote, compare, swap } => {
            extensions.atomic = Some(atomic(remote, swap, compare));
            Opcode::RC_COMPARE_SWAP
        }
        Operation::FetchAdd { remote, add } => {
            extensions.atomic = Some(atomic(remote, add, 0));
            Opcode::RC_FETCH_ADD
        }
        Operation::Flush { remote, length, selectivity, placement } => {
            extensions.feth = Some(Feth { reserved: 0, selectivity, placement });
            extensions.reth = Some(reth(remote, u64::from(length)));
            Opcode::RC_FLUSH
        }
        Operation::AtomicWrite { remote } => {
            payload = body();
            extensions.reth = Some(reth(remote, 8));
            Opcode::RC_ATOMIC_WRITE
        }
        // Local requests have no packets.
        Operation::LocalInvalidate { .. } | Operation::Bind(_) => Opcode::default(),
    };
    let queue = request.receive_queue;
    extensions.xrceth =
        queue.map(|queue| Xrceth { receive_queue: queue.into(), ..Xrceth::default() });
    let bth = Bth {
        opcode: config.role.opcode(opcode),
        solicited: request.solicited && last,
        // Without APM, the migration state is always Migrated (IBA 17.2.8).
        migrated: true,
        pad: pad(payload.len()),
        partition: config.partition,
        destination: config.destination,
        ack_request,
        psn,
        ..Bth::default()
    };
    Transmit { bth, extensions, payload, by: config.accessor() }
}
