//! The programs, one pair per line: name of the test, command lines of server and client, and the expected number of
//! rows or transfers.

use std::fs;
use std::path::{Path, PathBuf};

use ferroce_test_support::{find_program, skip};
use ferroce_tests::listening;
use ferroce_tests::managed::{self, Ready, Server};

use super::direct;

/// The ports of rstream and riostream, udpong, rcopy, iperf3.
const STREAM: Ready = Ready::Listens(7471);
const PONG: Ready = Ready::Udp(7174);
const COPY: Ready = Ready::Listens(7427);
const IPERF: Ready = Ready::Listens(5201);

/// Counts the rows of rstream's table: name, bytes, transfers, iterations, total bytes, time, rate, time of each.
fn rows(said: &str) -> usize {
    let is_row = |line: &&str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let speed = words.get(6).and_then(|word| word.parse::<f64>().ok());
        words.len() == 8 && words[5].ends_with('s') && speed.is_some()
    };
    said.lines().filter(is_row).count()
}

macro_rules! streams {
    ($( $test:ident: $server:literal | $client:literal => $rows:literal; )+) => {$(
        #[test]
        fn $test() {
            let said = managed::run($server, $client, STREAM, Server::Ends);
            for said in said.iter().flatten() {
                assert_eq!(rows(said), $rows, "{}: {said}", $client);
            }
        }
    )+};
}

#[rustfmt::skip]
streams! {
    rstream_verified:     "rstream -S 5000 -C 50 -I 5 -T v"  | "rstream -s 127.0.0.1 -S 5000 -C 50 -I 5 -T v"           => 1;
    rstream_v6:           "rstream -f ipv6 -b ::1 -S 70000 -C 20 -T v" | "rstream -f ipv6 -s ::1 -S 70000 -C 20 -T v"   => 1;
    rstream_nonblocking:  "rstream -S 9999 -C 50 -T n -T v"  | "rstream -s 127.0.0.1 -S 9999 -C 50 -T n -T v"           => 1;
    rstream_async_many:   "rstream -S 64 -I 500 -T a"        | "rstream -s 127.0.0.1 -S 64 -I 500 -T a"                 => 1;
    rstream_small_buffer: "rstream -B 3000 -S 50000 -C 20 -T v" | "rstream -s 127.0.0.1 -B 3000 -S 50000 -C 20 -T v"    => 1;
    riostream:            "riostream -S 5000 -C 50 -T v"     | "riostream -s 127.0.0.1 -S 5000 -C 50 -T v"              => 1;
}

/// Returns the transfers in the row of udpong's table: name, bytes, transfers, total bytes, time, rate, time of each.
pub(crate) fn transfers(said: &str) -> Option<u32> {
    let row = said.lines().find(|line| line.starts_with("custom"))?;
    let words: Vec<_> = row.split_whitespace().collect();
    let count = words.get(2).filter(|_| words.len() == 7)?;
    match count.strip_suffix('k') {
        Some(thousands) => thousands.parse::<u32>().ok().map(|count| count * 1000),
        None => count.parse().ok(),
    }
}

macro_rules! datagrams {
    ($( $test:ident: $server:literal | $client:literal => $transfers:literal; )+) => {$(
        #[test]
        fn $test() {
            // A server keeps running, and treats the second client as another one.
            if let Some([_, said]) = managed::run($server, $client, PONG, Server::Serves(2)) {
                assert_eq!(transfers(&said), Some($transfers), "{}: {said}", $client);
            }
        }
    )+};
}

// Without echo, the server counts what it received: 300 are fewer than the receives that an rsocket posts (384), so
// none is lost however late the server is; 4096 bytes hold 3 of 1000. Echo tests are short: udpong treats a response
// that is a millisecond late as lost, never discards the extra one that it then requests, and with one of those pending
// it waits forever for one that is really lost.
#[rustfmt::skip]
datagrams! {
    udpong_size:         "udpong -b 127.0.0.1"         | "udpong -s 127.0.0.1 -S 64 -C 300"         => 300;
    udpong_blocking:     "udpong -b 127.0.0.1 -T b"    | "udpong -s 127.0.0.1 -S 1500 -C 300 -T b" => 300;
    udpong_small_buffer: "udpong -b 127.0.0.1 -B 4096" | "udpong -s 127.0.0.1 -B 4096 -S 1000 -C 3" => 3;
    udpong_v6_echo:      "udpong -b ::1 -T b"          | "udpong -s ::1 -S 100 -C 20 -T e -T b"     => 40;
}

mod full {
    use super::*;

    #[rustfmt::skip]
    streams! {
        rstream:              "rstream"                          | "rstream -s 127.0.0.1"                                   => 8;
        rstream_blocking:     "rstream -S 9999 -C 50 -T b -T v"  | "rstream -s 127.0.0.1 -S 9999 -C 50 -T b -T v"           => 1;
        rstream_async:        "rstream -S 9999 -C 50 -T a -T v"  | "rstream -s 127.0.0.1 -S 9999 -C 50 -T a -T v"           => 1;
        rstream_resolves:     "rstream -S 5000 -C 50 -T r"       | "rstream -s 127.0.0.1 -S 5000 -C 50 -T r"                => 1;
        rstream_keepalive:    "rstream -S 5000 -C 50 -k 1"       | "rstream -s 127.0.0.1 -S 5000 -C 50 -k 1"                => 1;
        rstream_no_inline:    "rstream -i 0 -S 64 -C 500 -T v"   | "rstream -s 127.0.0.1 -i 0 -S 64 -C 500 -T v"            => 1;
        riostream_large:      "riostream -S 1000000 -C 5 -T v"   | "riostream -s 127.0.0.1 -S 1000000 -C 5 -T v"            => 1;
        riostream_v6:         "riostream -f ipv6 -b ::1 -S 5000 -C 50 -T v" | "riostream -f ipv6 -s ::1 -S 5000 -C 50 -T v" => 1;
        riostream_nonblocking: "riostream -S 5000 -C 50 -T n"    | "riostream -s 127.0.0.1 -S 5000 -C 50 -T n"              => 1;
    }

    #[rustfmt::skip]
    datagrams! {
        udpong_count:        "udpong -b 127.0.0.1"         | "udpong -s 127.0.0.1 -C 200"               => 200;
        udpong_async:        "udpong -b 127.0.0.1 -T a"    | "udpong -s 127.0.0.1 -S 500 -C 300 -T a" => 300;
        udpong_nonblocking:  "udpong -b 127.0.0.1 -T n"    | "udpong -s 127.0.0.1 -S 500 -C 300 -T n" => 300;
        udpong_longest:      "udpong -b 127.0.0.1 -T b"    | "udpong -s 127.0.0.1 -S 2032 -C 100"       => 100;
        udpong_echo:         "udpong -b 127.0.0.1 -T b"    | "udpong -s 127.0.0.1 -S 1000 -C 20 -T e"   => 40;
        udpong_echo_async:   "udpong -b 127.0.0.1 -T a"    | "udpong -s 127.0.0.1 -C 20 -T e -T a"      => 40;
        udpong_v6:           "udpong -b ::1"               | "udpong -s ::1 -S 1500 -C 300" => 300;
    }
}

/// Returns a file of this test.
fn file(name: &str) -> PathBuf {
    let name = format!("{name}.{}", std::process::id());
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

#[test]
fn rcopy() {
    let (source, copy) = (file("rcopy"), file("rcopy-copy"));
    let data: Vec<u8> =
        (0..3_000_000u32).flat_map(|one| one.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    fs::write(&source, &data).expect("the file is written");
    let client = format!("rcopy {} 127.0.0.1:{}", source.display(), copy.display());
    let ran = managed::run("rcopy", &client, COPY, Server::Serves(1));
    if let Some([_, said]) = ran {
        assert!(said.contains("12000000 bytes in"), "{said}");
        assert!(fs::read(&copy).expect("the copy is there") == data, "the copy differs");
        let _ = fs::remove_file(copy);
    }
    let _ = fs::remove_file(source);
}

/// Returns Debian's library that redirects the socket calls of TCP programs to rsockets.
fn preload() -> Option<PathBuf> {
    let found = fs::read_dir("/usr/lib").ok()?.filter_map(Result::ok);
    let mut found = found.map(|folder| folder.path().join("rsocket/librspreload.so"));
    let path = found.find(|path| path.is_file());
    if path.is_none() {
        skip("librdmacm1 is not installed: run `make setup`");
    }
    find_program("iperf3").and(path)
}

/// iperf3 is unmodified. That it uses our rsockets shows in that its server listens with our connection manager, and
/// that it cannot report TCP congestion control.
fn iperf(options: &str) {
    let Some(preload) = preload() else { return };
    let with = format!("env LD_PRELOAD={} iperf3", listening::and(&preload));
    let (server, client) =
        (format!("{with} -s -1"), format!("{with} -c 127.0.0.1 -n 20M {options}"));
    let Some([server, client]) = managed::run(&server, &client, IPERF, Server::Ends) else {
        return;
    };
    let both = format!("the server said:\n{server}\nand the client:\n{client}");
    assert!(client.contains("iperf Done."), "{both}");
    // The server counts what it has received when the client reports the end on another connection.
    let says = |amount: &str, who: &str| {
        client.lines().any(|line| line.contains(amount) && line.trim_end().ends_with(who))
    };
    // 20 MiB, and what was in a block that was begun before.
    assert!(says(" 20.", "sender"), "{both}");
    let received = says("MBytes", "receiver");
    assert!(received, "{both}");
}

#[test]
fn iperf3() {
    iperf("");
}

#[test]
fn iperf3_reverse() {
    iperf("-R");
}

#[test]
fn iperf3_streams() {
    iperf("-P 3 -l 10000");
}

/// The same program with UDP. Its datagrams are sent between queue pairs, except for the first.
#[test]
fn iperf3_datagrams() {
    let Some(preload) = preload() else { return };
    let file = file("iperf3-datagrams.pcapng");
    let with = format!("LD_PRELOAD={} iperf3", listening::and(&preload));
    let server = format!("env {with} -s -1");
    let captured = format!("env FERROCE_CAPTURE={}", file.display());
    let client = format!("{captured} {with} -c 127.0.0.1 -u -b 50M -l 1000 -n 1M");
    let Some([server, client]) = managed::run(&server, &client, IPERF, Server::Ends) else {
        return;
    };
    let both = format!("the server said:\n{server}\nand the client:\n{client}");
    assert!(client.contains("iperf Done."), "{both}");
    // Lost and total datagrams, as counted by the server.
    let counts = |line: &str| {
        let mut words = line.split_whitespace().filter_map(|word| word.split_once('/'));
        words.find_map(|(lost, all)| Some((lost.parse::<u32>().ok()?, all.parse::<u32>().ok()?)))
    };
    let received = client.lines().find(|line| line.trim_end().ends_with("receiver"));
    assert!(received.and_then(counts).is_some_and(|(lost, all)| lost < all), "{both}");
    let sent = direct::datagrams(&file).len();
    assert!(sent > 1000, "{sent} datagrams between queue pairs; {both}");
    let _ = fs::remove_file(file);
}
