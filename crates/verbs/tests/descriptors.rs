//! Programs that close descriptors which are not their own.
//!
//! In its own binary, because it replaces sockets of its process.

mod support;

use std::fs::File;
use std::net::UdpSocket;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use ferroce::*;
use support::{Side, connect, gid_index, open, over_sockets, side};

fn port(fd: RawFd) -> Option<u16> {
    // SAFETY: it is used before anything in this process closes it.
    let fd = unsafe { BorrowedFd::borrow_raw(fd) };
    let socket = UdpSocket::from(fd.try_clone_to_owned().ok()?);
    Some(socket.local_addr().ok()?.port())
}

/// Replaces the UDP sockets for which `which` says so, by their port, with /dev/null. A program that redirects a descriptor
/// whose number it has miscalculated does that.
fn replace(which: impl Fn(u16) -> bool) {
    let null = File::open("/dev/null").unwrap();
    let sockets: Vec<_> = (3..256).filter(|&fd| port(fd).is_some_and(&which)).collect();
    assert!(!sockets.is_empty());
    for fd in sockets {
        // SAFETY: the device has to live with it; its sockets are only passed to system calls.
        assert_eq!(unsafe { libc::dup2(null.as_raw_fd(), fd) }, fd);
    }
}

fn pair(context: &Context) -> (Side, Side) {
    let service = ServiceType::ReliableConnection;
    let (one, other) = (side(context, service, 4096), side(context, service, 4096));
    connect(&one, &other, gid_index(context, false).unwrap(), 1024);
    (one, other)
}

fn expect_fatal(context: &Context) {
    let deadline = Instant::now() + Duration::from_secs(20);
    let event = context.wait_event(Some(deadline)).unwrap();
    assert_eq!(event.map(|event| event.kind), Some(EventKind::DeviceFatal));
}

/// Calls return after the device has failed, and its objects can be destroyed.
fn expect_calls_return(context: Context, (one, other): (Side, Side)) {
    assert!(one.completions.poll_one().is_none());
    let soon = Instant::now() + Duration::from_millis(5);
    assert!(one.completions.wait_until(soon).unwrap().is_none());
    drop((one, other, context));
}

#[test]
fn a_replaced_receive_socket_is_a_fatal_event() {
    let options = over_sockets();
    let context = open(&options);
    let pair = pair(&context);
    replace(|port| port == options.port);
    // A thread that sleeps waits for the socket that it found when it went to sleep, so the program's own poll notices.
    assert!(pair.0.completions.poll_one().is_none());
    expect_fatal(&context);
    let counted = context.statistics();
    assert!(counted.receive_failed > 0);
    assert_eq!(counted.receive_errno, libc::ENOTSOCK as u64);
    expect_calls_return(context, pair);
}

#[test]
fn a_replaced_send_socket_is_a_fatal_event() {
    let options = over_sockets();
    let context = open(&options);
    let pair = pair(&context);
    replace(|port| port != options.port && port != 0);
    pair.0.post(1, Operation::Write { remote: pair.1.region.remote(0), immediate: None }, 0, 64);
    expect_fatal(&context);
    let counted = context.statistics();
    assert!(counted.send_failed > 0);
    assert_eq!(counted.send_errno, libc::ENOTSOCK as u64);
    expect_calls_return(context, pair);
}
