//! The counters of all processes under one `ferroce run`, in the files where Linux drivers show them:
//! `ports/1/hw_counters` of the device.
//!
//! Each process adds its new counts soon after a counter changed, and when the device closes. Outside of `ferroce run`
//! these files do not exist and nothing is written.

use std::fs::{File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferroce_sys::{environment, file_lock};

use super::counters::Statistics;
use crate::tuning::counters::LIFESPAN;

/// The counts that one process has added to the files of one device.
#[derive(Debug)]
pub(crate) struct HwCounters {
    folder: PathBuf,
    added: Statistics,
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
        folder.is_dir().then(|| Self { folder, added: Statistics::default(), due: 0 })
    }

    /// Adds new counts if an update is due. Returns when to call again if there may be more by then.
    pub(crate) fn publish(&mut self, count: impl FnOnce() -> Statistics, now: u64) -> Option<u64> {
        if now < self.due {
            return Some(self.due);
        }
        self.due = now + LIFESPAN;
        self.update(&count()).then_some(self.due)
    }

    /// Adds new counts. Returns whether some are left.
    fn update(&mut self, counted: &Statistics) -> bool {
        if self.is_current(counted) {
            return false;
        }
        self.add(counted);
        !self.is_current(counted)
    }

    /// Adds the final counts.
    pub(crate) fn finish(&mut self, counted: &Statistics) {
        // Another process holds a file only for two system calls.
        for _ in 0..1000 {
            self.add(counted);
            if self.is_current(counted) {
                return;
            }
            std::thread::yield_now();
        }
    }

    fn is_current(&self, counted: &Statistics) -> bool {
        counted.hw_counters().eq(self.added.hw_counters())
    }

    fn add(&mut self, counted: &Statistics) {
        let more: Vec<_> = counted.hw_counters().zip(self.added.hw_counters()).collect();
        for ((name, count), (_, added)) in more {
            // A missing file counts as updated.
            let result = if count > added {
                add_to(&self.folder.join(name), count - added).unwrap_or(true)
            } else {
                true
            };
            if result {
                self.added.set(name, count);
            }
        }
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
mod tests {
    use std::fs;

    use super::*;

    struct View(PathBuf);

    impl View {
        fn new(name: &str) -> Self {
            let name = format!("ferroce-hw-counters-{}-{name}", std::process::id());
            let view = Self(std::env::temp_dir().join(name));
            fs::create_dir_all(view.folder()).unwrap();
            for (name, _) in Statistics::default().hw_counters() {
                fs::write(view.folder().join(name), "0\n").unwrap();
            }
            view
        }

        fn folder(&self) -> PathBuf {
            self.0.join("sys/class/infiniband/ferroce_lo/ports/1/hw_counters")
        }

        fn open(&self) -> HwCounters {
            HwCounters::below(&self.0, "ferroce_lo").unwrap()
        }

        fn read(&self, name: &str) -> String {
            fs::read_to_string(self.folder().join(name)).unwrap()
        }
    }

    impl Drop for View {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn processes_add_up() {
        let view = View::new("sum");
        let (mut one, mut other) = (view.open(), view.open());
        let mut counted = Statistics { duplicate_request: 9, ..Statistics::default() };
        assert_eq!(one.publish(|| counted, 100), None);
        assert_eq!(other.publish(|| counted, 100), None);
        assert_eq!(view.read("duplicate_request"), "18\n");
        assert_eq!(view.read("rp_cnp_handled"), "0\n");
        // Updates are rate-limited, and counts are not added twice.
        counted.duplicate_request += 90;
        assert_eq!(one.publish(|| counted, 200), Some(100 + LIFESPAN));
        assert_eq!(view.read("duplicate_request"), "18\n");
        assert_eq!(one.publish(|| counted, 100 + LIFESPAN), None);
        assert_eq!(one.publish(|| counted, 300 + LIFESPAN), Some(100 + 2 * LIFESPAN));
        assert_eq!(one.publish(|| counted, 100 + 2 * LIFESPAN), None, "nothing is new");
        assert_eq!(view.read("duplicate_request"), "108\n");
        counted.rp_cnp_handled = 1;
        one.finish(&counted);
        assert_eq!(view.read("rp_cnp_handled"), "1\n");
    }

    #[test]
    fn a_file_that_another_process_writes_is_tried_again() {
        let view = View::new("lock");
        let mut counters = view.open();
        let counted = Statistics { np_cnp_sent: 3, ..Statistics::default() };
        let file = File::open(view.folder().join("np_cnp_sent")).unwrap();
        assert!(file_lock::try_lock_exclusive(&file).unwrap());
        assert_eq!(counters.publish(|| counted, 100), Some(100 + LIFESPAN));
        drop(file);
        assert_eq!(counters.publish(|| counted, 100 + LIFESPAN), None);
        assert_eq!(view.read("np_cnp_sent"), "3\n");
    }

    #[test]
    fn without_files_there_is_nothing_to_do() {
        let view = View::new("none");
        assert!(HwCounters::below(&view.0, "ferroce_eth0").is_none());
        let mut counters = view.open();
        fs::remove_dir_all(&view.0).unwrap();
        let counted = Statistics { np_cnp_sent: 3, ..Statistics::default() };
        assert_eq!(counters.publish(|| counted, 100), None);
    }
}
