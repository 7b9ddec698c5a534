//! 100,000 RC connections in one simulated host: bytes per idle connection, and time per message of the busy ones.
//!
//! `cargo bench -p ferroce-sim --bench many`

use std::time::{Duration, Instant};

use ferroce_sim::rdma::ManyConnections;

/// Returns the resident memory of the process in bytes.
fn resident() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/statm").ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * 4096)
}

fn measure(connections: u32) {
    let parameters = ManyConnections { connections, busy: 100, messages: 200, length: 64 };
    let (before, start) = (resident(), Instant::now());
    let Some(mut simulation) = parameters.build() else { return };
    let (built, after) = (start.elapsed(), resident());
    // The best of three: in the first run, memory is cold.
    let mut best = Duration::MAX;
    for _ in 0..3 {
        let start = Instant::now();
        let messages = simulation.run();
        best = best.min(start.elapsed());
        assert_eq!(messages, u64::from(parameters.busy * parameters.messages));
        let Some(next) = parameters.build() else { return };
        simulation = next;
    }
    let messages = parameters.busy * parameters.messages;
    let bytes = match (before, after) {
        // Includes the work posted on busy connections, which is negligible here.
        (Some(before), Some(after)) if connections >= 10_000 => {
            format!("{} bytes each", after.saturating_sub(before) / u64::from(connections))
        }
        _ => "too few to tell".to_owned(),
    };
    println!(
        "{connections:>7} connections: built in {:>6.1} ms, {bytes:>16}; {} busy: {:>5.2} µs of real time per message ({messages} messages)",
        built.as_secs_f64() * 1e3,
        parameters.busy,
        best.as_secs_f64() * 1e6 / f64::from(messages),
    );
}

fn main() {
    // Large first: otherwise memory that a smaller run freed would be reused and not counted.
    for connections in [100_000, 10_000, 100] {
        measure(connections);
    }
}
