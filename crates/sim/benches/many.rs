//! 100,000 reliable connections in one simulated host: bytes for each that is idle, and whether the busy ones notice.
//!
//! `cargo bench -p ferroce-sim --bench many`

use std::time::{Duration, Instant};

use ferroce_sim::rdma::Many;

/// Bytes of memory that the process has resident, as Linux counts them.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn measure(connections: u32) {
    let many = Many { connections, busy: 100, messages: 200, length: 64 };
    let (before, start) = (resident(), Instant::now());
    let Some(mut crowd) = many.build() else { return };
    let (built, after) = (start.elapsed(), resident());
    // The best of three: the first finds its memory cold.
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let messages = crowd.run();
        best = best.min(start.elapsed());
        assert_eq!(messages, u64::from(many.busy * many.messages));
        let Some(next) = many.build() else { return };
        crowd = next;
    }
    let messages = many.busy * many.messages;
    let bytes = match (before, after) {
        // What the busy ones have posted counts too, and weighs little beside so many.
        (Some(before), Some(after)) if connections >= 10_000 => {
            format!("{} bytes each", after.saturating_sub(before) / u64::from(connections))
        }
        _ => "too few to weigh".to_owned(),
    };
    println!(
        "{connections:>7} connections: built in {:>6.1} ms, {bytes:>16}; {} busy ones: {:>5.2} µs of real time for each of {messages} messages",
        built.as_secs_f64() * 1e3,
        many.busy,
        best.as_secs_f64() * 1e6 / f64::from(messages),
    );
}

fn main() {
    // Large first: memory that a smaller run left behind would be taken for its own.
    for connections in [100_000, 10_000, 100] {
        measure(connections);
    }
}
