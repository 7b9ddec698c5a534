//! A process that forks after it opened a device: parent and child continue independently.
//!
//! In its own binary, because the child has only the thread that forked.

mod support;

use ferroce::*;
use ferroce_stat::{Filter, read_all};
use support::{connect, open, options, pattern, side};

fn write_and_check(context: &Context, seed: u64) {
    let one = side(context, ServiceType::ReliableConnection, 1 << 20);
    let other = side(context, ServiceType::ReliableConnection, 1 << 20);
    connect(&one, &other, 0, 4096);
    let bytes = pattern(seed, 100_000);
    one.region.write(0, &bytes).unwrap();
    let remote = other.region.remote(0);
    one.post(1, Operation::Write { remote, immediate: None }, 0, bytes.len());
    one.expect(1);
    assert_eq!(other.bytes(0, bytes.len()), bytes);
    // Each process publishes its own counters, and nobody else's.
    let filter = Filter { pid: Some(std::process::id()), ..Filter::default() };
    let processes = read_all(&filter).processes;
    let [process] = &processes[..] else { panic!("{processes:?}") };
    let [device] = &process.devices[..] else { panic!("{:?}", process.devices) };
    assert_eq!(device.queue_pairs.len(), 2);
    assert_eq!(device.counters.get("bytes_out"), context.statistics().bytes_out);
    let sent: u64 = device.queue_pairs.iter().map(|pair| pair.tx.operations.write.bytes).sum();
    assert!(sent >= bytes.len() as u64, "{sent}");
}

#[test]
fn parent_and_child_continue_independently() {
    let context = open(&options());
    write_and_check(&context, 1);
    // SAFETY: the child uses no lock that another thread could hold, opens its own device, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let good = std::panic::catch_unwind(|| write_and_check(&open(&options()), 2)).is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    write_and_check(&context, 3);
    let mut status = -1;
    // SAFETY: waits for our own child, with a pointer to a local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child failed");
    write_and_check(&context, 4);
}
