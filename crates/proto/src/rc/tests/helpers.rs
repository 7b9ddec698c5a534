//! Helpers for tests of single rules.

use std::vec::Vec;

use ferroce_wire::number::{RKey, VirtualAddress};
use ferroce_wire::opcode::Opcode;
use ferroce_wire::packet::{ExtensionHeaders, Packet};
use ferroce_wire::syndrome::SyndromeKind;
use ferroce_wire::transport::Bth;

use super::pair::{BASE, Faults, KEY, Pair, sge};
use crate::work::{Data, Operation, RemoteAddress, SendRequest, SgList, Status, WorkId};

pub(super) const REMOTE_OFFSET: u64 = 0x4_0000;

pub(super) fn remote(offset: u64) -> RemoteAddress {
    RemoteAddress { address: VirtualAddress(BASE + offset), key: RKey(KEY) }
}

pub(super) fn request(id: u64, operation: Operation, length: u32) -> SendRequest {
    SendRequest::new(WorkId(id), operation, Data::SgList(SgList::from(sge(0, length))))
}

pub(super) fn write(id: u64, length: u32) -> SendRequest {
    request(id, Operation::Write { remote: remote(REMOTE_OFFSET), immediate: None }, length)
}

pub(super) fn read(id: u64, length: u32) -> SendRequest {
    request(id, Operation::Read { remote: remote(REMOTE_OFFSET) }, length)
}

pub(super) fn clean(mtu: u16) -> Pair {
    Pair::new(1, Faults::default(), mtu)
}

pub(super) fn statuses(pair: &Pair) -> Vec<(u64, Status)> {
    pair.hosts[0].sent.iter().map(|one| (one.id.0, one.status)).collect()
}

pub(super) fn opcodes(pair: &Pair, side: usize) -> Vec<Opcode> {
    pair.sent_packets().into_iter().filter(|one| one.0 == side).map(|one| one.1).collect()
}

/// The syndromes sent by side 1.
pub(super) fn syndromes(pair: &Pair) -> Vec<SyndromeKind> {
    let answers = pair.log.iter().filter(|(side, _)| *side == 1);
    answers
        .filter_map(|(_, bytes)| {
            Some(Packet::parse(bytes).unwrap().extensions.aeth?.syndrome.kind())
        })
        .collect()
}

/// Delivers a forged packet to side `to`.
pub(super) fn deliver(
    pair: &mut Pair,
    to: usize,
    bth: Bth,
    extensions: ExtensionHeaders,
    payload: &[u8],
) {
    let packet = Packet {
        bth,
        extensions,
        payload,
        payload_len: payload.len(),
        pad: &[],
        icrc: Some([0; 4]),
    };
    let host = &mut pair.hosts[to];
    host.qp.handle_packet(pair.now, &packet, false, Some(&mut host.receives), &mut host.memory);
}
