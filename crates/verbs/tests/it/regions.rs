//! Offsets in a memory region mean the same bytes in all its methods, and to work requests and peers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};

use crate::support::{ACCESS, Side, connect, open, options, side};
use ferroce::*;

fn pair() -> (Side, Side) {
    let context = open(&options());
    let make = || side(&context, ServiceType::ReliableConnection, 4096);
    let (one, other) = (make(), make());
    connect(&one, &other, 0, 1024);
    (one, other)
}

/// Sends the first bytes of `from` to offset 8 of the other side's region, and returns what arrived there.
fn transfer(one: &Side, other: &Side, from: &MemoryRegion) -> [u8; 5] {
    let operation = Operation::Write { remote: other.region.remote(8), immediate: None };
    let data = Data::SgList(from.sge(0, 5).into());
    one.queue_pair.post_send(SendRequest::new(WorkId(1), operation, data)).unwrap();
    one.expect(1);
    let mut arrived = [0; 5];
    other.region.read(8, &mut arrived).unwrap();
    arrived
}

/// A peer writes to the first bytes of `to`.
fn transfer_back(other: &Side, to: &MemoryRegion, bytes: &[u8; 5]) {
    let operation = Operation::Write { remote: to.remote(0), immediate: None };
    let data = Data::Inline((*bytes).into());
    other.queue_pair.post_send(SendRequest::new(WorkId(2), operation, data)).unwrap();
    other.expect(2);
}

#[test]
fn a_part_of_a_buffer_has_its_own_offsets() {
    let (one, other) = pair();
    let buffer = Arc::new(Buffer::new(12_288).unwrap());
    for access in [ACCESS, ACCESS | AccessFlags::ZERO_BASED] {
        let iova = VirtualAddress(0x5000);
        let part = one.pd.register_part(&buffer, 4096, 4096, iova, access).unwrap();
        assert_eq!(part.remote(0).address, part.info().unwrap().iova);
        part.write(0, b"hello").unwrap();
        assert_eq!(&buffer.to_vec()[4096..4101], b"hello");
        assert_eq!(&transfer(&one, &other, &part), b"hello");
        transfer_back(&other, &part, b"there");
        let mut found = [0; 5];
        part.read(0, &mut found).unwrap();
        assert_eq!(&found, b"there");
        for (offset, length) in [(4095, 2), (4096, 1), (8000, 1), (usize::MAX, 2)] {
            assert_eq!(part.write(offset, &vec![1; length]), Err(CopyError::OutOfBounds));
            assert_eq!(part.read(offset, &mut vec![1; length]), Err(CopyError::OutOfBounds));
        }
        assert_eq!((part.write(4095, &[7]), part.write(4096, &[])), (Ok(()), Ok(())));
        assert_eq!(buffer.to_vec()[8190..8194], [0, 7, 0, 0]);
    }
}

#[test]
fn a_changed_region_is_read_and_written_at_its_new_place() {
    let (one, other) = pair();
    let [old, new] = [(); 2].map(|()| Arc::new(Buffer::new(4096).unwrap()));
    let mut region = one.pd.register_buffer(&old, ACCESS).unwrap();
    region.write(0, b"first").unwrap();
    let range = AddressRange::of_buffer(&new, 64, 128).unwrap();
    let translation = Some((range, VirtualAddress(0x7000)));
    region.change(Change { translation, ..Change::default() }).unwrap();
    assert_eq!((region.len(), region.address()), (128, VirtualAddress(0x7000)));
    region.write(0, b"again").unwrap();
    assert_eq!((&old.to_vec()[..5], &new.to_vec()[64..69]), (&b"first"[..], &b"again"[..]));
    assert_eq!(&transfer(&one, &other, &region), b"again");
    transfer_back(&other, &region, b"third");
    let mut found = [0; 5];
    region.read(0, &mut found).unwrap();
    assert_eq!(&found, b"third");
    assert_eq!(region.write(128, &[1]), Err(CopyError::OutOfBounds));
    // The region holds its memory, and not the old one.
    assert_eq!((Arc::strong_count(&old), Arc::strong_count(&new)), (1, 3));
}

/// Without unsafe code, and with more bytes than are copied at a time.
#[test]
fn a_program_registers_its_own_memory() {
    const BYTES: usize = 200_000;
    let (one, other) = pair();
    let memory: Arc<Vec<AtomicU8>> = Arc::new((0..BYTES).map(|_| AtomicU8::new(0)).collect());
    let range = AddressRange::of(Arc::clone(&memory));
    let region = one.pd.register(range, VirtualAddress(64), ACCESS).unwrap();
    let bytes: Vec<u8> = (0..BYTES).map(|at| (at / 7) as u8).collect();
    region.write(0, &bytes).unwrap();
    let stored = || memory.iter().map(|byte| byte.load(Ordering::Relaxed));
    assert!(stored().eq(bytes.iter().copied()));
    assert_eq!(transfer(&one, &other, &region), bytes[..5]);
    transfer_back(&other, &region, b"hello");
    assert!(stored().take(5).eq(*b"hello"));
    let mut found = vec![0; BYTES - 5];
    region.read(5, &mut found).unwrap();
    assert_eq!(found, bytes[5..]);
    assert_eq!(Arc::strong_count(&memory), 2);
    drop(region);
    assert_eq!(Arc::strong_count(&memory), 1);
}
