//! A private folder that is removed when its owner ends.
//!
//! Its name contains the process ID and start time of its owner, because process IDs are reused. Creating a folder
//! removes those whose owners have ended, so a killed process leaves its folder only for a while.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

const PREFIX: &str = "ferroce-view-";

/// The file that lists the processes that need the folder, other than its owner.
const USERS: &str = "users";

/// A process, identified uniquely on this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// Its PID namespace, in which its ID is valid: other namespaces may share the folder for temporary files.
    namespace: u64,
    number: u32,
    started: u64,
}

impl Owner {
    pub(super) fn this_process() -> Self {
        Self::process(std::process::id())
    }

    /// The leader of our session, usually the shell of a terminal. Our parent is not suitable: it may be a short-lived
    /// process of a command substitution.
    pub(super) fn session() -> Self {
        // A session started outside of our namespace has no ID in it; it is treated as old as the first process.
        let number = stat("self", 6).and_then(|number| u32::try_from(number).ok());
        Self::process(number.filter(|number| *number != 0).unwrap_or(1))
    }

    fn process(number: u32) -> Self {
        let namespace = fs::metadata("/proc/self/ns/pid").map_or(0, |found| found.ino());
        Self { namespace, number, started: stat(&number.to_string(), 22).unwrap_or(0) }
    }

    /// Whether it runs. A zombie does not.
    fn is_alive(self) -> bool {
        let process = self.number.to_string();
        stat(&process, 22) == Some(self.started)
            && !matches!(field(&process, 3).as_deref(), Some("Z" | "X"))
    }

    fn name(self, attempt: u32) -> String {
        format!("{PREFIX}{}-{}-{}-{attempt}", self.namespace, self.number, self.started)
    }

    fn from_name(name: &str) -> Option<Self> {
        let mut parts = name.strip_prefix(PREFIX)?.split('-');
        let namespace = parts.next()?.parse().ok()?;
        let number = parts.next()?.parse().ok()?;
        let started = parts.next()?.parse().ok()?;
        parts.next()?.parse::<u32>().ok()?;
        parts.next().is_none().then_some(Self { namespace, number, started })
    }
}

/// A numeric field of /proc/PID/stat.
fn stat(process: &str, number: usize) -> Option<u64> {
    field(process, number)?.parse().ok()
}

/// A field of /proc/PID/stat (proc_pid_stat(5), in which the first field is 1).
fn field(process: &str, number: usize) -> Option<String> {
    let line = fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field is a name in parentheses and may contain anything.
    let (_, rest) = line.rsplit_once(')')?;
    rest.split_whitespace().nth(number.checked_sub(3)?).map(str::to_owned)
}

/// A private folder, removed when dropped.
#[derive(Debug)]
pub(super) struct Folder {
    path: PathBuf,
    stays: std::cell::Cell<bool>,
}

impl Folder {
    pub(super) fn new(owner: &Owner) -> io::Result<Self> {
        let parent = parent();
        sweep(&parent);
        for attempt in 0..1000 {
            let path = parent.join(owner.name(attempt));
            // Fails if it exists, so nobody can have prepared it.
            match DirBuilder::new().mode(0o700).create(&path) {
                Ok(()) => return Ok(Self { path, stays: false.into() }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    return Err(io::Error::new(
                        error.kind(),
                        format!("{}: {error}", path.display()),
                    ));
                }
            }
        }
        Err(io::Error::other(format!(
            "{} already holds too many of these folders",
            parent.display()
        )))
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    pub(super) fn stay(&self) {
        self.stays.set(true);
    }

    pub(super) fn is_used_by(&self, process: u32) {
        // Without it, the folder may be removed too early if we are killed.
        let _ = fs::write(self.path.join(USERS), Owner::process(process).name(0));
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        if !self.stays.get() {
            // What remains is removed with the next folder.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// The parent folder: the user's runtime folder, or the one for temporary files.
fn parent() -> PathBuf {
    let ours = |path: &PathBuf| {
        // With `sudo`, this may belong to another user.
        path.is_absolute() && fs::metadata(path).ok().map(|found| found.uid()) == user()
    };
    let runtime = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from).filter(ours);
    // An absolute path, for programs that change their working directory.
    let temporary = || std::path::absolute(std::env::temp_dir()).unwrap_or("/tmp".into());
    runtime.unwrap_or_else(temporary)
}

/// Our user ID: the owner of our entry in /proc.
fn user() -> Option<u32> {
    fs::metadata("/proc/self").ok().map(|found| found.uid())
}

/// Removes our folders whose owners have ended.
fn sweep(parent: &Path) {
    let here = Owner::this_process().namespace;
    let user = user();
    for entry in fs::read_dir(parent).into_iter().flatten().flatten() {
        let owner = entry.file_name().to_str().and_then(Owner::from_name);
        if !owner.is_some_and(|owner| owner.namespace == here && !owner.is_alive()) {
            continue;
        }
        // Links are not followed: the entry itself must be a folder and belong to us.
        let Ok(found) = entry.metadata() else { continue };
        let users = fs::read_to_string(entry.path().join(USERS)).unwrap_or_default();
        let used = Owner::from_name(&users).is_some_and(Owner::is_alive);
        if found.is_dir() && Some(found.uid()) == user && !used {
            let _ = fs::remove_dir_all(entry.path());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_name_identifies_its_owner() {
        let owner = Owner { namespace: 4_026_531_836, number: 17, started: 990 };
        assert_eq!(owner.name(3), "ferroce-view-4026531836-17-990-3");
        assert_eq!(Owner::from_name(&owner.name(3)), Some(owner));
        for other in ["ferroce-view-1-2-3", "ferroce-view-1-2-3-4-5", "ferroce-view-a-2-3-4", "x"] {
            assert_eq!(Owner::from_name(other), None, "{other}");
        }
    }

    #[test]
    fn a_process_with_another_start_time_is_not_alive() {
        let owner = Owner::this_process();
        assert!(owner.started > 0 && owner.is_alive());
        assert!(!Owner { started: owner.started + 1, ..owner }.is_alive());
        assert!(Owner::session().is_alive());
    }
}
