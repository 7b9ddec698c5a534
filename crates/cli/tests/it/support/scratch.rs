//! Temporary directories to run commands in, and checks of their output.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

use ferroce_test_support::skip;
use ferroce_trace::analysis::{FileReport, Options, analyze};

use super::FERROCE;

/// A temporary directory that any user may write to, removed on drop.
pub(crate) struct Scratch(pub(crate) PathBuf);

impl Scratch {
    pub(crate) fn new(name: &str) -> Self {
        let name = format!("ferroce-cli-test-{}-{name}", std::process::id());
        let path = std::env::temp_dir().join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Returns a command that runs in this directory.
    pub(crate) fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command.args(arguments).current_dir(&self.0).stdin(Stdio::null());
        command.env("LC_ALL", "C.UTF-8").env_remove("FERROCE_CAPTURE");
        command
    }

    pub(crate) fn run(&self, program: &str, arguments: &[&str]) -> Output {
        self.command(program, arguments).output().unwrap()
    }

    pub(crate) fn ferroce(&self, arguments: &[&str]) -> Output {
        self.run(FERROCE, arguments)
    }

    /// Runs a command in a new network namespace that has only a loopback, away from the packets and processes of other
    /// tests. `None`, after a skip, if the namespace cannot be created.
    pub(crate) fn in_namespace(&self, program: &str, arguments: &[&str]) -> Option<Output> {
        let words = namespace_command(program, arguments)?;
        let words: Vec<_> = words.iter().map(String::as_str).collect();
        Some(self.run(words[0], &words[1..]))
    }

    /// Returns the sorted names of the files in this directory.
    pub(crate) fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        let mut names: Vec<_> = names.collect();
        names.sort();
        names
    }

    /// Analyzes a capture file of this directory.
    pub(crate) fn report(&self, name: &str) -> FileReport {
        let file = fs::File::open(self.path(name)).unwrap();
        analyze(name, file, &Options::default(), &mut |_| {})
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Returns a command line that runs a program in a new network namespace with only a loopback, if this machine allows it.
fn namespace_command(program: &str, arguments: &[&str]) -> Option<Vec<String>> {
    let up = "ip link set lo up && exec \"$@\"";
    // Without privileges, a user namespace grants the right to create a network namespace.
    for flags in ["-n", "-rn"] {
        let prefix = ["unshare", flags, "sh", "-c", up, "sh"];
        let works = Command::new(prefix[0]).args(&prefix[1..]).arg("true").output();
        if works.is_ok_and(|output| output.status.success()) {
            let all = [&prefix[..], &[program], arguments].concat();
            return Some(all.into_iter().map(str::to_owned).collect());
        }
    }
    skip("cannot create a network namespace (unshare, ip)");
    None
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Returns the standard output of a command that must have succeeded.
pub(crate) fn success(output: &Output) -> String {
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{out}\n{errors}");
    out
}

/// Returns the standard error of a command that must have failed with status 1.
pub(crate) fn failure(output: &Output) -> String {
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stdout));
    text(&output.stderr)
}

/// Whether the loopback has an IPv6 address; skips if not.
pub(crate) fn has_ipv6() -> bool {
    let found = std::net::UdpSocket::bind("[::1]:0").is_ok();
    if !found {
        skip("the loopback has no IPv6 address");
    }
    found
}
