//! The counters of all processes under one `ferroce run`, in the files where Linux drivers show them:
//! `ports/1/hw_counters` of the device.
//!
//! Each process adds its new counts soon after a counter changed, and when the device closes. Outside of `ferroce run`
//! these files do not exist and nothing is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferroce_device::tuning::counters::LIFESPAN;
use ferroce_sys::{environment, file_lock};

use super::counters::Statistics;

/// The counts that one process has added to the files of one device.
#[derive(Debug)]
pub(crate) struct HwCounters {
    folder: PathBuf,
    added: Vec<u64>,
    /// The earliest time of the next update.
    due: u64,
}

impl HwCounters {
    /// The files of this device in the view that `ferroce run` made; `None` without one.
    pub(crate) fn of(device: &str) -> Option<Self> {
        // The environment chooses the file that is written, so a privileged program ignores it.
        let view = std::env::var_os("FERROCE_VIEW").filter(|_| !environment::is_privileged())?;
        Self::below(Path::new(&view), device)
    }

    fn below(view: &Path, device: &str) -> Option<Self> {
        let folder = view.join("sys/class/infiniband").join(device).join("ports/1/hw_counters");
        let added = Statistics::default().hw_counters().map(|(_, count)| count).collect();
        folder.is_dir().then_some(Self { folder, added, due: 0 })
    }

    /// Adds new counts if an update is due. Returns when to call again if there may be more by then.
    pub(crate) fn publish(&mut self, count: impl FnOnce() -> Statistics, now: u64) -> Option<u64> {
        if now < self.due {
            return Some(self.due);
        }
        self.due = now + LIFESPAN;
        (!self.add(&count())).then_some(self.due)
    }

    /// Adds the final counts.
    pub(crate) fn finish(&mut self, counted: &Statistics) {
        // Another process holds a file only for two system calls.
        for _ in 0..1000 {
            if self.add(counted) {
                return;
            }
            std::thread::yield_now();
        }
    }

    /// Adds new counts. Returns whether none are left.
    fn add(&mut self, counted: &Statistics) -> bool {
        let mut is_complete = true;
        for ((name, count), added) in counted.hw_counters().zip(&mut self.added) {
            if count <= *added {
                continue;
            }
            // A missing file counts as updated.
            if add_to(&self.folder.join(name), count - *added).unwrap_or(true) {
                *added = count;
            } else {
                is_complete = false;
            }
        }
        is_complete
    }
}

/// Adds to the number in a file. Returns false if another process holds the lock.
fn add_to(path: &Path, more: u64) -> io::Result<bool> {
    let mut file: File = OpenOptions::new().read(true).write(true).open(path)?;
    if !file_lock::try_lock_exclusive(&file)? {
        return Ok(false);
    }
    let mut text = String::new();
    file.read_to_string(&mut text)?;
    let sum = text.trim().parse::<u64>().unwrap_or(0).wrapping_add(more);
    // Not truncated first, so that a reader never finds it empty. The number never gets shorter.
    file.write_all_at(format!("{sum}\n").as_bytes(), 0)?;
    Ok(true)
}

#[cfg(test)]
mod tests;
