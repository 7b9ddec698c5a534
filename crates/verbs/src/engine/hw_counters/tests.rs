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
