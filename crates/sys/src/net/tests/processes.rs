//! Processes that end, watched by others.

use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, Stdio};

use super::{forking, wait};
use crate::{Interest, Poller, ProcessName, Processes, clock};

const CHILD: &str = "FERROCE_TEST_WATCHED";

fn name(address: &str, slot: u8) -> ProcessName {
    ProcessName { address: address.parse().unwrap(), port: 4791, slot }
}

/// The other process: says that it is up, and ends with its input. With a child of its own that outlives it, if asked.
#[test]
#[ignore = "a child process of another test"]
fn watched_process() {
    let Ok(wish) = std::env::var(CHILD) else { return };
    let (address, forks) = wish.split_once(' ').unwrap();
    let processes = Processes::new().unwrap();
    assert!(processes.announce(name(address, 3)));
    if forks == "forks" {
        // SAFETY: the child only waits, and is ended by the parent test through its process group.
        if unsafe { libc::fork() } == 0 {
            loop {
                // SAFETY: the call takes nothing.
                unsafe { libc::pause() };
            }
        }
    }
    println!("\nup");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

fn start(address: &str, forks: &str) -> Child {
    use std::os::unix::process::CommandExt;
    let mut command = Command::new(std::env::current_exe().unwrap());
    command
        .args(["--exact", "net::tests::processes::watched_process", "--ignored"])
        .args(["--nocapture", "--test-threads=1"])
        .env(CHILD, format!("{address} {forks}"))
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut child = forking(|| command.spawn()).unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "up"));
    child
}

fn readable(what: &impl AsFd) -> bool {
    let mut poller = Poller::new();
    poller.watch(what, Interest::Read);
    poller.wait(Some(clock::now())).unwrap() > 0
}

#[test]
fn the_end_of_a_process_is_an_event_however_it_ends() {
    for (index, signal) in [libc::SIGTERM, libc::SIGSEGV, libc::SIGKILL].into_iter().enumerate() {
        let address = format!("127.9.8.{}", index + 1);
        let processes = Processes::new().unwrap();
        let mut child = start(&address, "alone");
        assert!(processes.watch(name(&address, 3)));
        // Twice is once, and others do not exist.
        assert!(processes.watch(name(&address, 3)));
        assert!(!processes.watch(name(&address, 4)));
        assert!(processes.is_alive(name(&address, 3)) && !readable(&processes));
        // Rust's handler for stack overflows takes the first SIGSEGV and leaves the next to the kernel.
        let status = loop {
            crate::signal::send(child.id(), signal);
            if let Some(status) = child.try_wait().unwrap() {
                break status;
            }
            std::thread::yield_now();
        };
        assert_eq!(status.signal(), Some(signal));
        wait(&processes);
        assert_eq!(processes.take_ended(), [name(&address, 3)]);
        assert!(!processes.is_alive(name(&address, 3)) && !readable(&processes));
        assert!(!processes.watch(name(&address, 3)));
    }
}

#[test]
fn a_forked_child_does_not_hide_the_end_of_its_parent() {
    let address = "127.9.8.9";
    let processes = Processes::new().unwrap();
    let mut child = start(address, "forks");
    assert!(processes.watch(name(address, 3)));
    child.kill().unwrap();
    wait(&processes);
    assert_eq!(processes.take_ended(), [name(address, 3)]);
    assert!(!readable(&processes));
    child.wait().unwrap();
    // SAFETY: the call takes no pointers; the group is the child's own.
    unsafe { libc::kill(-(child.id() as i32), libc::SIGKILL) };
}

#[test]
fn watchers_come_and_go() {
    let watched = Processes::new().unwrap();
    assert!(watched.announce(name("127.9.8.10", 0)));
    // More than wait at a listener at once.
    for _ in 0..5000 {
        let watcher = Processes::new().unwrap();
        assert!(watcher.watch(name("127.9.8.10", 0)));
        assert_eq!(watched.take_ended(), []);
        drop(watcher);
        wait(&watched);
        assert_eq!(watched.take_ended(), []);
    }
    assert!(!readable(&watched));
}
