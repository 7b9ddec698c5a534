//! A kernel setting that is changed for one sample and restored afterwards.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// The limit of a socket's receive buffer for a process without CAP_NET_ADMIN. It is one for all network namespaces.
pub(crate) const RMEM_MAX: &str = "/proc/sys/net/core/rmem_max";

/// Settings to restore: path and value.
static CHANGED: Mutex<Vec<(PathBuf, String)>> = Mutex::new(Vec::new());

/// A changed setting. Dropping it restores the previous value.
#[derive(Debug)]
pub(crate) struct Changed {
    path: PathBuf,
}

impl Changed {
    /// Writes a value. The change is also undone by [`restore_all`], for a program that ends by a signal.
    pub(crate) fn set(path: &Path, value: &str) -> io::Result<Self> {
        let before = fs::read_to_string(path)?;
        let mut changed = lock();
        fs::write(path, value)?;
        changed.push((path.to_owned(), before));
        Ok(Self { path: path.to_owned() })
    }

    /// Whether the setting can be changed.
    pub(crate) fn is_permitted(path: &Path) -> bool {
        fs::read_to_string(path).and_then(|value| fs::write(path, value)).is_ok()
    }
}

impl Drop for Changed {
    fn drop(&mut self) {
        let mut changed = lock();
        if let Some(index) = changed.iter().rposition(|(path, _)| *path == self.path) {
            let (path, before) = changed.remove(index);
            write_back(&path, &before);
        }
    }
}

/// Restores all changed settings.
pub(crate) fn restore_all() {
    lock().drain(..).rev().for_each(|(path, before)| write_back(&path, &before));
}

fn lock() -> std::sync::MutexGuard<'static, Vec<(PathBuf, String)>> {
    CHANGED.lock().unwrap_or_else(PoisonError::into_inner)
}

fn write_back(path: &Path, before: &str) {
    if let Err(error) = fs::write(path, before) {
        let (path, before) = (path.display(), before.trim());
        eprintln!("ferroce-bench: cannot restore {path} to {before}: {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn setting(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("ferroce-{}-{name}", std::process::id()));
        fs::write(&path, "212992\n").unwrap();
        path
    }

    #[test]
    fn dropping_restores_the_value() {
        let path = setting("dropped");
        let changed = Changed::set(&path, "1").unwrap();
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
        drop(changed);
        assert_eq!(fs::read_to_string(&path).unwrap(), "212992\n");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_panic_restores_the_value() {
        let path = setting("panic");
        let inner = path.clone();
        let ended = std::thread::spawn(move || {
            let _changed = Changed::set(&inner, "1").unwrap();
            std::panic::resume_unwind(Box::new(()));
        });
        assert!(ended.join().is_err());
        assert_eq!(fs::read_to_string(&path).unwrap(), "212992\n");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn nested_changes_are_undone_in_reverse() {
        let path = setting("nested");
        let outer = Changed::set(&path, "1").unwrap();
        let inner = Changed::set(&path, "2").unwrap();
        drop(inner);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1");
        drop(outer);
        assert_eq!(fs::read_to_string(&path).unwrap(), "212992\n");
        fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_setting_that_is_missing_is_not_permitted() {
        assert!(!Changed::is_permitted(Path::new("/nonexistent")));
        assert!(Changed::set(Path::new("/nonexistent"), "1").is_err());
    }
}
