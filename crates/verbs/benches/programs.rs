//! Debian's ib_write_bw and ib_write_lat on our libibverbs, compared with the same work by the library in the same run: only
//! the ratios are comparable between hosts.
//!
//! `cargo bench -p ferroce --bench programs`

use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::Ordering;
use std::time::Instant;

use ferroce::*;

mod pair;

use pair::{End, connect, introduce, write};

/// The programs' defaults: message length, and messages in flight.
const SIZE: usize = 65536;
const DEPTH: usize = 128;
/// Messages per completion.
const SIGNAL: usize = 64;
const MESSAGES: usize = 20_032;
const ROUNDS: usize = 10_000;
const RUNS: usize = 5;

fn main() {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-'));
    match std::env::var("FERROCE_BENCH_ROLE").as_deref() {
        Ok("server") => server(),
        _ if wanted.is_some_and(|name| !"programs".contains(&name)) => {}
        _ => compare(),
    }
}

fn server() {
    let end = pair::end(2 * SIZE);
    println!("{}", introduce(&end));
    let mut lines = BufReader::new(std::io::stdin()).lines();
    let mut line = || lines.next().unwrap().unwrap();
    let remote = connect(&end, &line());
    println!("ready");
    if line() == "latency" {
        ping_pong(&end, remote, false);
    }
    println!("done");
    let _ = line();
}

/// As in ib_write_lat: each end polls its memory only, so that the device thread drives the device, and takes the completion
/// of its WRITE before the next one.
fn ping_pong(end: &End, remote: RemoteAddress, first: bool) -> f64 {
    let bytes = end.region.buffer().unwrap().bytes();
    let (here, there) = if first { (SIZE, 0) } else { (0, SIZE) };
    let start = Instant::now();
    for round in 0..ROUNDS {
        let value = (round % 250) as u8 + 1;
        let arrived = || while bytes[here].load(Ordering::Acquire) != value {};
        if !first {
            arrived();
        }
        bytes[there].store(value, Ordering::Release);
        write(end, remote, there as u64, 2, true);
        while end.completions.poll_one().is_none() {}
        if first {
            arrived();
        }
    }
    start.elapsed().as_secs_f64() * 1e6 / (2 * ROUNDS) as f64
}

fn bulk(end: &End, remote: RemoteAddress) -> f64 {
    let start = Instant::now();
    let (mut posted, mut done) = (0, 0);
    while done < MESSAGES {
        while posted < MESSAGES && posted - done < DEPTH {
            posted += 1;
            write(end, remote, 0, SIZE, posted % SIGNAL == 0);
        }
        if let Some(one) = end.completions.poll_one() {
            assert_eq!(one.status, Status::Success);
            done += SIGNAL;
        }
    }
    (MESSAGES * SIZE) as f64 / start.elapsed().as_secs_f64() / 1e6
}

/// Megabytes per second, or one-way latency in microseconds.
fn native(latency: bool) -> f64 {
    let (mut child, mut input, mut lines) = pair::server();
    let mut line = || lines.next().unwrap().unwrap();
    let end = pair::end(2 * SIZE);
    let remote = connect(&end, &line());
    writeln!(input, "{}", introduce(&end)).unwrap();
    assert_eq!(line(), "ready");
    writeln!(input, "{}", if latency { "latency" } else { "bulk" }).unwrap();
    let found = if latency { ping_pong(&end, remote, true) } else { bulk(&end, remote) };
    assert_eq!(line(), "done");
    writeln!(input, "end").unwrap();
    child.wait().unwrap();
    found
}

/// Returns the same figure of a program, from a column of its last line of numbers.
fn program(libraries: &Path, line: &str, count: usize, column: usize) -> f64 {
    let mut words = line.split_whitespace();
    let (name, options): (_, Vec<_>) = (words.next().unwrap(), words.collect());
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    drop(listener);
    let command = || {
        let mut command = Command::new(name);
        command.args(["-d", "ferroce_lo", "-x", "0", "-F", "-m", "4096", "-p", &port]);
        command.args(&options).args(["-n", &count.to_string()]).env("LD_LIBRARY_PATH", libraries);
        command.env("FERROCE_DEVICES", "lo");
        command.stdout(Stdio::piped());
        command
    };
    let mut server = command().spawn().expect("perftest is installed: make setup");
    let listens = format!(":{:04X} ", port.parse::<u16>().unwrap());
    while !["/proc/net/tcp", "/proc/net/tcp6"].iter().any(|table| {
        let text = fs::read_to_string(table).unwrap_or_default();
        text.lines().any(|line| line.contains(&listens) && line.contains(" 0A "))
    }) {
        assert!(server.try_wait().unwrap().is_none(), "{name}'s server has ended");
    }
    let output = command().arg("127.0.0.1").output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{name}: {text}");
    server.wait().unwrap();
    let numbers = |line: &str| -> Option<Vec<f64>> {
        line.split_whitespace().map(|word| word.parse().ok()).collect()
    };
    let row = text.lines().filter_map(numbers).rfind(|row| row.len() > column);
    row.unwrap_or_else(|| panic!("{name} has no figures: {text}"))[column]
}

fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all[all.len() / 2]
}

fn compare() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let libraries = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench-libraries");
    let built = Command::new(root.join("scripts/libraries")).arg(&libraries).status();
    assert!(built.unwrap().success(), "the libraries are built");
    let mut figures = [(); 4].map(|()| Vec::new());
    // In turns, so that other load affects all of them.
    for _ in 0..RUNS {
        figures[0].push(native(false));
        // In gigabits: the programs differ in their megabytes.
        figures[1].push(125.0 * program(&libraries, "ib_write_bw --report_gbits", MESSAGES, 3));
        figures[2].push(native(true));
        figures[3].push(program(&libraries, "ib_write_lat", ROUNDS, 5));
    }
    let [bulk, bandwidth, one_way, latency] = figures.map(median);
    println!(
        "64 KiB WRITEs   ib_write_bw  {bandwidth:.0} MB/s ({:.2} of native)",
        bandwidth / bulk
    );
    println!("                native       {bulk:.0} MB/s");
    println!("2 byte WRITEs   ib_write_lat {latency:.2} µs ({:.2} of native)", latency / one_way);
    println!("                native       {one_way:.2} µs");
}
