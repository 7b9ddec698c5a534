//! A set-user-ID program ignores the environment of its caller.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use super::{forking, skipped};
use crate::environment;

const ROLE: &str = "FERROCE_NET_PRIVILEGE";

/// Not a test: prints what it sees of its environment.
#[test]
#[ignore = "a child process of another test"]
fn privileged_process() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    println!("\nsees {:?} {}", environment::var_os(ROLE), environment::is_privileged());
}

/// The output of a copy of this program with these permissions that another user starts.
fn seen_by(mode: u32) -> Option<String> {
    let name = format!("ferroce-privilege-{}-{mode:o}", std::process::id());
    let copy = std::env::temp_dir().join(name);
    std::fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    std::fs::set_permissions(&copy, std::fs::Permissions::from_mode(mode)).unwrap();
    let mut command = Command::new(&copy);
    command
        .args(["--exact", "net::tests::privilege::privileged_process", "--ignored", "--nocapture"])
        .env(ROLE, "yes")
        .current_dir("/")
        .uid(65_534)
        .gid(65_534)
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let started = forking(|| command.spawn());
    let output = started.ok().map(|child| child.wait_with_output().unwrap().stdout);
    std::fs::remove_file(&copy).unwrap();
    let text = String::from_utf8(output?).unwrap();
    text.lines().find_map(|line| line.strip_prefix("sees ").map(str::to_owned))
}

#[test]
fn set_user_id_programs_ignore_environment_variables() {
    let test = "set_user_id_programs_ignore_environment_variables";
    match seen_by(0o755) {
        Some(seen) => assert_eq!(seen, "Some(\"yes\") false"),
        None => return skipped(test, "cannot start a program as another user"),
    }
    match seen_by(0o4755).as_deref() {
        Some("Some(\"yes\") false") => skipped(test, "the temporary folder is mounted nosuid"),
        seen => assert_eq!(seen, Some("None true")),
    }
}
