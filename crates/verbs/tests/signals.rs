//! The threads of the library block signals, which are for the program's threads.
//!
//! In its own binary, because it forks and inspects all threads of its process.

mod support;

use ferroce::*;
use ferroce_sys::signal::without_file_size_signal;
use support::{connect, open, options, side};

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
    let options = Options { capture: Some(capture.clone()), ..options() };
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
        assert_eq!(in_child(|| waits_for_sigterm(block_first)), 0, "the child was not killed");
    }
}

/// Runs this in a child and returns the status with which it ended: 0 if there was no panic.
fn in_child(body: impl FnOnce()) -> i32 {
    // SAFETY: the child has one thread, opens its own device, and ends with `_exit`.
    let child = unsafe { libc::fork() };
    assert!(child >= 0, "fork failed");
    if child == 0 {
        let good = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body)).is_ok();
        // SAFETY: ends the process.
        unsafe { libc::_exit(i32::from(!good)) };
    }
    let mut status = -1;
    // SAFETY: waits for our own child, with a pointer to a local.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    status
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

fn set_file_size_limit(bytes: libc::rlim_t) {
    let limit = libc::rlimit { rlim_cur: bytes, rlim_max: bytes };
    // SAFETY: a pointer to a local.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_FSIZE, &raw const limit) }, 0);
}

fn write_to_itself() {
    let context = open(&options());
    let [one, other] = [(); 2].map(|()| side(&context, ServiceType::ReliableConnection, 64));
    connect(&one, &other, 0, 1024);
    one.post(1, Operation::Write { remote: other.region.remote(0), immediate: None }, 0, 64);
    one.expect(1);
}

/// `ulimit -f` also limits the memory that a device shares with other processes. It goes without.
#[test]
fn a_file_size_limit_does_not_end_the_program() {
    let good = in_child(|| {
        set_file_size_limit(0);
        write_to_itself();
    });
    assert_eq!(good, 0, "nothing can be shared");
    let good = in_child(|| {
        // Enough for the counters, but not for a ring.
        set_file_size_limit(256 << 10);
        write_to_itself();
    });
    assert_eq!(good, 0, "there are no rings");
    let good = in_child(a_signal_of_the_program_stays_pending);
    assert_eq!(good, 0);
}

fn a_signal_of_the_program_stays_pending() {
    // SAFETY: a set of signals is numbers, and the calls are given locals.
    let is_pending = || unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigpending(&raw mut set);
        libc::sigismember(&raw const set, libc::SIGXFSZ) == 1
    };
    // SAFETY: as above.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&raw mut set);
        libc::sigaddset(&raw mut set, libc::SIGXFSZ);
        libc::pthread_sigmask(libc::SIG_BLOCK, &raw const set, std::ptr::null_mut());
    }
    // SAFETY: a name that ends with a zero, and a new descriptor, which this process never closes.
    let fd = unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) };
    let grow = || {
        without_file_size_signal(|| {
            // SAFETY: the call takes no pointers.
            match unsafe { libc::ftruncate(fd, 4096) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        })
    };
    set_file_size_limit(0);
    let error = grow().unwrap_err();
    assert_eq!((error.raw_os_error(), is_pending()), (Some(libc::EFBIG), false));
    // SAFETY: the call takes no pointers.
    unsafe { libc::raise(libc::SIGXFSZ) };
    assert!(grow().is_err() && is_pending());
}
