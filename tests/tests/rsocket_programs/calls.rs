//! The calls, one case of `calls.c` a line.

use std::path::Path;
use std::process::{Command, Stdio};

use super::{libraries, pair};

fn run(case: &str) {
    if !Path::new("/usr/include/rdma/rsocket.h").is_file() {
        eprintln!("SKIPPED: librdmacm-dev is not installed: run `make setup`");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let program = folder.join(format!("rsocket_calls.{}", std::process::id()));
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/rsocket_programs/calls.c");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-O1", "-Wall", "-Werror", "-pthread", "-o"])
        .args([program.as_path(), &source])
        .arg(format!("-L{}", libraries::folder().display()))
        .args(["-lrdmacm", "-libverbs"])
        .status();
    assert!(status.expect("there is a compiler").success(), "calls.c compiles");
    let mut command = Command::new(&program);
    command.arg(case).env("LD_LIBRARY_PATH", libraries::folder()).stdin(Stdio::null());
    command.env_remove("FERROCE_CAPTURE").env_remove("FERROCE_FAULTS");
    let said = pair::alone(command);
    let _ = std::fs::remove_file(program);
    assert!(said.contains("as it should be"), "{case} said:\n{said}");
}

macro_rules! cases {
    ($( $case:ident ),+ $(,)?) => {$(
        #[test]
        fn $case() {
            run(stringify!($case));
        }
    )+};
}

cases! {
    refused,
    nonblocking,
    partial,
    shut_down,
    closed,
    vectors,
    selected,
    options,
    mapped,
    threads,
    bad_calls,
    killed,
    cycles,
}
