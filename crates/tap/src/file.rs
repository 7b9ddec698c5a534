//! The capture files of this process.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use ferroce_sys::{clock, signal};
use ferroce_trace::file::WriteError;

use super::queue::Shared;
use super::writer::{Output, Writer};
use crate::capture::{CapturePolicy, CaptureStatus, Interface};
use crate::sync::lock;

/// A capture file that this process has, or had, open.
#[derive(Debug, Default)]
struct OpenFile {
    process: u32,
    path: PathBuf,
    users: usize,
    interfaces: u32,
    /// The file holds packets of this process, or nothing.
    begun: bool,
    open: Option<(Arc<Shared>, JoinHandle<()>)>,
    /// The status of earlier openings.
    before: CaptureStatus,
}

static KNOWN: Mutex<Vec<OpenFile>> = Mutex::new(Vec::new());

/// Replaces `%p` in a file name by the process ID.
pub(super) fn expanded(path: &Path, process: u32) -> PathBuf {
    match path.to_str() {
        Some(text) if text.contains("%p") => text.replace("%p", &process.to_string()).into(),
        _ => path.to_owned(),
    }
}

/// Opens a file, or joins the devices that already write it, and returns the interface's number in it. A file that this
/// process wrote and closed before is continued with a new section.
pub(super) fn open(
    path: &Path,
    interface: Interface,
    sources: impl Iterator<Item = SocketAddr>,
    policy: CapturePolicy,
) -> io::Result<(Arc<Shared>, u32)> {
    let process = std::process::id();
    let mut known = lock(&KNOWN);
    let index = known.iter().position(|one| one.path == path).unwrap_or_else(|| {
        known.push(OpenFile { process, path: path.to_owned(), ..OpenFile::default() });
        known.len() - 1
    });
    let entry = &mut known[index];
    if entry.process != process {
        let reason = "the process that this one was forked from writes it: put %p into its name";
        return Err(io::Error::other(reason));
    }
    let shared = match &entry.open {
        Some((shared, _)) => {
            shared.add_interface(interface);
            Arc::clone(shared)
        }
        None => {
            let output = match entry.begun {
                true => Output::append(path)?,
                false => Output::create(path)?,
            };
            entry.begun = output.replaces.is_none();
            let writer = Writer::new(output, &interface).map_err(|error| match error {
                WriteError::Io(error) => error,
                other => io::Error::other(other.to_string()),
            })?;
            let shared = Arc::new(Shared::new(policy));
            let worker = Arc::clone(&shared);
            let thread = std::thread::Builder::new().name("ferroce-capture".into());
            let thread = signal::with_signals_blocked(|| thread.spawn(move || worker.run(writer)))?;
            entry.interfaces = 0;
            entry.open = Some((Arc::clone(&shared), thread));
            shared
        }
    };
    sources.for_each(|source| shared.sources.set(source, true));
    let number = entry.interfaces;
    entry.interfaces += 1;
    entry.users += 1;
    Ok((shared, number))
}

/// Closes a device's use of a file. The last one waits until everything is written.
pub(super) fn release(shared: &Arc<Shared>) {
    let mut known = lock(&KNOWN);
    let process = std::process::id();
    let is_this = |one: &&mut OpenFile| {
        one.process == process
            && one.open.as_ref().is_some_and(|(open, _)| Arc::ptr_eq(open, shared))
    };
    let Some(entry) = known.iter_mut().find(is_this) else { return };
    entry.users -= 1;
    if entry.users > 0 {
        return;
    }
    if let Some((shared, thread)) = entry.open.take() {
        shared.close();
        let _ = thread.join();
        let status = shared.status();
        entry.begun |= status.written > 0;
        entry.before = std::mem::take(&mut entry.before).and(status);
    }
}

/// Finishes all captures before the process exits, until a deadline in nanoseconds of the monotonic clock. A process that exits
/// in the middle of a call may hold any of these locks forever.
pub fn finish_all(until: u64) {
    let process = std::process::id();
    let mut open: Vec<Arc<Shared>> = Vec::new();
    let _ = retry_until(until, || {
        let known = KNOWN.try_lock().ok()?;
        let ours = known.iter().filter(|one| one.process == process);
        open.extend(ours.filter_map(|one| Some(Arc::clone(&one.open.as_ref()?.0))));
        Some(())
    });
    for shared in &open {
        let closed = retry_until(until, || shared.try_close());
        let _ = closed.and_then(|()| retry_until(until, || shared.has_ended().then_some(())));
    }
}

/// Retries until there is a result or the deadline has passed.
fn retry_until<T>(until: u64, mut attempt: impl FnMut() -> Option<T>) -> Option<T> {
    loop {
        let found = attempt();
        if found.is_some() || clock::now() > until {
            return found;
        }
        std::thread::yield_now();
    }
}

/// The captures of this process: each file with its status. For programs about to exit, and for preloaded libraries;
/// other callers ask the context.
pub fn captures() -> Vec<(PathBuf, CaptureStatus)> {
    let process = std::process::id();
    let Ok(known) = KNOWN.try_lock() else { return Vec::new() };
    let ours = known.iter().filter(|one| one.process == process);
    let status = |one: &OpenFile| match &one.open {
        Some((shared, _)) => one.before.clone().and(shared.status()),
        None => one.before.clone(),
    };
    ours.map(|one| (one.path.clone(), status(one))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs::File;

    use ferroce_sys::file_lock;

    use super::*;

    #[test]
    fn a_name_can_have_the_process_in_it() {
        assert_eq!(expanded(Path::new("/a/%p-b.pcapng"), 42), Path::new("/a/42-b.pcapng"));
        assert_eq!(expanded(Path::new("/a/b"), 42), Path::new("/a/b"));
    }

    fn interface() -> Interface {
        Interface { name: "ferroce_lo".into(), network: "lo".into(), mac: None }
    }

    #[test]
    fn a_file_that_cannot_be_is_an_error_at_once() {
        let interface = interface();
        let path = Path::new("/nowhere/at/all.pcapng");
        let error =
            open(path, interface.clone(), std::iter::empty(), CapturePolicy::Block).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::NotFound);
        // A device that accepts no bytes, if the system has it.
        if Path::new("/dev/full").exists() {
            open(Path::new("/dev/full"), interface, std::iter::empty(), CapturePolicy::Block)
                .unwrap_err();
        }
    }

    #[test]
    fn a_file_has_one_writer() {
        let path = std::env::temp_dir().join(format!("ferroce-writer-{}", std::process::id()));
        std::fs::write(&path, "another's packets").unwrap();
        let other = File::open(&path).unwrap();
        assert!(file_lock::try_lock_exclusive(&other).unwrap());
        let interface = interface();
        let error =
            open(&path, interface.clone(), std::iter::empty(), CapturePolicy::Block).unwrap_err();
        assert!(error.to_string().contains("put %p into its name"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"another's packets");
        drop(other);
        // A capture without packets does not replace the existing file.
        let (shared, _) =
            open(&path, interface.clone(), std::iter::empty(), CapturePolicy::Block).unwrap();
        let temporary = PathBuf::from(format!("{}.partial", path.display()));
        assert!(temporary.exists());
        release(&shared);
        assert_eq!(std::fs::read(&path).unwrap(), b"another's packets");
        assert!(!temporary.exists());
        // The first packet replaces it.
        let (shared, _) = open(&path, interface, std::iter::empty(), CapturePolicy::Block).unwrap();
        shared.push(0, &super::super::queue::tests::metadata(), &[0; 20]);
        shared.flush();
        assert_ne!(std::fs::read(&path).unwrap(), b"another's packets");
        assert!(!temporary.exists());
        // The file is still private to its owner.
        let other = File::open(&path).unwrap();
        assert!(!file_lock::try_lock_exclusive(&other).unwrap());
        release(&shared);
        std::fs::remove_file(path).unwrap();
    }
}
