//! What tests are given: a network namespace, and skips that show. Children are this binary again, running an ignored test.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use ferroce_test_support::{find_program, namespace, skip};

/// This binary again, in nothing but one of its ignored tests.
fn child(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).stdin(Stdio::null());
    for name in ["CI", "FERROCE_REQUIRE_ALL", "FERROCE_TEST_NOTES"] {
        command.env_remove(name);
    }
    command
}

fn namespace_of(process: &str) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/net")).unwrap()
}

/// The loopback is there and up, and nothing else is.
#[test]
fn a_test_has_a_network_of_its_own() {
    if !namespace::is_own() {
        return skip("no network namespace can be made here");
    }
    let table = fs::read_to_string("/proc/net/dev").unwrap();
    let names: Vec<_> = table.lines().filter_map(|line| line.split_once(':')).collect();
    let names: Vec<_> = names.into_iter().map(|(name, _)| name.trim()).collect();
    assert_eq!(names, ["lo"]);
    assert_eq!(fs::read_dir("/sys/class/net").unwrap().count(), 1);
    let socket = UdpSocket::bind("127.0.0.1:4792").unwrap();
    socket.send_to(b"to itself", "127.0.0.1:4792").unwrap();
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 9);
}

/// Another process of the machine may hold every port that programs here use by default.
#[test]
fn a_port_that_is_taken_elsewhere_is_free_here() {
    if !namespace::is_own() {
        return skip("no network namespace can be made here");
    }
    let mut stranger = child("holder");
    stranger.env_remove(namespace::VARIABLE).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut stranger = stranger.spawn().unwrap();
    let mut lines = BufReader::new(stranger.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "held"));
    assert_ne!(namespace_of(&stranger.id().to_string()), namespace_of("self"));
    let _tcp = TcpListener::bind("0.0.0.0:7471").unwrap();
    let _udp = UdpSocket::bind("0.0.0.0:4791").unwrap();
    drop(stranger.stdin.take());
    assert!(stranger.wait().unwrap().success());
}

#[test]
#[ignore = "a child process of another test"]
fn holder() {
    let _tcp = TcpListener::bind("0.0.0.0:7471").unwrap();
    let _udp = UdpSocket::bind("0.0.0.0:4791").unwrap();
    println!("\nheld");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// Whoever starts itself again talks to itself.
#[test]
fn a_child_stays_in_the_namespace_of_its_parent() {
    let output = child("tells_its_namespace").output().unwrap();
    let said = String::from_utf8(output.stdout).unwrap();
    let own = format!("namespace {}", namespace_of("self").display());
    assert!(said.lines().any(|line| line == own), "{own}: {said}");
}

#[test]
#[ignore = "a child process of another test"]
fn tells_its_namespace() {
    println!("\nnamespace {}", namespace_of("self").display());
}

/// Names of `ip netns` are those of one test, and nothing is left of them when it is killed.
#[test]
fn named_namespaces_are_not_seen_outside() {
    if !namespace::is_own() || find_program("ip").is_none() {
        return;
    }
    let run = |arguments: &[&str]| Command::new("ip").args(arguments).output().unwrap();
    assert!(run(&["netns", "add", "ferroce-seen"]).status.success());
    let inside = String::from_utf8(run(&["netns", "list"]).stdout).unwrap();
    assert!(inside.lines().any(|line| line.starts_with("ferroce-seen")), "{inside}");
    // Whoever started this test is in the mount namespace where it would have been.
    let parent = Path::new("/proc").join(std::os::unix::process::parent_id().to_string());
    assert!(!parent.join("root/run/netns/ferroce-seen").exists());
}

#[test]
#[ignore = "a child process of another test"]
fn skips() {
    skip("a tool is\nmissing");
}

#[test]
fn a_skip_leaves_a_note() {
    let notes = env::temp_dir().join(format!("ferroce-notes-{}", std::process::id()));
    assert!(child("skips").env("FERROCE_TEST_NOTES", &notes).status().unwrap().success());
    let text = fs::read_to_string(&notes).unwrap();
    fs::remove_file(&notes).unwrap();
    assert_eq!(text, "skipped\tsupport skips\ta tool is missing\n");
}

#[test]
fn a_skip_is_a_failure_where_all_is_required() {
    let fails =
        |name: &str, value: &str| !child("skips").env(name, value).status().unwrap().success();
    assert!(!fails("CI", ""));
    assert!(fails("CI", "true"));
    assert!(fails("FERROCE_REQUIRE_ALL", "1"));
    let both = [("CI", "true"), ("FERROCE_REQUIRE_ALL", "0")];
    assert!(child("skips").envs(both).status().unwrap().success());
}
