//! `ferroce report` in a real browser: the page holds the data of the capture, and nothing in a capture becomes script.

mod faults;
mod hostile;
mod page;
mod pictures;
mod traffic;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_test_support::browser::Browser;
use ferroce_test_support::built;
use serde_json::Value;

/// A temporary folder, removed on drop.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let name = format!("ferroce-report-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).expect("a folder");
        Self(path)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Runs `ferroce` in this folder and returns its output. Panics unless it succeeds, or reports damaged input.
    fn ferroce(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(built::folder().join("ferroce"));
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        let output = command.env_remove("FERROCE_CAPTURE").output().expect("ferroce runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(matches!(output.status.code(), Some(0 | 2)), "{arguments:?}: {said}");
        String::from_utf8(output.stdout).expect("UTF-8")
    }

    /// Writes the report of captures, opens it in a browser, and waits until it is drawn.
    fn open(&self, browser: &Browser, captures: &[&Path]) {
        let captures = captures.iter().map(|path| path.to_str().expect("UTF-8"));
        let arguments: Vec<_> = ["report", "-o", "page.html"].into_iter().chain(captures).collect();
        self.ferroce(&arguments);
        browser.open(&format!("file://{}", self.path("page.html").display()));
        browser.wait_until("return document.documentElement.hasAttribute('data-ready')");
    }

    /// Returns the data of a report.
    fn data(&self, capture: &Path) -> Value {
        let text = self.ferroce(&["report", "--json", capture.to_str().expect("UTF-8")]);
        serde_json::from_str::<Value>(&text).expect("JSON")["files"][0].take()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns the path of a capture of rdma_rxe.
fn rxe(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("data/rxe/{name}.pcap"))
}

/// Panics if the console has a warning or an error.
fn no_complaint(browser: &Browser) {
    assert_eq!(browser.console(), Vec::<String>::new());
}
