//! The output of the tracer: the file, and the time, process and thread at the start of a line.

use std::env;
use std::ffi::CString;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::time::{Duration, SystemTime};

/// Environment variable: a file, or `1` for standard error.
const TRACE_VARIABLE: &str = "FERROCE_TRACE";
/// Environment variable: the process that started the program, `ferroce run`.
const RUN_VARIABLE: &str = "FERROCE_RUN";

/// The lowest number for the output descriptor, above those that programs close or count.
const MIN_DESCRIPTOR: i32 = 100;

static DESCRIPTOR: AtomicI32 = AtomicI32::new(-1);
/// The first thread that made a call.
static FIRST_THREAD: AtomicI32 = AtomicI32::new(0);
/// Whether there may be other threads or processes: lines then start with their ids.
static HAS_OTHERS: AtomicBool = AtomicBool::new(false);

/// Opens the output. Returns false if tracing is off.
pub(super) fn open() -> bool {
    // A set-user-ID program would write to a file of its caller's choice.
    // SAFETY: the call takes no pointers.
    if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
        return false;
    }
    let Some(place) = env::var_os(TRACE_VARIABLE).filter(|place| !place.is_empty() && place != "0")
    else {
        return false;
    };
    let found = if place == "1" {
        libc::STDERR_FILENO
    } else {
        // Append mode: each line is one write, after those of other processes.
        let Ok(path) = CString::new(place.as_bytes()) else { return false };
        let flags = libc::O_WRONLY | libc::O_CREAT | libc::O_APPEND | libc::O_CLOEXEC;
        // SAFETY: a NUL-terminated string.
        unsafe { libc::open(path.as_ptr(), flags, 0o600) }
    };
    // SAFETY: the calls take no pointers.
    let own = unsafe { libc::fcntl(found, libc::F_DUPFD_CLOEXEC, MIN_DESCRIPTOR) };
    if found > libc::STDERR_FILENO {
        // SAFETY: opened above.
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
    // A program started by a shell may run beside others with the same output.
    let run = env::var(RUN_VARIABLE).ok().and_then(|number| number.parse().ok());
    // SAFETY: the call takes no arguments.
    HAS_OTHERS.store(run != Some(unsafe { libc::getppid() }), Ordering::Relaxed);
    true
}

/// Starts a line with the time at which the call began, given by the monotonic clock, and the process and thread if
/// there may be several.
pub(super) fn begin(line: &mut String, started: u64) {
    line.clear();
    let age = ferroce::clock::now().saturating_sub(started);
    let now = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    time_of_day(line, now.saturating_sub(Duration::from_nanos(age)));
    // SAFETY: the call takes no arguments. The id is read each time: a forked child has another.
    let thread = unsafe { libc::gettid() };
    let first = FIRST_THREAD.compare_exchange(0, thread, Ordering::Relaxed, Ordering::Relaxed);
    if first.is_err_and(|first| first != thread) {
        HAS_OTHERS.store(true, Ordering::Relaxed);
    }
    if HAS_OTHERS.load(Ordering::Relaxed) {
        // SAFETY: the call takes no arguments.
        let process = unsafe { libc::getpid() };
        let _ = match process == thread {
            true => write!(line, "[{process}] "),
            false => write!(line, "[{process}/{thread}] "),
        };
    }
}

/// Writes the time of day in UTC, as captures and `ferroce decode` show it. Local time would need a lock of the C
/// library, which may be held in a forked child.
fn time_of_day(line: &mut String, since_epoch: Duration) {
    let (second, micros) = (since_epoch.as_secs() % 86_400, since_epoch.subsec_micros());
    let (hour, minute, second) = (second / 3_600, second / 60 % 60, second % 60);
    let _ = write!(line, "{hour:02}:{minute:02}:{second:02}.{micros:06} ");
}

/// Writes a line without buffering, so that the calls before a crash are in the file.
pub(super) fn end(line: &mut String) {
    line.push('\n');
    let mut rest = line.as_bytes();
    while !rest.is_empty() {
        // SAFETY: bytes of the line.
        let written = unsafe {
            libc::write(DESCRIPTOR.load(Ordering::Relaxed), rest.as_ptr().cast(), rest.len())
        };
        match usize::try_from(written) {
            Ok(count) if count > 0 => rest = &rest[count..],
            Err(_) if std::io::Error::last_os_error().raw_os_error() == Some(libc::EINTR) => {}
            // The pipe is closed or the disk is full: the program continues.
            _ => return,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_of_day_is_in_utc() {
        let mut line = String::new();
        // 2024-02-29 23:59:59.999999 UTC.
        time_of_day(&mut line, Duration::from_nanos(1_709_251_199_999_999_000));
        assert_eq!(line, "23:59:59.999999 ");
    }
}
