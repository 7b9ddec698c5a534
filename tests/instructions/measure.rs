//! Runs this program again under callgrind.

use std::process::Command;

/// Returns the instructions of all messages of a row.
pub(crate) fn row(name: &str) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|error| error.to_string())?;
    // The name of the function is part of its symbol, whatever the mangling.
    // Valgrind runs one thread at a time. Without fairness, one that polls before the device threads are halted may keep them from
    // running for minutes, while they own the devices in a system call.
    let output = Command::new("valgrind")
        .args([
            "--tool=callgrind",
            "--callgrind-out-file=/dev/null",
            "--fair-sched=try",
            "--collect-atstart=no",
        ])
        .arg("--toggle-collect=*counted_messages*")
        .arg(program)
        .args(["--row", name])
        .output()
        .map_err(|error| format!("cannot run valgrind: {error}; apt-get install valgrind"))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if !output.status.success() {
        return Err(format!("the program ended with {}:\n{log}", output.status));
    }
    let collected = log.lines().find_map(|line| line.split_once("Collected : "));
    let count = collected.and_then(|(_, count)| count.trim().parse().ok());
    count.filter(|&count| count > 0).ok_or_else(|| format!("callgrind counted nothing:\n{log}"))
}
