//! The threads of the library block signals, which are for the program's threads.
//!
//! In its own binary, because it forks and inspects all threads of its process.

mod support;

use support::{open, options};

/// The threads of this process with their names and the signals that they block, as bits.
fn threads() -> Vec<(String, u64)> {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        let text = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name)).unwrap();
            line.trim().to_owned()
        };
        (field("Name:"), u64::from_str_radix(&field("SigBlk:"), 16).unwrap())
    };
    tasks.map(status).collect()
}

fn is_blocked(mask: u64, signal: i32) -> bool {
    mask >> (signal - 1) & 1 == 1
}

#[test]
fn device_threads_block_signals() {
    let folder = std::env::temp_dir();
    let capture = folder.join(format!("ferroce-signals-{}.pcapng", std::process::id()));
    let options = options().with_capture(capture.clone());
    let context = open(&options);
    for name in ["ferroce_lo", "ferroce-capture"] {
        // A thread sets its name when it starts.
        let mask = loop {
            if let Some((_, mask)) = threads().into_iter().find(|(found, _)| found == name) {
                break mask;
            }
            std::thread::yield_now();
        };
        for signal in [libc::SIGTERM, libc::SIGINT, libc::SIGCHLD, libc::SIGUSR1, libc::SIGALRM] {
            assert!(is_blocked(mask, signal), "{name} takes signal {signal}");
        }
        // Signals of faults must reach a handler.
        for signal in [libc::SIGSEGV, libc::SIGBUS] {
            assert!(!is_blocked(mask, signal), "{name} blocks signal {signal}");
        }
    }
    drop(context);
    std::fs::remove_file(capture).unwrap();

    // A program may block SIGTERM before or after it opens a device, and wait for it.
    for block_first in [true, false] {
        // SAFETY: the child has one thread, opens its own device, and ends with `_exit`.
        let child = unsafe { libc::fork() };
        assert!(child >= 0, "fork failed");
        if child == 0 {
            let good = std::panic::catch_unwind(|| waits_for_sigterm(block_first)).is_ok();
            // SAFETY: ends the process.
            unsafe { libc::_exit(i32::from(!good)) };
        }
        let mut status = -1;
        // SAFETY: waits for our own child, with a pointer to a local.
        let ended = unsafe { libc::waitpid(child, &raw mut status, 0) };
        assert_eq!((ended, status), (child, 0), "the child was not killed");
    }
}

fn waits_for_sigterm(block_first: bool) {
    // SAFETY: a set of signals is numbers, and the calls are given locals.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    let block = |set: &mut libc::sigset_t| {
        // SAFETY: as above.
        unsafe {
            libc::sigemptyset(set);
            libc::sigaddset(set, libc::SIGTERM);
            libc::pthread_sigmask(libc::SIG_BLOCK, set, std::ptr::null_mut());
        }
    };
    if block_first {
        block(&mut set);
    }
    let _context = open(&options());
    block(&mut set);
    // SAFETY: the call takes no pointers.
    assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGTERM) }, 0);
    let mut number = 0;
    // SAFETY: pointers to locals.
    assert_eq!(unsafe { libc::sigwait(&raw const set, &raw mut number) }, 0);
    assert_eq!(number, libc::SIGTERM);
}
