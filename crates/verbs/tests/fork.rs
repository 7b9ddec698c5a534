//! A process that forks after it opened a device: parent and child continue independently.
//!
//! In its own binary, because the child has only the thread that forked.

mod support;

use ferroce::*;
use ferroce_stat::{Filter, read_all};
use support::{Side, connect, open, options, pattern, side};

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

/// Forks, and runs this in the child, whose exit status is 0 if it returned true. Returns the child.
fn in_child(good: impl FnOnce() -> bool) -> libc::pid_t {
    // SAFETY: the child ends with `_exit`, and with a signal if it waits for a lock that another thread held.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        // SAFETY: sets a timer of this process.
        unsafe { libc::alarm(60) };
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(good)).unwrap_or(false);
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    child
}

fn status_of(child: libc::pid_t) -> i32 {
    let mut status = -1;
    // SAFETY: waits for our own child, with a pointer to a local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(ended, child);
    status
}

#[test]
fn parent_and_child_continue_independently() {
    let context = open(&options());
    write_and_check(&context, 1);
    // The child uses no lock that another thread could hold, and opens its own device.
    let child = in_child(|| {
        write_and_check(&open(&options()), 2);
        true
    });
    write_and_check(&context, 3);
    assert_eq!(status_of(child), 0, "the child failed");
    write_and_check(&context, 4);
}

/// Polls a few thousand times. Returns whether every completion is an error.
fn sees_no_success(side: &Side) -> bool {
    let mut found = (0..5000).filter_map(|_| side.completions.poll_one());
    found.all(|done| done.status != Status::Success)
}

/// A child has neither the device's thread nor the memory that it shares with the peer: its calls fail, but it does not crash,
/// and the parent is not disturbed.
#[test]
fn a_child_that_uses_its_parents_queue_pair_does_not_crash() {
    const LENGTH: usize = 64 << 10;
    let context = open(&options());
    let pair = || {
        let sides = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, LENGTH));
        connect(&sides[0], &sides[1], 0, 4096);
        sides
    };
    let [one, other] = pair();
    let write = || Operation::Write { remote: other.region.remote(0), immediate: None };
    one.post(1, write(), 0, LENGTH);
    one.expect(1);
    let post = |side: &Side, operation, length| {
        let request = SendRequest::new(WorkId(2), operation, side.data(0, length));
        let _ = side.queue_pair.post_send(request);
    };
    let child = in_child(|| {
        // More than a ring holds.
        for length in [8, 4096, LENGTH].repeat(20) {
            post(&one, write(), length);
        }
        post(&one, Operation::Read { remote: other.region.remote(0) }, 64);
        sees_no_success(&one)
    });
    assert_eq!(status_of(child), 0, "the child that posts to its parent's queue pair");
    // As daemon(3) after the device was opened.
    let child = in_child(|| {
        let [one, other] = pair();
        post(&one, Operation::Write { remote: other.region.remote(0), immediate: None }, LENGTH);
        let answer = sees_no_success(&one);
        drop((one, other));
        answer
    });
    assert_eq!(status_of(child), 0, "the child that creates queue pairs");
    one.post(3, write(), 0, LENGTH);
    one.expect(3);
}
