//! The output of libibverbs' example pingpongs (`ibv_rc_pingpong` and others).

use crate::perftest::option;

/// Default message sizes and number of iterations.
const BYTES: u64 = 4096;
const UD_BYTES: u64 = 1024;
const ITERATIONS: u64 = 1000;

/// Checks that a side reports all bytes in both directions and all iterations. Returns `None` if the program is not a
/// pingpong.
pub fn check(program: &str, arguments: &str, said: &str) -> Option<Result<(), String>> {
    let kind = program.strip_prefix("ibv_")?.strip_suffix("_pingpong")?;
    let default = if kind == "ud" { UD_BYTES } else { BYTES };
    let bytes = option(arguments, "-s").unwrap_or(default);
    let iterations = option(arguments, "-n").unwrap_or(ITERATIONS);
    // "8192000 bytes in 0.01 seconds = 6553.60 Mbit/sec", "1000 iters in 0.01 seconds = 10.00 usec/iter".
    let wanted =
        [format!("{} bytes in ", 2 * bytes * iterations), format!("{iterations} iters in ")];
    let is_printed = |wanted: &String| said.lines().any(|line| line.starts_with(wanted));
    let missing: Vec<_> = wanted.iter().filter(|wanted| !is_printed(wanted)).collect();
    Some(if missing.is_empty() { Ok(()) } else { Err(format!("not printed: {missing:?}")) })
}
