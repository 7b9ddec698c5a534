//! A forked child does not keep sockets of its parent.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::Mutex;

use super::{at, forking, is_quiet, open, open_slot, send, wait};
use crate::{ForkMutex, Options, Service};

const ADDRESS: &str = "127.9.9.1:4791";
const SERVICE: u64 = 0x0000_0000_0106_9999;
/// Set in the process that the test starts.
const ROLE: &str = "FERROCE_NET_FORKS";

/// Not a test: a process with device sockets that forks a child, which never calls exec. Both wait for the end of standard
/// input.
#[test]
#[ignore = "a child process of another test"]
fn forking_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let (slot, socket) = open_slot(at(ADDRESS), &Options::default());
    let _service = Service::claim(at(ADDRESS), SERVICE, slot.number()).unwrap();
    let (mut ready, inform) = std::io::pipe().unwrap();
    // SAFETY: the child makes system calls only, and ends without cleaning up.
    match unsafe { libc::fork() } {
        0 => {
            // The descriptors are still open, but receive nothing.
            let quiet = is_quiet(&socket) && is_quiet(&slot);
            let byte = [u8::from(quiet)];
            // SAFETY: one byte of a local is written; the buffer for reading is a local, too.
            unsafe {
                libc::write(inform.as_raw_fd(), byte.as_ptr().cast(), 1);
                libc::read(0, [0_u8; 1].as_mut_ptr().cast(), 1);
                libc::_exit(0)
            }
        }
        child => assert!(child > 0),
    }
    let mut byte = [0];
    ready.read_exact(&mut byte).unwrap();
    assert_eq!(byte, [1]);
    // The parent is not affected.
    send(&open("127.9.9.1"), at(ADDRESS), &[4, 0, 0xff, 0xff, 0, slot.number(), 0, 9]);
    wait(&socket);
    println!("\nforked");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn start() -> (Child, BufReader<ChildStdout>) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args([
            "--exact",
            "net::tests::forks::forking_process",
            "--ignored",
            "--nocapture",
            "--test-threads=1",
        ])
        .env(ROLE, "1")
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut process = forking(|| command.spawn()).unwrap();
    let mut output = BufReader::new(process.stdout.take().unwrap());
    let mut line = String::new();
    while line.trim() != "forked" {
        line.clear();
        assert!(output.read_line(&mut line).unwrap() > 0, "the process ended early");
    }
    (process, output)
}

#[test]
fn a_child_keeps_no_sockets_of_its_dead_parent() {
    let (mut parent, mut output) = start();
    // The child runs until this is closed.
    let input = parent.stdin.take().unwrap();
    parent.kill().unwrap();
    parent.wait().unwrap();
    // The slot, the service and the index in the list of sockets are free.
    let (slot, socket) = open_slot(at(ADDRESS), &Options::default());
    assert_eq!(slot.number(), 0);
    Service::claim(at(ADDRESS), SERVICE, slot.number()).unwrap();
    send(&open("127.9.9.1"), at(ADDRESS), &[4, 0, 0xff, 0xff, 0, slot.number(), 0, 9]);
    wait(&socket);
    drop(input);
    // The child has the pipe open until it ends.
    output.read_to_end(&mut Vec::new()).unwrap();
}

/// Another thread of the parent holds the mutex while it forks.
#[test]
fn a_child_does_not_wait_for_a_thread_of_its_parent() {
    static VALUE: ForkMutex<u32> = ForkMutex::new([const { Mutex::new(0) }; 16]);
    // From here on forks are counted.
    let _socket = open("127.9.9.2");
    let held = VALUE.lock();
    let (mut done, inform) = std::io::pipe().unwrap();
    let child = forking(|| {
        // SAFETY: the child makes system calls only, and ends without cleaning up.
        match unsafe { libc::fork() } {
            0 => {
                *VALUE.lock() += 1;
                // SAFETY: one byte of a local is written.
                unsafe {
                    libc::write(inform.as_raw_fd(), [1_u8].as_ptr().cast(), 1);
                    libc::_exit(0)
                }
            }
            child => child,
        }
    });
    assert!(child > 0);
    let mut byte = [0];
    done.read_exact(&mut byte).unwrap();
    assert_eq!((byte, *held), ([1], 0));
    // SAFETY: a child of this process.
    unsafe { libc::waitpid(child, std::ptr::null_mut(), 0) };
}
