//! Where lines go, and whose they are.

use std::env;
use std::ffi::CString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, SystemTime};

/// A file, or `1` for the standard error output.
const WHERE: &str = "FERROCE_TRACE";
/// The process that started the program: `ferroce run`.
const RUN: &str = "FERROCE_RUN";

/// A descriptor of our own, out of the way of programs that close or count theirs.
const LEAST: i32 = 100;

static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// The first thread that called.
static FIRST: AtomicI32 = AtomicI32::new(0);
/// Whether there may be others beside it: lines say then whose they are.
static SEVERAL: AtomicBool = AtomicBool::new(false);

/// Finds out where lines go. False when nowhere.
pub(super) fn open() -> bool {
    // A set-user-ID program would write wherever its caller wants.
    // SAFETY: the call takes no pointers.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return false;
    }
    let Some(place) = env::var_os(WHERE).filter(|place| !place.is_empty() && place != "0") else {
        return false;
    };
    let found = if place == "1" {
        libc::STDERR_FILENO
    } else {
        // Behind what others write meanwhile: each line is one write.
        let Ok(path) = CString::new(place.as_bytes()) else { return false };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: a text that ends.
        unsafe { libc::open(path.as_ptr(), flags, 0o600) }
    };
    // SAFETY: the calls take no pointers.
    let own = unsafe { libc::fcntl(found, libc::F_DUPFD_CLOEXEC, LEAST) };
    if found > libc::STDERR_FILENO {
        // SAFETY: it was opened here.
        unsafe { libc::close(found) };
    }
    if own < 0 {
        let error = std::io::Error::last_os_error();
        eprintln!(
            "ferroce: {}: cannot write the trace: {error}",
            std::path::Path::new(&place).display()
        );
        return false;
    }
    DESCRIPTOR.store(own, Ordering::Relaxed);
    // A program that a shell started may have others beside it that write to the same place.
    let run = env::var(RUN).ok().and_then(|number| number.parse().ok());
    // SAFETY: the call takes nothing.
    SEVERAL.store(run != Some(unsafe { libc::getppid() }), Ordering::Relaxed);
    true
}

/// Starts a line: when the call began, given by the monotonic clock, and whose it is when there are several threads or
/// processes.
pub(super) fn begin(line: &mut String, started: u64) {
    line.clear();
    let age = ferroce::clock::now().saturating_sub(started);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    time_of_day(line, now.saturating_sub(Duration::from_nanos(age)));
    // SAFETY: the call takes nothing. Asked each time, for a process that forks has another.
    let thread = unsafe { libc::gettid() };
    let first = FIRST.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first| first != thread) {
        SEVERAL.store(true, Ordering::Relaxed);
    }
    if SEVERAL.load(Ordering::Relaxed) {
        // SAFETY: the call takes nothing.
        let process = unsafe { libc::getpid() };
        let _ = match process == thread {
            true => write!(line, "[{process}] "),
            false => write!(line, "[{process}/{thread}] "),
        };
    }
}

/// The time of day in UTC, as captures and `ferroce decode` have it: local time would take the C library's lock, which a
/// forked child may find taken.
fn time_of_day(line: &mut String, since_epoch: Duration) {
    let (second, micros) = (since_epoch.as_secs() % 86_400, since_epoch.subsec_micros());
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let _ = write!(line, "{hour:02}:{minute:02}:{second:02}.{micros:06} ");
}

/// Writes a line, at once: what a program did before it crashed is what one wants to see.
pub(super) fn end(line: &mut String) {
    line.push('\n');
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: these bytes are ours.
        let written = unsafe {
            libc::write(DESCRIPTOR.load(Ordering::Relaxed), rest.as_ptr().cast(), rest.len())
        };
        match usize::try_from(written) {
            Ok(count) if count > 0 => rest = &rest[count..],
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            // Nobody reads it, or the disk is full: the program goes on.
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_that_of_captures() {
        let mut line = String::new();
        // 2024-02-29 23:59:59.999999 UTC.
        time_of_day(&mut line, Duration::from_nanos(1_709_251_199_999_999_000));
        assert_eq!(line, "23:59:59.999999 ");
    }
}
