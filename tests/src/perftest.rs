//! The output of perftest's programs (`ib_write_bw` and others), and their files.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Instant;

use ferroce_test_support::namespace;

use crate::running::Running;

/// The files whose XRC domains they open. The names are fixed.
const XRC_DOMAINS: [&str; 3] =
    ["/tmp/xrc_domain", "/tmp/xrc_domain_server", "/tmp/xrc_domain_client"];

/// Puts own files in the place of those that another user's perftest has left, in this test's mount namespace: it cannot
/// open them.
fn own_xrc_domains() {
    let owner = |path: &str| fs::metadata(path).map(|found| found.uid()).ok();
    let foreign = |path: &&&str| owner(path).is_some_and(|uid| Some(uid) != owner("/proc/self"));
    for path in XRC_DOMAINS.iter().filter(foreign).filter(|_| namespace::is_own()) {
        let own = std::env::temp_dir().join(format!("ferroce-xrc-{}", std::process::id()));
        fs::write(&own, "").expect("a file");
        let mounted = Command::new("mount").arg("--bind").arg(&own).arg(path).status();
        assert!(mounted.is_ok_and(|status| status.success()), "cannot mount on {path}");
        fs::remove_file(&own).expect("it is there");
    }
}

/// Printed by a program that failed to calibrate its clock: it fits a straight line through a few readings of two
/// clocks, which fails on a busy machine, and then prints 0.00 for every rate (`get_clock.c`).
const CALIBRATION: &str = "Correlation coefficient r^2:";

/// The number of runs before a failed calibration, which is unrelated to Ferroce, fails the test.
const MAX_RUNS: usize = 5;

/// Whether a program printed that it could not calibrate its clock.
pub fn is_uncalibrated(said: &str) -> bool {
    said.contains(CALIBRATION)
}

/// Returns the outputs of server and client if both succeeded, or if one of them failed to calibrate its clock. Panics
/// otherwise.
pub fn both_ends(server: Running, client: Running, until: Instant) -> [String; 2] {
    let client = client.good_end(until);
    // A server would wait forever for a client that has failed.
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

/// Runs both sides until their clocks are calibrated. Nothing else is repeated: `run` panics on any other failure.
pub fn calibrated<T>(mut run: impl FnMut() -> T, said: impl Fn(&T) -> String) -> T {
    own_xrc_domains();
    for _ in 0..MAX_RUNS {
        let result = run();
        if !is_uncalibrated(&said(&result)) {
            return result;
        }
        eprintln!("perftest could not calibrate its clock: the run is repeated");
    }
    panic!("perftest could not calibrate its clock in {MAX_RUNS} runs: the machine is too busy");
}

/// A line of its table: bytes, iterations, and measurements.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Bytes per message.
    pub bytes: u64,
    /// Number of messages.
    pub iterations: u64,
    /// Peak and average bandwidth and message rate, or minimum, maximum and typical latency. perftest writes later
    /// columns without a space between them if their values are large, and the deviation of large values as `-nan`.
    pub measured: [f64; 3],
}

/// Parses all lines of its table.
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

/// The expected table of a program.
#[derive(Clone, Copy, Debug)]
pub enum Table {
    /// One line: bytes and iterations.
    One(u64, u64),
    /// A line for each power of two, from 2 bytes to this size, with this many iterations each.
    Powers(u64, u64),
    /// One line of this size, with any number of iterations.
    Timed(u64),
}

/// Returns the number after an option, if it is among the arguments.
pub fn option(arguments: &str, name: &str) -> Option<u64> {
    let mut words = arguments.split_whitespace().skip_while(|word| *word != name);
    words.nth(1)?.parse().ok()
}

impl Table {
    /// Returns the table that a program prints for its arguments. UD messages are at most the path MTU.
    pub fn of(program: &str, arguments: &str, path_mtu: u64) -> Self {
        let has = |wanted: &str| format!(" {arguments} ").contains(&format!(" {wanted} "));
        let default = match program {
            name if name.starts_with("ib_atomic") => 8,
            name if name.ends_with("_lat") => 2,
            _ if has("-c UD") => path_mtu,
            _ => 65_536,
        };
        let bytes = option(arguments, "-s").unwrap_or(default);
        // perftest's default number of iterations, which some rows use; latency tests have one queue pair.
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

/// Checks all lines of the table; returns a description of the first error.
pub fn check(said: &str, table: Table) -> Result<(), String> {
    let rows = rows(said);
    let found: Vec<_> = rows.iter().map(|row| (row.bytes, row.iterations)).collect();
    let wanted = match table {
        Table::One(bytes, iterations) => vec![(bytes, iterations)],
        Table::Powers(largest, iterations) => {
            let sizes = std::iter::successors(Some(2), |bytes| Some(bytes * 2));
            sizes.take_while(|bytes| *bytes <= largest).map(|bytes| (bytes, iterations)).collect()
        }
        // Any number of iterations except zero.
        Table::Timed(bytes) => {
            let iterations = rows.first().map_or(0, |row| row.iterations).max(1);
            vec![(bytes, iterations)]
        }
    };
    if found != wanted {
        return Err(format!("bytes and iterations are {found:?}, expected {wanted:?}"));
    }
    // The peak of a timed run, and the bandwidth of a few bytes, are printed as 0.00.
    let sound = |row: &Row| {
        row.measured.iter().all(|value| value.is_finite() && *value >= 0.0)
            && row.measured.iter().any(|value| *value > 0.0)
    };
    match rows.iter().find(|row| !sound(row)) {
        Some(row) => Err(format!("no measurement: {row:?}")),
        None => Ok(()),
    }
}
