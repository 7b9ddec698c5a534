//! Watching other processes for their end.

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

/// Not a test: the watched process. It prints a line when it is announced, and ends with its input. On request it forks a
/// child that outlives it.
#[test]
#[ignore = "a child process of another test"]
fn watched_process() {
    let Ok(arguments) = std::env::var(CHILD) else { return };
    let (address, forks) = arguments.split_once(' ').unwrap();
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
fn reports_the_end_of_a_process_whatever_the_cause() {
    for (index, signal) in [libc::SIGTERM, libc::SIGSEGV, libc::SIGKILL].into_iter().enumerate() {
        let address = format!("127.9.8.{}", index + 1);
        let processes = Processes::new().unwrap();
        let mut child = start(&address, "alone");
        assert!(processes.watch(name(&address, 3)));
        // Watching twice is idempotent; other slots do not exist.
        assert!(processes.watch(name(&address, 3)));
        assert!(!processes.watch(name(&address, 4)));
        assert!(processes.is_alive(name(&address, 3)) && !readable(&processes));
        // Rust's stack overflow handler consumes the first SIGSEGV and restores the default for the next.
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
fn accepts_and_drops_many_watchers() {
    let watched = Processes::new().unwrap();
    assert!(watched.announce(name("127.9.8.10", 0)));
    // More than the backlog of a listener.
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
