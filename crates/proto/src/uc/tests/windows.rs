//! Memory windows on UC: bound and invalidated by the send queue, without a packet.

use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use super::pair::Pair;
use crate::memory::{AccessFlags, Bind};
use crate::testing::{BASE, KEY};
use crate::uc::Fault;
use crate::work::{Data, Operation, SendRequest, Status, WorkId};

const WINDOW_KEY: u32 = 0x77_00;

fn bind(key: u32) -> Operation {
    Operation::Bind(Bind {
        window: RKey(WINDOW_KEY),
        key: RKey(key),
        region: LKey(KEY),
        address: VirtualAddress(BASE),
        length: 64,
        access: AccessFlags::REMOTE_WRITE,
    })
}

fn post(pair: &mut Pair, id: u64, operation: Operation) {
    let request = SendRequest::new(WorkId(id), operation, Data::NONE);
    pair.from.qp.post_send(request).unwrap();
}

#[test]
fn windows_are_bound_and_invalidated_in_order() {
    let mut pair = Pair::new(1, 256);
    pair.from.memory.add_window(WINDOW_KEY, true);
    post(&mut pair, 1, bind(WINDOW_KEY + 1));
    post(&mut pair, 2, Operation::LocalInvalidate { key: RKey(WINDOW_KEY + 1) });
    post(&mut pair, 3, bind(WINDOW_KEY + 2));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_none());
    let done = core::iter::from_fn(|| pair.from.qp.poll_send_completion());
    assert!(done.map(|one| (one.id.0, one.status)).eq((1..4).map(|id| (id, Status::Success))));
    assert_eq!(pair.from.memory.windows[0].key, WINDOW_KEY + 2);
}

#[test]
fn a_failed_bind_stops_the_send_queue() {
    let mut pair = Pair::new(1, 256);
    pair.from.memory.add_window(WINDOW_KEY, true);
    post(&mut pair, 1, Operation::LocalInvalidate { key: RKey(WINDOW_KEY + 9) });
    post(&mut pair, 2, bind(WINDOW_KEY + 1));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_none());
    let done = core::iter::from_fn(|| pair.from.qp.poll_send_completion());
    let expected = [(1, Status::LocalOperation), (2, Status::Flushed)];
    assert!(done.map(|one| (one.id.0, one.status)).eq(expected));
    assert_eq!(pair.from.qp.fault(), Some(Fault::Requester));
    assert!(pair.from.qp.resume_send());
    post(&mut pair, 3, bind(WINDOW_KEY + 1));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_none());
    assert_eq!(pair.from.qp.poll_send_completion().map(|one| one.status), Some(Status::Success));
}
