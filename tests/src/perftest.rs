//! What perftest's programs (`ib_write_bw` and its kin) print.

use std::time::Instant;

use crate::running::Running;

/// What a program says when it has measured its processor's clock wrongly: it wants a straight line through a few readings
/// of two clocks, which a busy machine does not give, and prints 0.00 for every speed afterwards (`get_clock.c`).
const CALIBRATION: &str = "Correlation coefficient r^2:";

/// How often a run is repeated for that reason, which has nothing to do with us.
const REPEATS: usize = 5;

/// Whether this was printed by a program that could not calibrate its clock.
pub fn is_uncalibrated(said: &str) -> bool {
    said.contains(CALIBRATION)
}

/// What server and client printed when both have ended well, or one of them without a calibrated clock, however that ended.
/// Panics for any other end.
pub fn both_ends(server: Running, client: Running, until: Instant) -> [String; 2] {
    let client = client.good_end(until);
    // One that waits for a client that has failed would do so for ever.
    let server = server.good_end(if client.is_ok() { until } else { Instant::now() });
    match [server, client] {
        [Ok(server), Ok(client)] => [server, client],
        ends => {
            let said = ends.map(|end| end.unwrap_or_else(|failure| failure));
            let [server, client] = &said;
            let uncalibrated = said.iter().any(|said| is_uncalibrated(said));
            assert!(uncalibrated, "the client: {client}\nthe server: {server}");
            said
        }
    }
}

/// Runs both ends until their clocks are calibrated. Nothing else is repeated: `run` panics for anything else.
pub fn calibrated<T>(mut run: impl FnMut() -> T, said: impl Fn(&T) -> String) -> T {
    for _ in 0..REPEATS {
        let result = run();
        if !is_uncalibrated(&said(&result)) {
            return result;
        }
        eprintln!("perftest could not calibrate its clock: the run is repeated");
    }
    panic!("perftest could not calibrate its clock in {REPEATS} runs: the machine is too busy");
}

/// A line of its table: bytes, iterations, and what was measured.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Of each message.
    pub bytes: u64,
    /// How many messages.
    pub iterations: u64,
    /// Peak and average bandwidth and the rate of messages, or the shortest, longest and typical latency. perftest writes
    /// later columns without a space between them when their values are large, and the deviation of large values as `-nan`.
    pub measured: [f64; 3],
}

/// All lines of its table.
pub fn rows(said: &str) -> Vec<Row> {
    let row = |line: &str| {
        let mut words = line.split_whitespace();
        let (bytes, iterations) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        let mut value = || words.next()?.parse().ok();
        let measured = [value()?, value()?, value()?];
        Some(Row { bytes, iterations, measured })
    };
    said.lines().filter_map(row).collect()
}

/// What a program is to print.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    /// One line: bytes and iterations.
    One(u64, u64),
    /// A line for each power of two, from 2 bytes to this many; with so many iterations each.
    Powers(u64, u64),
    /// One line of these bytes, and as many iterations as there was time for.
    Timed(u64),
}

/// The number behind an option, if it is among the arguments.
pub fn option(arguments: &str, name: &str) -> Option<u64> {
    let mut words = arguments.split_whitespace().skip_while(|word| *word != name);
    words.nth(1)?.parse().ok()
}

impl Table {
    /// What a program prints for its arguments. Datagrams carry no more than the path MTU.
    pub fn of(program: &str, arguments: &str, path_mtu: u64) -> Self {
        let has = |wanted: &str| format!(" {arguments} ").contains(&format!(" {wanted} "));
        let default = match program {
            name if name.starts_with("ib_atomic") => 8,
            name if name.ends_with("_lat") => 2,
            _ if has("-c UD") => path_mtu,
            _ => 65_536,
        };
        let bytes = option(arguments, "-s").unwrap_or(default);
        // perftest's own number of iterations, with which some rows run; latencies have one queue pair.
        let iterations = option(arguments, "-n").unwrap_or(1000);
        let iterations = iterations * option(arguments, "-q").unwrap_or(1);
        if has("-a") {
            Self::Powers(1 << 23, iterations)
        } else if option(arguments, "-D").is_some() {
            Self::Timed(bytes)
        } else {
            Self::One(bytes, iterations)
        }
    }
}

/// Checks all lines of the table. `Err` says what is wrong.
pub fn check(said: &str, table: Table) -> Result<(), String> {
    let rows = rows(said);
    let found: Vec<_> = rows.iter().map(|row| (row.bytes, row.iterations)).collect();
    let wanted = match table {
        Table::One(bytes, iterations) => vec![(bytes, iterations)],
        Table::Powers(largest, iterations) => {
            let sizes = std::iter::successors(Some(2), |bytes| Some(bytes * 2));
            sizes.take_while(|bytes| *bytes <= largest).map(|bytes| (bytes, iterations)).collect()
        }
        // Any number of iterations but none.
        Table::Timed(bytes) => {
            let iterations = rows.first().map_or(0, |row| row.iterations).max(1);
            vec![(bytes, iterations)]
        }
    };
    if found != wanted {
        return Err(format!("bytes and iterations are {found:?}, wanted {wanted:?}"));
    }
    // The peak of a run for some time, and the bandwidth of a few bytes, are printed as 0.00.
    let sound = |row: &Row| {
        row.measured.iter().all(|value| value.is_finite() && *value >= 0.0)
            && row.measured.iter().any(|value| *value > 0.0)
    };
    match rows.iter().find(|row| !sound(row)) {
        Some(row) => Err(format!("no measurement: {row:?}")),
        None => Ok(()),
    }
}
