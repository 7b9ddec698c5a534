//! A process that forks after it opened a device: parent and child each go on by themselves.
//!
//! Alone in its binary: a child has only the thread that forked.

mod support;

use ferroce::*;
use support::{connect, open, pattern, side};

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
}

#[test]
fn both_go_on() {
    let context = open(&Options::default());
    write_and_check(&context, 1);
    // SAFETY: the child calls nothing that another thread of this process could have locked but what it opens anew,
    // and leaves by `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "a process can be forked");
    if child == 0 {
        let good =
            std::panic::catch_unwind(|| write_and_check(&open(&Options::default()), 2)).is_ok();
        // SAFETY: ends the process, at once.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    write_and_check(&context, 3);
    let mut status = -1;
    // SAFETY: waits for our own child, with a pointer to a local.
    let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!((ended, status), (child, 0), "the child did the same");
    write_and_check(&context, 4);
}
