//! Every example runs by itself, and says what it is meant to say. Cargo builds them with the tests.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use ferroce_test_support as _;

/// `target/<profile>/examples`: the tests are in `deps` beside it.
fn path(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join("examples").join(name)
}

fn check(name: &str, lines: &[&str]) {
    let path = path(name);
    assert!(path.exists(), "{} is not built: `cargo build --examples`", path.display());
    let output = Command::new(path).stdin(Stdio::null()).output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{text}{errors}", output.status);
    for line in lines {
        assert!(text.contains(line), "{name} does not say {line:?}:\n{text}");
    }
    assert!(errors.is_empty(), "{name}: {errors}");
}

#[test]
fn minimal_server() {
    check("minimal_server", &["listening at 127.0.0.1:", "the client wrote 'client-wrote-this'"]);
}

#[test]
fn minimal_client() {
    let read = "READ complete: 4096 bytes, 'client-wrote-this'";
    check("minimal_client", &["remote addr=0x", "WRITE complete", read, "done"]);
}

#[test]
fn imm() {
    check("imm", &["batch 0 is here: 10000 bytes", "5 batches verified"]);
}

#[test]
fn bulk() {
    check("bulk", &[" MiB/s", "64 MiB verified"]);
}

#[test]
fn ud_ping() {
    check("ud_ping", &["ping 4: ", "5 pings answered"]);
}

#[test]
fn srq() {
    let end = "12 messages from 3 connections through 8 receives";
    check("srq", &["message 0 of client 2", "message 3 of client 0", end]);
}

#[test]
fn xrc() {
    check("xrc", &["got 'for worker 2'", "3 queues reached over one connection"]);
}

/// Cargo builds it with the features of the tests.
#[test]
fn awaiting() {
    match cfg!(feature = "tokio") {
        true => check("awaiting", &["counted to 100 and 99"]),
        false => check("awaiting", &["built without the feature tokio"]),
    }
}
