//! Preloads the library into a C program that makes every interposed call.
#![forbid(unsafe_code)]

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use ferroce_test_support::built;

fn library() -> PathBuf {
    built::folder().join("libferroce_view.so")
}

fn view(name: &str) -> PathBuf {
    let root = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    let _ = fs::remove_dir_all(&root);
    let device = root.join("sys/class/infiniband/ferroce_lo");
    fs::create_dir_all(&device).unwrap();
    fs::create_dir_all(root.join("dev/infiniband")).unwrap();
    fs::write(device.join("node_type"), "1: CA\n").unwrap();
    symlink("node_type", device.join("link")).unwrap();
    symlink("/dev/null", root.join("dev/infiniband/uverbs0")).unwrap();
    root
}

fn run(program: impl AsRef<std::ffi::OsStr>, arguments: &[&str], view: Option<&Path>) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env("LD_PRELOAD", library()).env_remove("FERROCE_VIEW");
    command.envs(view.map(|view| ("FERROCE_VIEW", view)));
    command.output().unwrap()
}

#[test]
fn every_call_is_redirected_to_the_view() {
    let view = view("calls");
    let program = view.join("calls");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/calls.c");
    let built = Command::new("cc")
        .args(["-w", "-O1", "-o"])
        .args([&program, &source])
        .status()
        .expect("run a C compiler: scripts/setup installs one");
    assert!(built.success());
    let output = run(&program, &[], Some(&view));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn nothing_is_redirected_without_the_variable() {
    for none in [None, Some(Path::new("")), Some(Path::new("relative"))] {
        let output = run("cat", &["/sys/class/infiniband/ferroce_lo/node_type"], none);
        assert!(!output.status.success());
        let output = run("cat", &["/proc/self/comm"], none);
        assert_eq!(output.stdout, b"cat\n");
    }
}

#[test]
fn child_processes_see_the_view() {
    let view = view("children");
    let script = "cd /sys/class/infiniband && for name in /sys/class/infiniband/*; do echo $name; \
                  (cat ./ferroce_lo/link); done; test -c /dev/infiniband/uverbs0";
    let output = run("sh", &["-c", script], Some(&view));
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.stdout, b"/sys/class/infiniband/ferroce_lo\n1: CA\n");
}
