//! Memory windows on an unreliable connection: bound and made invalid by its send queue, with no packet.

use ferroce_wire::number::{LKey, RKey, VirtualAddress};

use super::pair::Pair;
use crate::memory::{AccessFlags, Bind};
use crate::testing::{BASE, KEY};
use crate::uc::Fault;
use crate::work::{Data, Operation, SendRequest, Status, WorkId};

const WINDOW: u32 = 0x77_00;

fn bind(key: u32) -> Operation {
    Operation::Bind(Bind {
        window: RKey(WINDOW),
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
fn they_are_bound_and_made_invalid_in_turn() {
    let mut pair = Pair::new(1, 256);
    pair.from.memory.add_window(WINDOW, true);
    post(&mut pair, 1, bind(WINDOW + 1));
    post(&mut pair, 2, Operation::LocalInvalidate { key: RKey(WINDOW + 1) });
    post(&mut pair, 3, bind(WINDOW + 2));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_none());
    let done = core::iter::from_fn(|| pair.from.qp.poll_send_completion());
    assert!(done.map(|one| (one.id.0, one.status)).eq((1..4).map(|id| (id, Status::Success))));
    assert_eq!(pair.from.memory.windows[0].key, WINDOW + 2);
}

#[test]
fn one_that_fails_stops_the_send_queue() {
    let mut pair = Pair::new(1, 256);
    pair.from.memory.add_window(WINDOW, true);
    post(&mut pair, 1, Operation::LocalInvalidate { key: RKey(WINDOW + 9) });
    post(&mut pair, 2, bind(WINDOW + 1));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_none());
    let done = core::iter::from_fn(|| pair.from.qp.poll_send_completion());
    let expected = [(1, Status::LocalOperation), (2, Status::Flushed)];
    assert!(done.map(|one| (one.id.0, one.status)).eq(expected));
    assert_eq!(pair.from.qp.fault(), Some(Fault::Requester));
    assert!(pair.from.qp.resume_send());
    post(&mut pair, 3, bind(WINDOW + 1));
    assert!(pair.from.qp.poll_transmit(&mut pair.from.memory).is_none());
    assert_eq!(pair.from.qp.poll_send_completion().map(|one| one.status), Some(Status::Success));
}
