//! Every example runs and prints what its documentation says. Cargo builds them with the tests.

use std::io::{BufRead, BufReader, Read};
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};

/// `target/<profile>/examples`: the tests are in `deps` beside it.
fn path(name: &str) -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let profile = test.parent().and_then(|deps| deps.parent()).unwrap();
    profile.join("examples").join(name)
}

fn command(name: &str) -> Command {
    let path = path(name);
    assert!(path.exists(), "{} is not built: `cargo build --examples`", path.display());
    let mut command = Command::new(path);
    command.stdin(Stdio::null());
    command
}

fn check(name: &str, lines: &[&str]) {
    check_output(name, &command(name).output().unwrap(), lines);
}

fn check_output(name: &str, output: &Output, lines: &[&str]) {
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}\n{text}{errors}", output.status);
    for line in lines {
        assert!(text.contains(line), "{name} does not print {line:?}:\n{text}");
    }
    assert!(errors.is_empty(), "{name}: {errors}");
}

#[test]
fn minimal_server_and_client() {
    let mut server = command("minimal_server");
    let mut server = server.arg("127.0.0.1:0").stdout(Stdio::piped()).spawn().unwrap();
    let mut stdout = BufReader::new(server.stdout.take().unwrap());
    let mut first = String::new();
    stdout.read_line(&mut first).unwrap();
    let address = first.trim().strip_prefix("listening at ").unwrap();

    let output = command("minimal_client").arg(address).output().unwrap();
    let read = "READ complete: 4096 bytes, 'client-wrote-this'";
    check_output("minimal_client", &output, &["remote addr=0x", "WRITE complete", read, "done"]);

    let mut text = String::new();
    stdout.read_to_string(&mut text).unwrap();
    assert!(server.wait().unwrap().success(), "{text}");
    assert!(text.contains("the client wrote 'client-wrote-this'"), "{text}");
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

/// Built with the features of the tests.
#[test]
fn awaiting() {
    match cfg!(feature = "tokio") {
        true => check("awaiting", &["counted to 100 and 99"]),
        false => check("awaiting", &["built without the feature tokio"]),
    }
}

#[test]
fn an_invalid_environment_variable_is_an_error() {
    for (variable, value) in [("FERROCE_FAULTS", "weather=1%"), ("FERROCE_NAME", "a/b")] {
        let output = command("xrc").env(variable, value).output().unwrap();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{variable}={value} was accepted");
        assert!(errors.contains(variable) && errors.contains(value), "{errors}");
    }
}
