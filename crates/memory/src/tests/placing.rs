//! Payload that is copied from a ring to its place.

use std::os::fd::AsFd;

use ferroce_proto::memory::{Denied, Memory};
use ferroce_sys::ring::{Consumer, Producer, RingFile};

use super::*;
use crate::Placement;

const LENGTH: usize = 3000;

/// A ring with one record.
fn ring(record: &[u8]) -> Consumer {
    let file = RingFile::create(8192).unwrap();
    let other = RingFile::check(file.as_fd().try_clone_to_owned().unwrap(), 8192).unwrap();
    let mut producer = Producer::new(&file).unwrap();
    producer.room(record.len()).unwrap().unwrap().copy_from_slice(record);
    producer.commit(record.len());
    let _ = producer.publish();
    Consumer::new(&other).unwrap()
}

#[test]
fn parts_of_the_payload_are_copied_from_where_it_is() {
    let payload: Vec<u8> = (0..LENGTH).map(|index| (index / 3) as u8).collect();
    let consumer = ring(&payload);
    let mut record = vec![0xee; LENGTH];
    let taken = consumer.take_start(&mut record, 100, 0).unwrap().unwrap();
    let (registry, buffer, keys) = setup(LENGTH, ALL);
    let mut memory = Placement::new(&registry, &record, taken.rest());
    // A WRITE of the first half, and a receive buffer for the other.
    let (first, second) = record.split_at(LENGTH / 2);
    memory.write_remote(BY, remote(keys.rkey, BASE, 1500), first).unwrap();
    memory.write_local(PD, local(keys.lkey, BASE + 1500, 2000), second).unwrap();
    let mut found = vec![0; LENGTH];
    buffer.read(0, &mut found).unwrap();
    assert_eq!(found, payload);
    // Everything is checked as for other writes.
    assert_eq!(memory.write_remote(BY, remote(keys.rkey, BASE, 1499), first), Err(Denied::Bounds));
    let beyond = remote(keys.rkey, BASE + 1501, 1500);
    assert_eq!(memory.write_remote(BY, beyond, first), Err(Denied::Bounds));
    assert_eq!(memory.write_local(PD, local(keys.lkey, BASE, 10), first), Err(Denied::Bounds));
    let other = Accessor { pd: PdId(8), ..BY };
    let all = remote(keys.rkey, BASE, 1500);
    assert_eq!(memory.write_remote(other, all, first), Err(Denied::PdId));
    // Other bytes are what they are.
    memory.write_local(PD, local(keys.lkey, BASE, 4), b"real").unwrap();
    memory.read_local(PD, local(keys.lkey, BASE, 4), &mut found[..4]).unwrap();
    assert_eq!(&found[..4], b"real");
}

#[test]
fn a_region_without_write_access_is_not_written() {
    let consumer = ring(&[7; LENGTH]);
    let mut record = vec![0; LENGTH];
    let taken = consumer.take_start(&mut record, 100, 0).unwrap().unwrap();
    let (registry, buffer, keys) = setup(LENGTH, READ);
    let mut memory = Placement::new(&registry, &record, taken.rest());
    let range = remote(keys.rkey, BASE, LENGTH as u32);
    assert_eq!(memory.write_remote(BY, range, &record), Err(Denied::Access));
    assert!(memory.write_local(PD, local(keys.lkey, BASE, LENGTH as u32), &record).is_err());
    let mut found = vec![1; LENGTH];
    buffer.read(0, &mut found).unwrap();
    assert_eq!(found, vec![0; LENGTH]);
}
