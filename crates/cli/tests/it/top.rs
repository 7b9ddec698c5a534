//! `ferroce top`: one frame as text, and the full screen in tmux.

use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferroce_test_support::skip;

use crate::support::FERROCE;
use crate::support::scratch::{failure, success};
use crate::support::server::Server;

fn server() -> Server {
    Server::start(Command::new(FERROCE).args(["server", "--json", "--listen", "127.0.0.1:0"]))
}

#[test]
fn one_frame_is_printed_as_text() {
    let server = server();
    let pid = server.child.id().to_string();
    let arguments = ["top", "--once", "--interval", "10ms", "--pid", &pid];
    let text = success(&Command::new(FERROCE).args(arguments).output().unwrap());
    assert!(text.contains("1 process,") && text.contains("ferroce_lo"), "{text}");
    assert!(!text.contains('\x1b'), "{text}");
    let arguments = ["top", "--json", "--interval", "10ms", "--pid", &pid];
    let text = success(&Command::new(FERROCE).args(arguments).output().unwrap());
    let json: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(json["rates"][0]["pid"].to_string(), pid);
    let piped = Command::new(FERROCE).arg("top").stdin(Stdio::null()).output().unwrap();
    assert!(failure(&piped).contains("--once"));
}

/// A tmux server of its own, with one window.
struct Tmux(String);

impl Tmux {
    fn start(command: &str) -> Option<Self> {
        // Tests may be threads of one process.
        let thread = format!("{:?}", std::thread::current().id()).replace(['(', ')'], "");
        let tmux = Self(format!("ferroce-top-{}-{thread}", std::process::id()));
        let started = Command::new("tmux")
            .args(["-L", &tmux.0, "-f", "/dev/null", "new-session", "-d", "-x", "150", "-y", "30"])
            .arg(command)
            .env("LC_ALL", "C.UTF-8")
            .status();
        if !started.is_ok_and(|status| status.success()) {
            skip("tmux is not installed");
            return None;
        }
        Some(tmux)
    }

    fn run(&self, arguments: &[&str]) -> String {
        let output = Command::new("tmux").args(["-L", &self.0]).args(arguments).output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// Waits until the screen contains a text, and returns the screen.
    fn wait_for(&self, text: &str) -> String {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let shown = self.run(&["capture-pane", "-p"]);
            if shown.contains(text) {
                return shown;
            }
            assert!(Instant::now() < deadline, "{text}:\n{shown}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn press(&self, key: &str) {
        self.run(&["send-keys", key]);
    }
}

impl Drop for Tmux {
    fn drop(&mut self) {
        self.run(&["kill-server"]);
    }
}

#[test]
fn the_screen_follows_processes_and_is_restored() {
    let server = server();
    let pid = server.child.id();
    // The status comes last: the screen may be looked at while the rest is being written.
    let top = format!("{FERROCE} top --interval 50ms --pid {pid}");
    let command = format!("sh -c '{top}; status=$?; stty -a; echo status=$status; cat'");
    let Some(tmux) = Tmux::start(&command) else { return };
    tmux.wait_for(&format!("{pid} ferroce"));
    tmux.press("2");
    tmux.wait_for("INIT");
    tmux.press("Enter");
    tmux.wait_for(&format!("of ferroce_lo of process {pid}"));
    drop(server);
    tmux.wait_for("this queue pair is gone");
    tmux.press("C-c");
    // The screen from before, and a terminal that shows what is typed.
    let shown = tmux.wait_for("status=0");
    assert!(shown.contains(" echo ") && shown.contains(" icanon "), "{shown}");
    assert!(!shown.contains("this queue pair"), "{shown}");
}

/// Ended on drop.
struct Traffic(std::process::Child);

impl Traffic {
    fn start() -> Self {
        let mut command = Command::new(FERROCE);
        command.args(["perf", "send", "lat", "--duration", "60s", "--wire", "--quiet"]);
        Self(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn().unwrap())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_queue_pair_shows_its_packets_as_a_ladder() {
    let traffic = Traffic::start();
    let pid = traffic.0.id();
    let Some(tmux) = Tmux::start(&format!("{FERROCE} top --interval 50ms --pid {pid}")) else {
        return;
    };
    tmux.press("2");
    tmux.wait_for("RTS");
    tmux.press("Enter");
    tmux.wait_for("Latency, from post");
    tmux.press("p");
    let shown = tmux.wait_for("RC SEND Only");
    assert!(shown.contains("Last packets"), "{shown}");
    let shown = tmux.wait_for("RC ACK");
    assert!(shown.contains('▶') && shown.contains('◀'), "{shown}");
    tmux.press("p");
    tmux.wait_for("Packets around losses");
}

/// Without its terminal it would otherwise look for keys for ever.
#[test]
fn it_ends_when_the_terminal_is_gone() {
    let server = server();
    let pid = server.child.id();
    let command = format!("exec {FERROCE} top --interval 50ms --pid {pid}");
    let Some(tmux) = Tmux::start(&command) else { return };
    tmux.wait_for(&format!("{pid} ferroce"));
    let shown = tmux.run(&["list-panes", "-F", "#{pane_pid}"]);
    let stat = format!("/proc/{}/stat", shown.trim());
    assert!(std::fs::read_to_string(&stat).unwrap().contains("(ferroce)"));
    drop(tmux);
    let deadline = Instant::now() + Duration::from_secs(60);
    while std::fs::read_to_string(&stat)
        .is_ok_and(|text| text.contains("(ferroce) S") || text.contains("(ferroce) R"))
    {
        assert!(Instant::now() < deadline, "it goes on without a terminal");
        std::thread::sleep(Duration::from_millis(20));
    }
}
