//! The cost of a lookup, a check, a copy, and of registering.
//!
//! `cargo bench -p ferroce-memory --bench access`

use std::sync::Arc;

use divan::counter::BytesCount;
use divan::{Bencher, black_box};
use ferroce_memory::{AddressRange, Buffer, Keys, Registry};
use ferroce_proto::memory::{AccessFlags, Accessor, Atomic, Memory, PdId, RemoteRange};
use ferroce_wire::number::VirtualAddress;

fn main() {
    divan::main();
}

const BY: Accessor = Accessor { pd: PdId(1), queue_pair: ferroce_wire::number::Qpn(0x11) };
const ALL: AccessFlags = AccessFlags::from_bits_retain(0x1f);
const LENGTHS: [usize; 3] = [64, 1024, 4096];

fn setup() -> (Registry, Arc<Buffer>, Keys) {
    let registry = Registry::new(1);
    let buffer = Arc::new(Buffer::new(1 << 16).expect("memory"));
    // Faults the pages in, so that page faults are not measured.
    buffer.write(0, &vec![1; 1 << 16]).expect("space");
    let iova = VirtualAddress(0);
    let keys = registry.register_buffer(BY.pd, &buffer, 0, 1 << 16, iova, ALL).expect("a key");
    (registry, buffer, keys)
}

fn sge(keys: &Keys, length: usize) -> RemoteRange {
    RemoteRange { key: keys.rkey, address: VirtualAddress(0), length: length as u32 }
}

#[divan::bench(sample_size = 256)]
fn check(bencher: Bencher<'_, '_>) {
    let (registry, _buffer, keys) = setup();
    bencher.bench_local(|| {
        (&registry).check_remote(BY, black_box(sge(&keys, 4096)), AccessFlags::REMOTE_WRITE)
    });
}

#[divan::bench(args = LENGTHS, sample_size = 256)]
fn write(bencher: Bencher<'_, '_>, length: usize) {
    let (registry, _buffer, keys) = setup();
    let data = vec![7; length];
    bencher.counter(BytesCount::new(length)).bench_local(|| {
        (&registry).write_remote(BY, black_box(sge(&keys, length)), black_box(&data))
    });
}

#[divan::bench(args = LENGTHS, sample_size = 256)]
fn read(bencher: Bencher<'_, '_>, length: usize) {
    let (registry, _buffer, keys) = setup();
    let mut out = vec![7; length];
    bencher.counter(BytesCount::new(length)).bench_local(|| {
        (&registry).read_remote(BY, black_box(sge(&keys, length)), black_box(&mut out))
    });
}

/// For comparison: the same without a registry.
#[divan::bench(args = LENGTHS, sample_size = 256)]
fn plain_copy(bencher: Bencher<'_, '_>, length: usize) {
    let (data, mut out) = (vec![7u8; length], vec![0u8; length]);
    bencher.counter(BytesCount::new(length)).bench_local(|| {
        black_box(&mut out[..]).copy_from_slice(black_box(&data));
    });
}

/// Through the kernel, as in an on-demand region.
#[divan::bench(args = LENGTHS, sample_size = 256)]
fn write_on_demand(bencher: Bencher<'_, '_>, length: usize) {
    let (registry, buffer, _) = setup();
    // SAFETY: the buffer outlives the region.
    let range = unsafe { AddressRange::new(buffer.address(), buffer.len()) };
    let access = ALL | AccessFlags::ON_DEMAND;
    let keys = registry.register(BY.pd, range, VirtualAddress(0), access).expect("a key");
    let data = vec![7; length];
    bencher.counter(BytesCount::new(length)).bench_local(|| {
        (&registry).write_remote(BY, black_box(sge(&keys, length)), black_box(&data))
    });
}

#[divan::bench(sample_size = 256)]
fn fetch_add(bencher: Bencher<'_, '_>) {
    let (registry, _buffer, keys) = setup();
    bencher.bench_local(|| (&registry).atomic(BY, sge(&keys, 8), Atomic::FetchAdd(1)));
}

#[divan::bench(sample_size = 256)]
fn register_buffer_and_deregister(bencher: Bencher<'_, '_>) {
    let (registry, buffer, _) = setup();
    bencher.bench_local(|| {
        let iova = VirtualAddress(0);
        let keys = registry.register_buffer(BY.pd, &buffer, 0, 4096, iova, ALL);
        registry.deregister(keys.expect("a key").lkey).expect("a region");
    });
}

/// The same region from two threads, which contend for the count of accesses.
#[divan::bench(sample_size = 256, threads = 2)]
fn check_contended(bencher: Bencher<'_, '_>) {
    let (registry, _buffer, keys) = setup();
    bencher.bench(|| {
        (&registry).check_remote(BY, black_box(sge(&keys, 4096)), AccessFlags::REMOTE_WRITE)
    });
}

/// With a check of the mappings: the length must not matter.
#[divan::bench(args = [4096, 1 << 30], sample_size = 16)]
fn register_and_deregister(bencher: Bencher<'_, '_>, length: usize) {
    let registry = Registry::new(1);
    let buffer = Buffer::new(length).expect("memory");
    bencher.bench_local(|| {
        // SAFETY: the buffer outlives the region.
        let range = unsafe { AddressRange::new(buffer.address(), length) };
        let keys = registry.register(BY.pd, range, VirtualAddress(0), ALL);
        registry.deregister(keys.expect("a key").lkey).expect("a region");
    });
}
