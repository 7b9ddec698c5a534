//! What the pingpongs of libibverbs' examples (`ibv_rc_pingpong` and its kin) print.

use crate::perftest::option;

/// What each of them sends unless told otherwise, and how often.
const BYTES: u64 = 4096;
const UD_BYTES: u64 = 1024;
const ITERATIONS: u64 = 1000;

/// Whether a side has told of all bytes in both directions and all iterations. `None` when the program is no pingpong.
pub fn check(program: &str, arguments: &str, said: &str) -> Option<Result<(), String>> {
    let kind = program.strip_prefix("ibv_")?.strip_suffix("_pingpong")?;
    let default = if kind == "ud" { UD_BYTES } else { BYTES };
    let bytes = option(arguments, "-s").unwrap_or(default);
    let iterations = option(arguments, "-n").unwrap_or(ITERATIONS);
    // "8192000 bytes in 0.01 seconds = 6553.60 Mbit/sec", "1000 iters in 0.01 seconds = 10.00 usec/iter".
    let wanted =
        [format!("{} bytes in ", 2 * bytes * iterations), format!("{iterations} iters in ")];
    let tells = |wanted: &String| said.lines().any(|line| line.starts_with(wanted));
    let missing: Vec<_> = wanted.iter().filter(|wanted| !tells(wanted)).collect();
    Some(if missing.is_empty() { Ok(()) } else { Err(format!("not printed: {missing:?}")) })
}
