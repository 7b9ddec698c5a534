//! Rings in shared memory: a process that writes arbitrary bytes anywhere, at any time, breaks the ring and nothing else.
//!
//! The input is a list of 11-byte steps: an operation, an offset and a value.
#![no_main]

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use ferroce_sys::ring::{Broken, Consumer, Producer, RingFile};
use libfuzzer_sys::fuzz_target;

/// The size of the ring, after a page with head and tail.
const SIZE: usize = 4096;

/// Positions and lengths that are almost valid are more interesting than random ones.
fn place(offset: u16) -> u64 {
    match offset % 8 {
        // Head, tail and flags, each in a pair of cache lines of its own.
        0..=3 => u64::from(offset % 4) * 128,
        // The length of a record.
        4 | 5 => 4096 + u64::from(offset / 8 % 64) * 64,
        _ => u64::from(offset) % (2 * SIZE as u64 - 8),
    }
}

fuzz_target!(|data: &[u8]| {
    let file = RingFile::create(SIZE).unwrap();
    let scribbler = File::from(file.as_fd().try_clone_to_owned().unwrap());
    let (mut producer, consumer) = (Producer::new(&file).unwrap(), Consumer::new(&file).unwrap());
    let mut out = [0xa5; 1024];
    let limit = 600;
    for step in data.chunks_exact(11) {
        let offset = u16::from_le_bytes([step[1], step[2]]);
        let length = usize::from(offset) % limit;
        match step[0] % 8 {
            0 | 1 => scribbler.write_all_at(&step[3..], place(offset)).unwrap(),
            2 => match consumer.take(&mut out[..limit]) {
                Ok(Some(length)) => assert!(length <= limit),
                Ok(None) => {}
                Err(Broken) => return,
            },
            3 => match consumer.take_start(&mut out[..limit], length / 2, 8) {
                Ok(Some(taken)) => {
                    assert!(taken.length <= limit);
                    let rest = taken.rest();
                    assert_eq!(taken.copied + rest.len(), taken.length);
                    rest.copy_to(&mut out[taken.copied..taken.length]);
                    taken.bytes.copy_to(&mut out[..taken.length]);
                }
                Ok(None) => {}
                Err(Broken) => return,
            },
            4 => match producer.room(length) {
                Ok(Some(room)) => {
                    room.fill(step[3]);
                    producer.commit(length);
                    let _ = producer.publish();
                }
                Ok(None) => {}
                Err(Broken) => return,
            },
            5 => drop((consumer.release(), consumer.is_empty(), consumer.has_records())),
            6 => drop(consumer.sleep()),
            _ => drop((producer.wait_for_room(length), producer.awaits_room())),
        }
        // Nothing is written past the buffer that the consumer was given.
        assert!(out[limit..].iter().all(|byte| *byte == 0xa5));
    }
});
