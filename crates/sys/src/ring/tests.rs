use std::os::fd::AsFd;

use super::*;

fn ring(size: usize) -> (Producer, Consumer) {
    let file = RingFile::create(size).unwrap();
    let other = RingFile::check(file.as_fd().try_clone_to_owned().unwrap(), size).unwrap();
    (Producer::new(&file).unwrap(), Consumer::new(&other).unwrap())
}

fn write(producer: &mut Producer, data: &[u8]) -> bool {
    let Some(room) = producer.room(data.len()).unwrap() else { return false };
    room.copy_from_slice(data);
    producer.commit(data.len());
    let _ = producer.publish();
    true
}

fn read(consumer: &Consumer) -> Option<Vec<u8>> {
    let mut out = vec![0; 8192];
    let length = consumer.take(&mut out).unwrap()?;
    let _ = consumer.release();
    out.truncate(length);
    Some(out)
}

#[test]
fn records_arrive_in_order_across_the_end() {
    let (mut producer, consumer) = ring(4096);
    let record = |index: usize| vec![index as u8; index * 7 % 1500];
    let (mut written, mut taken) = (0, 0);
    while taken < 2000 {
        while write(&mut producer, &record(written)) {
            written += 1;
        }
        for _ in 0..1 + taken % 3 {
            let Some(found) = read(&consumer) else { break };
            assert_eq!(found, record(taken));
            taken += 1;
        }
    }
    assert!(written > taken);
}

#[test]
fn a_record_is_visible_when_it_is_published() {
    let (mut producer, consumer) = ring(4096);
    producer.room(3).unwrap().unwrap().copy_from_slice(b"abc");
    producer.commit(3);
    assert!(consumer.is_empty());
    assert_eq!(producer.unpublished(), ALIGNMENT);
    assert!(!producer.publish(), "the consumer does not sleep");
    assert!(!consumer.is_empty());
    assert_eq!(read(&consumer).unwrap(), b"abc");
    assert!(consumer.is_empty());
}

#[test]
fn a_look_tells_whether_there_are_records() {
    let (mut producer, consumer) = ring(4096);
    // Also with wrap-around.
    for length in [0, 1, 500, 3000, 2000, 700, 64] {
        assert!(!consumer.has_records());
        assert!(write(&mut producer, &vec![1; length]));
        assert!(consumer.has_records());
        assert_eq!(read(&consumer).map(|record| record.len()), Some(length));
    }
}

#[test]
fn a_record_can_be_looked_at_before_it_is_taken() {
    let (mut producer, consumer) = ring(4096);
    let mut start = [0; 2];
    assert_eq!(consumer.peek(&mut start), Ok(None));
    assert!(consumer.is_idle());
    producer.begin();
    assert!(!consumer.is_idle());
    assert!(write(&mut producer, b"abc"));
    producer.end();
    assert!(consumer.is_idle());
    for _ in 0..2 {
        assert_eq!(consumer.peek(&mut start), Ok(Some(3)));
        assert_eq!(&start, b"ab");
    }
    assert_eq!(consumer.peek(&mut [0; 9]), Ok(Some(3)));
    assert_eq!(read(&consumer).unwrap(), b"abc");
    producer.count_dropped();
    assert_eq!(consumer.dropped(), 1);
}

#[test]
fn each_side_wakes_the_other_once() {
    let (mut producer, consumer) = ring(4096);
    assert!(consumer.sleep());
    let _ = producer.room(1).unwrap().unwrap();
    producer.commit(1);
    assert!(producer.publish());
    assert!(!consumer.sleep(), "there is a record already");

    while producer.room(1000).unwrap().is_some() {
        producer.commit(1000);
    }
    let _ = producer.publish();
    assert_eq!(producer.wait_for_room(1000), Ok(false));
    assert!(producer.awaits_room());
    let mut out = [0; 1000];
    assert_eq!(consumer.take(&mut out), Ok(Some(1)));
    assert!(consumer.release());
    assert!(!producer.awaits_room());
    assert!(!consumer.release(), "nothing was read since");
    assert_eq!(consumer.take(&mut out), Ok(Some(1000)));
    assert!(!consumer.release(), "the producer was woken already");
    assert_eq!(producer.has_room(1000), Ok(true));
}

/// For records of any size up to half a ring: a waiting producer is woken before all records are read.
#[test]
fn a_consumer_that_looks_once_in_a_while_wakes_the_producer() {
    let (mut producer, consumer) = ring(4096);
    let mut out = [0; 4096];
    let (mut waits, mut woken) = (0, 0);
    for length in (0..100_000).map(|index: usize| index.wrapping_mul(2_654_435_761) % 2000) {
        while producer.room(length).unwrap().is_none() {
            let _ = producer.publish();
            if producer.wait_for_room(length) == Ok(true) {
                continue;
            }
            waits += 1;
            while producer.awaits_room() {
                assert!(consumer.take(&mut out).unwrap().is_some(), "the wakeup is lost");
                woken += usize::from(consumer.release_some());
            }
        }
        producer.commit(length);
        let _ = producer.publish();
    }
    assert_eq!(waits, woken);
    while consumer.take(&mut out).unwrap().is_some() {}
    assert!(!consumer.release_some());
    assert!(!producer.is_unread(producer.position()), "space is released at once");
}

/// A mapping of the other process, which writes arbitrary values.
fn scribbler(file: &RingFile) -> (memory::RingMemory, Consumer) {
    (file.map().unwrap(), Consumer::new(file).unwrap())
}

#[test]
fn impossible_positions_break_the_ring() {
    let mut out = [0; 256];
    for tail in [1, 63, 65, 4096 + 64, u64::MAX - 63, u64::MAX] {
        let (memory, consumer) = scribbler(&RingFile::create(4096).unwrap());
        let _ = memory.control().unwrap().publish(tail);
        assert_eq!(consumer.take(&mut out), Err(Broken), "{tail}");
    }
    for length in [57, 256 - 7, 257, 4096, u32::MAX] {
        let (memory, consumer) = scribbler(&RingFile::create(4096).unwrap());
        // SAFETY: inside the mapping.
        unsafe { memory.at(0).cast::<u32>().write(length) };
        let _ = memory.control().unwrap().publish(64);
        assert_eq!(consumer.take(&mut out), Err(Broken), "{length}");
    }
    for head in [64, u64::MAX] {
        let file = RingFile::create(4096).unwrap();
        let (memory, mut producer) = (file.map().unwrap(), Producer::new(&file).unwrap());
        while producer.room(1000).unwrap().is_some() {
            producer.commit(1000);
        }
        let _ = memory.control().unwrap().release(head);
        // An invalid position is not cached.
        for _ in 0..2 {
            assert_eq!(producer.has_room(2000), Err(Broken), "{head}");
        }
    }
}

#[test]
fn files_that_could_shrink_are_sparse_or_too_large_are_refused() {
    use rustix::fs::{
        FallocateFlags, MemfdFlags, SealFlags, fallocate, fcntl_add_seals, ftruncate, memfd_create,
    };
    let file_with = |length: u64, allocated: u64, seals: SealFlags| {
        let fd = memfd_create("test", MemfdFlags::ALLOW_SEALING | MemfdFlags::CLOEXEC).unwrap();
        ftruncate(&fd, length).unwrap();
        if allocated > 0 {
            fallocate(&fd, FallocateFlags::empty(), 0, allocated).unwrap();
        }
        fcntl_add_seals(&fd, seals).unwrap();
        RingFile::check(fd, 1 << 20)
    };
    // 1 TiB is refused before its memory matters.
    let file = |length: u64, seals| file_with(length, length.min(3 << 20), seals);
    let (page, all) = (crate::memory::page_size() as u64, SealFlags::SHRINK | SealFlags::GROW);
    assert!(file(2 * page, all | SealFlags::SEAL).is_ok());
    assert!(file(2 * page, all).is_err(), "without F_SEAL_SEAL");
    assert!(file(2 * page, SealFlags::GROW | SealFlags::SEAL).is_err());
    assert!(file(page + (1 << 20), all | SealFlags::SEAL).is_ok());
    for length in [0, 1, page, page + 1, 4 * page, page + (2 << 20), 1 << 40] {
        assert!(file(length, all | SealFlags::SEAL).is_err(), "{length}");
    }
    // The process that maps a sparse file would have to allocate its memory.
    for allocated in [0, page, 8 * page] {
        assert!(file_with(9 * page, allocated, all | SealFlags::SEAL).is_err(), "{allocated}");
    }
    assert!(file_with(9 * page, 9 * page, all | SealFlags::SEAL).is_ok());
    assert!(RingFile::check(std::fs::File::open("/dev/null").unwrap().into(), 1 << 20).is_err());
}

#[test]
fn marks_belong_to_their_records() {
    let (mut producer, consumer) = ring(4096);
    let marks = [false, true, true, false, true];
    for is_marked in marks {
        producer.room(100).unwrap().unwrap().fill(0xff);
        producer.commit_record(100, is_marked);
    }
    let _ = producer.publish();
    let taken = marks.map(|_| {
        let taken = consumer.take_start(&mut [0; 100], 100, 10).unwrap().unwrap();
        (taken.length, taken.is_marked)
    });
    assert_eq!(taken, marks.map(|is_marked| (100, is_marked)));
}

#[test]
fn the_rest_of_a_long_record_stays_in_the_ring() {
    let (mut producer, consumer) = ring(8192);
    // Also with wrap-around.
    for round in 0..20u8 {
        let long: Vec<u8> = (0..3000u32).map(|index| (index as u8).wrapping_mul(round)).collect();
        assert!(write(&mut producer, b"short") && write(&mut producer, &long));
        let mut out = vec![0xaa; 4096];
        let taken = consumer.take_start(&mut out, 1000, 10).unwrap().unwrap();
        assert_eq!((taken.length, taken.rest().is_empty(), &out[..5]), (5, true, &b"short"[..]));
        // Short records are copied in whole cache lines.
        assert!(out[56..].iter().all(|byte| *byte == 0xaa));
        out.fill(0xaa);
        let taken = consumer.take_start(&mut out, 1000, 10).unwrap().unwrap();
        let rest = taken.rest();
        assert_eq!((taken.length, rest.len(), &out[..10]), (3000, 2990, &long[..10]));
        assert!(out[56..].iter().all(|byte| *byte == 0xaa));
        rest.copy_to(&mut out[10..3000]);
        assert_eq!(out[..3000], long);
        let mut part = [0; 100];
        rest.part(2890, 100).unwrap().copy_to(&mut part);
        assert_eq!(part, long[2900..]);
        taken.bytes.part(5, 100).unwrap().copy_to(&mut part);
        assert_eq!(part, long[5..105]);
        assert!(rest.part(2890, 101).is_none() && rest.part(usize::MAX, 2).is_none());
        let _ = consumer.release();
    }
    assert!(write(&mut producer, &[1; 3000]));
    assert!(consumer.take_start(&mut [0; 2999], 1000, 10).is_err(), "the record does not fit");
}
