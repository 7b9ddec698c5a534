//! A whole life of a device, in a server's process and in a client's, under valgrind: no byte is lost, none is read before
//! it is written, and none is touched after it was given back.

use std::fs;
use std::path::Path;
use std::process::Command;

use ferroce_test_support::skip;

#[test]
fn the_demo_loses_no_memory() {
    if Command::new("valgrind").arg("--version").output().is_err() {
        return skip("valgrind is not installed: run `make setup`");
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("leaks");
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).unwrap();
    let mut command = Command::new("valgrind");
    command.args(["--trace-children=yes", "--leak-check=full", "--errors-for-leak-kinds=definite"]);
    command.arg(format!("--log-file={}", folder.join("%p").display()));
    command.arg(env!("CARGO_BIN_EXE_ferroce")).args(["demo", "--capture"]);
    command.arg(folder.join("demo.pcapng")).env_remove("FERROCE_FAULTS");
    let output = command.output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));

    let logs = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let logs: Vec<_> = logs.filter(|path| path.extension().is_none()).collect();
    assert!(logs.len() >= 2, "a server and a client: {logs:?}");
    for path in logs {
        let log = fs::read_to_string(&path).unwrap();
        assert!(log.contains("ERROR SUMMARY: 0 errors"), "{log}");
    }
}
