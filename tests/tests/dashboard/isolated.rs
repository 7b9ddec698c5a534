//! A dashboard in its own PID namespace, and programs in the same.

use std::ffi::OsStr;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use ferroce_test_support::browser::Browser;
use ferroce_test_support::{built, find_program, skip};
use ferroce_tests::running::Running;
use serde_json::Value;

/// Longer than anything here takes. Only a failing test waits this long.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// A running dashboard. It is the init process of its PID namespace: when it ends, so does every program in it.
pub(crate) struct Dashboard {
    process: Running,
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    url: String,
}

impl Dashboard {
    /// Starts one that samples five times a second. Returns `None`, after a skip, where PID namespaces cannot be created.
    pub(crate) fn start(arguments: &[&str]) -> Option<Self> {
        Self::start_every("200ms", arguments)
    }

    /// Starts one with this interval.
    pub(crate) fn start_every(interval: &str, arguments: &[&str]) -> Option<Self> {
        let (unshare, _) = (find_program("unshare")?, find_program("nsenter")?);
        // `--mount-proc`: the dashboard finds processes in /proc.
        let namespace = ["--pid", "--fork", "--kill-child", "--mount-proc", "--"];
        let probe = Command::new(&unshare).args(namespace).arg("true").output();
        if !probe.as_ref().is_ok_and(|output| output.status.success()) {
            skip(format_args!(
                "a PID namespace with its own /proc cannot be created here: {probe:?}"
            ));
            return None;
        }
        let mut command = Command::new(unshare);
        command.args(namespace).arg(built::folder().join("ferroce"));
        command.args(["dashboard", "--json", "--listen", "0", "--interval", interval]);
        plain(command.args(arguments));
        let mut process = Running::start_group(command);
        let line = process.wait_for(|line| line.starts_with('{'), Instant::now() + LIMIT);
        let event: Value = serde_json::from_str(&line).expect("JSON");
        let word = |name: &str| event[name].as_str().expect("a string").to_owned();
        let address = word("address").parse().expect("an address");
        Some(Self { process, address, token: word("token"), url: word("url") })
    }

    /// Returns a command that runs a program beside the dashboard. Its working directory is `/`.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let of = |kind: &str| format!("/proc/{}/ns/{kind}", self.process.id());
        let mut command = Command::new("nsenter");
        command.arg(format!("--pid={}", of("pid_for_children")));
        command.arg(format!("--mount={}", of("mnt"))).arg("--").arg(program);
        plain(&mut command);
        command
    }

    /// Returns a command of `ferroce` that runs beside the dashboard.
    pub(crate) fn ferroce(&self, arguments: &[&str]) -> Command {
        let mut command = self.command(built::folder().join("ferroce"));
        command.args(arguments);
        command
    }

    /// Opens the page and waits until it shows a sample.
    pub(crate) fn open(&self, browser: &Browser) {
        browser.open(&self.url);
        browser.wait_until("return document.querySelector('#live.on') !== null");
        browser.wait_until("return document.querySelector('#counts').textContent");
    }

    /// Sends a request and returns the status and the body. `headers` are whole lines, without the last line break.
    pub(crate) fn request(&self, method: &str, path: &str, headers: &[&str]) -> (u16, String) {
        let mut stream = TcpStream::connect(self.address).expect("connected");
        stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
        let headers = headers.join("\r\n");
        let request = format!("{method} {path} HTTP/1.1\r\nConnection: close\r\n{headers}\r\n\r\n");
        stream.write_all(request.as_bytes()).expect("sent");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("an answer");
        let (head, body) = answer.split_once("\r\n\r\n").expect("a head and a body");
        let status = head.split(' ').nth(1).and_then(|code| code.parse().ok()).expect("a status");
        (status, body.to_owned())
    }
}

/// Removes variables of the environment that must not reach these programs.
fn plain(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["FERROCE_", "UCX_", "OMPI_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.env_remove("LD_PRELOAD").env_remove("LD_LIBRARY_PATH").stdin(Stdio::null());
}
