//! Runs the demo, a server and a client process, under valgrind: no leaks, no reads of uninitialized memory, no use after
//! free.

use std::fs;
use std::path::Path;
use std::process::Command;

use ferroce_test_support::skip;

#[test]
fn the_demo_has_no_memory_errors() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("valgrind is not installed: run `make setup`");
    }
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join("leaks");
    let _ = fs::remove_dir_all(&directory);
    fs::create_dir_all(&directory).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--trace-children=yes", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    command.arg(format!("--log-file={}", directory.join("%p").display()));
    command.arg(env!("CARGO_BIN_EXE_ferroce")).args(["demo", "--capture"]);
    command.arg(directory.join("demo.pcapng")).env_remove("FERROCE_FAULTS");
    let output = command.output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{out}{}", String::from_utf8_lossy(&output.stderr));

    let logs = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path());
    let logs: Vec<_> = logs.filter(|path| path.extension().is_none()).collect();
    assert!(logs.len() >= 2, "a server and a client: {logs:?}");
    for path in logs {
        let log = fs::read_to_string(&path).unwrap();
        assert!(log.contains("ERROR SUMMARY: 0 errors"), "{log}");
    }
}
