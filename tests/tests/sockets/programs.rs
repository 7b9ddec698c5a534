//! TCP servers and clients: both over RDMA, and a client over plain TCP.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::Instant;

use ferroce_test_support::skip;
use ferroce_tests::hosts::Hosts;
use ferroce_tests::running::{Running, free_port, turn};
use ferroce_tests::tool;

use super::run::{
    Folder, LIMIT, assert_rdma, finish, over_rdma, program, serve, with_sockets, written_bytes,
};

const LENGTH: usize = 1_000_000;

/// Fetches a file with curl, and compares it. Returns the bytes that were sent by RDMA.
fn fetch(folder: &Folder, url: &str, expected: &[u8], rdma: bool) -> usize {
    let (got, packets) = (folder.path("got"), folder.path("curl.pcapng"));
    let curl = program(&format!("curl --silent --show-error --output {} {url}", got.display()));
    let curl = curl.expect("it was found before");
    finish(if rdma { over_rdma(&curl, Some(&packets)) } else { curl });
    assert!(fs::read(&got).expect("it was fetched") == expected, "the received file differs");
    fs::remove_file(got).expect("it is there");
    if rdma { written_bytes(&packets) } else { 0 }
}

/// Returns Python's HTTP server, which has one thread and waits by poll(2).
fn http_server(folder: &Folder, port: u16) -> Command {
    let mut python = tool::python();
    python.args(["-m", "http.server", "--bind", "127.0.0.1", "--directory"]);
    python.arg(folder.path("")).arg(port.to_string());
    python
}

#[test]
fn http_server_and_curl() {
    let _turn = turn();
    if program("curl").is_none() {
        return;
    }
    let (folder, port) = (Folder::new("http"), free_port());
    let data = folder.write("data", LENGTH);
    let mut server = serve(over_rdma(&http_server(&folder, port), None), port);
    let url = format!("http://127.0.0.1:{port}/data");
    let written = fetch(&folder, &url, &data, true);
    // The client's capture has all packets that arrived from the server.
    assert!(written > LENGTH / 2, "{written} bytes by RDMA");
    fetch(&folder, &url, &data, false);
    server.kill();
}

/// The server does not use RDMA: the client detects that, and uses TCP.
#[test]
fn curl_falls_back_to_tcp() {
    let _turn = turn();
    if program("curl").is_none() {
        return;
    }
    let (folder, port) = (Folder::new("fallback"), free_port());
    let data = folder.write("data", LENGTH);
    let mut server = serve(http_server(&folder, port), port);
    let (got, packets) = (folder.path("got"), folder.path("curl.pcapng"));
    let url = format!("http://127.0.0.1:{port}/data");
    let curl = program(&format!("curl --silent --show-error --output {} {url}", got.display()));
    finish(with_sockets(&curl.expect("it was found before"), Some(&packets)));
    assert!(fs::read(&got).expect("it was fetched") == data, "the received file differs");
    assert_eq!(written_bytes(&packets), 0);
    server.kill();
}

/// Returns the MBytes that a line of iperf3's summary states for one direction.
fn megabytes(said: &str, direction: &str) -> Vec<f64> {
    let lines = said.lines().filter(|line| line.trim_end().ends_with(direction));
    let amounts = lines.filter_map(|line| line.split_once(" MBytes")?.0.rsplit(' ').next());
    amounts.filter_map(|amount| amount.parse().ok()).collect()
}

/// iperf3 waits by select(2). The sender stops at the first look after 20 MB, by which time it may have
/// sent another block of 128 KiB. The receiver stops when it learns that on its control connection, whatever
/// is still in the buffers of both ends: 1 MiB each, for each stream.
fn iperf(streams: u8, options: &str) {
    let _turn = turn();
    let (folder, port) = (Folder::new("iperf"), free_port());
    let packets = folder.path("iperf3.pcapng");
    let Some(server) = program(&format!("iperf3 -s -1 -p {port}")) else { return };
    let client = format!("iperf3 -c 127.0.0.1 -p {port} -n 20M -P {streams} {options}");
    let client = program(&client).expect("it was found before");
    let server = serve(over_rdma(&server, None), port);
    let said = finish(over_rdma(&client, Some(&packets)));
    server.finish(Instant::now() + LIMIT);
    let moved = |direction, least| {
        megabytes(&said, direction).into_iter().any(|amount| (least..21.0).contains(&amount))
    };
    let complete = moved("sender", 20.0) && moved("receiver", 20.0 - 2.0 * f64::from(streams));
    assert!(complete && said.contains("iperf Done."), "{said}");
    // Under this load the capture misses some packets.
    assert_rdma(&packets, 4_000_000);
}

#[test]
fn iperf3() {
    iperf(1, "");
}

#[test]
fn iperf3_streams_backwards() {
    iperf(3, "-R -l 10000");
}

/// Redis waits by epoll(7), level-triggered. Its values are compared over TCP.
#[test]
fn redis() {
    let _turn = turn();
    let (folder, port) = (Folder::new("redis"), free_port());
    let packets = folder.path("redis.pcapng");
    let options = "--bind 127.0.0.1 --appendonly no --save";
    let Some(mut server) = program(&format!("redis-server --port {port} {options}")) else {
        return;
    };
    server.args(["", "--dir"]).arg(folder.path(""));
    let Some(mut benchmark) = program(&format!("redis-benchmark -p {port} -q -n 2000 -c 10"))
    else {
        return;
    };
    // Every request sets a key to its own value, and a list takes all of them, 100 bytes each.
    benchmark.args(["-t", "set,get,lpush", "-d", "100"]);
    let server = serve(over_rdma(&server, None), port);
    let cli = |words: &str, rdma: bool| {
        let cli =
            program(&format!("redis-cli -p {port} {words}")).expect("it is beside the others");
        finish(if rdma { over_rdma(&cli, None) } else { cli })
    };
    assert!(cli("set greeting hello", true).ends_with("OK\n"));
    let said = finish(over_rdma(&benchmark, Some(&packets)));
    assert_eq!(said.matches("requests per second").count(), 3, "{said}");
    assert_rdma(&packets, 2000 * 3 * 50);
    assert!(cli("get greeting", false).ends_with("hello\n"));
    assert!(cli("llen mylist", false).ends_with("2000\n"));
    assert!(cli("strlen key:__rand_int__", true).ends_with("100\n"));
    // It exits by itself.
    cli("shutdown nosave", true);
    server.finish(Instant::now() + LIMIT);
}

struct Nginx {
    folder: Folder,
    port: u16,
    data: Vec<u8>,
}

impl Nginx {
    /// Returns `None`, after a skip, if it is not installed. Debian installs it outside of users' PATH.
    fn new(test: &str, processes: &str) -> Option<(Self, Running)> {
        const PROGRAM: &str = "/usr/sbin/nginx";
        if !Path::new(PROGRAM).is_file() {
            skip("nginx is not installed: run `make setup`");
            return None;
        }
        program("curl").and(program("ab"))?;
        let nginx = Self { folder: Folder::new(test), port: free_port(), data: Vec::new() };
        let data = nginx.folder.write("data", LENGTH);
        let here = nginx.folder.path("");
        let folder = here.display();
        let configuration = format!(
            "daemon off; {processes}\npid {folder}/pid; error_log {folder}/error.log info;\n\
             events {{ worker_connections 64; }}\n\
             http {{ access_log off; sendfile on; tcp_nopush on; client_body_temp_path {folder}/temporary;\n\
             proxy_temp_path {folder}/temporary; fastcgi_temp_path {folder}/temporary;\n\
             uwsgi_temp_path {folder}/temporary; scgi_temp_path {folder}/temporary;\n\
             server {{ listen 127.0.0.1:{}; root {folder}; }} }}\n",
            nginx.port
        );
        fs::write(nginx.folder.path("conf"), configuration).expect("the file is written");
        let mut command = Command::new(PROGRAM);
        command.arg("-p").arg(&here).arg("-c").arg(nginx.folder.path("conf"));
        let server = serve(over_rdma(&command, None), nginx.port);
        Some((Self { data, ..nginx }, server))
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/data", self.port)
    }

    /// ab compares the lengths of all responses with that of the first.
    fn benchmark(&self, options: &str) {
        let packets = self.folder.path("ab.pcapng");
        let ab = program(&format!("ab -q {options} {}", self.url())).expect("it was found before");
        let said = finish(over_rdma(&ab, Some(&packets)));
        let has = |line: &str| said.lines().any(|one| one.split_whitespace().eq(line.split(' ')));
        assert!(has("Complete requests: 20") && has("Failed requests: 0"), "{said}");
        assert!(has(&format!("Document Length: {LENGTH} bytes")), "{said}");
        assert_rdma(&packets, 4 * LENGTH);
    }
}

/// One process. nginx waits by epoll(7), edge-triggered, and sends by sendfile(2).
#[test]
fn nginx_and_ab() {
    let _turn = turn();
    // Otherwise it gives its folders to the user `nobody`, whom the user namespace of an ordinary user's test does not have.
    let options = "master_process off; user root;";
    let Some((nginx, mut server)) = Nginx::new("nginx", options) else { return };
    let written = fetch(&nginx.folder, &nginx.url(), &nginx.data, true);
    assert!(written > LENGTH / 2, "{written} bytes by RDMA");
    nginx.benchmark("-n 20 -c 4");
    nginx.benchmark("-k -n 20 -c 4");
    fetch(&nginx.folder, &nginx.url(), &nginx.data, false);
    server.kill();
}

/// The master listens, and its workers accept. The first worker gets the rsocket; until then clients connect by TCP.
#[test]
fn nginx_with_workers() {
    let _turn = turn();
    // A client on this host cannot reach another user's process: the port of a device belongs to one user. Without
    // privilege the option is ignored.
    let options = "worker_processes 2; user root;";
    let Some((nginx, mut server)) = Nginx::new("workers", options) else { return };
    let until = Instant::now() + LIMIT;
    while fetch(&nginx.folder, &nginx.url(), &nginx.data, true) == 0 {
        assert!(Instant::now() < until, "no worker listens for RDMA");
    }
    nginx.benchmark("-n 20 -c 4");
    fetch(&nginx.folder, &nginx.url(), &nginx.data, false);
    server.kill();
}

/// sockperf passes an address with each send, and checks the sequence numbers of the responses.
#[test]
fn sockperf() {
    let _turn = turn();
    let (folder, port) = (Folder::new("sockperf"), free_port());
    let packets = folder.path("sockperf.pcapng");
    let to = format!("--tcp -i 127.0.0.1 -p {port}");
    let Some(server) = program(&format!("sockperf server {to}")) else { return };
    let client = program(&format!("sockperf ping-pong {to} -t 1 -m 1000 --data-integrity"));
    let mut server = serve(over_rdma(&server, None), port);
    let said = finish(over_rdma(&client.expect("it was found before"), Some(&packets)));
    assert!(said.contains("Summary: Latency is"), "{said}");
    assert!(said.contains("# dropped messages = 0; # duplicated messages = 0"), "{said}");
    assert_rdma(&packets, 1000);
    server.kill();
}

/// Two hosts: the server listens on all of its addresses.
#[test]
fn http_server_between_hosts() {
    let _turn = turn();
    if program("curl").is_none() {
        return;
    }
    let Some(hosts) = Hosts::new("tcp") else { return };
    let folder = Folder::new("hosts");
    let data = folder.write("data", LENGTH);
    let mut python = tool::python();
    python.args(["-m", "http.server", "--directory"]).arg(folder.path("")).arg("8000");
    let mut server = serve(hosts.command(0, &over_rdma(&python, None)), 8000);
    let (got, packets) = (folder.path("got"), folder.path("curl.pcapng"));
    let url = "http://10.9.0.1:8000/data";
    let curl = program(&format!("curl --silent --show-error --output {} {url}", got.display()));
    finish(hosts.command(1, &over_rdma(&curl.expect("it was found before"), Some(&packets))));
    assert!(fs::read(&got).expect("it was fetched") == data, "the received file differs");
    assert_rdma(&packets, LENGTH);
    server.kill();
}

/// More programs.
mod full {
    use super::*;

    /// Sends a file from one to the other. Both exit.
    fn copy(listen: &str, connect: &str) {
        let _turn = turn();
        let (folder, port) = (Folder::new("copy"), free_port());
        let data = folder.write("data", LENGTH);
        let (packets, got) = (folder.path("copy.pcapng"), folder.path("got"));
        let fill = |line: &str| program(&line.replace("PORT", &port.to_string()));
        let (Some(listen), Some(connect)) = (fill(listen), fill(connect)) else { return };
        // The output of a test's child process is read as text.
        let mut shell = Command::new("sh");
        shell.args(["-c", "exec \"$@\" >\"$0\""]).arg(&got);
        shell.arg(listen.get_program()).args(listen.get_args());
        let server = serve(over_rdma(&shell, None), port);
        let mut client = over_rdma(&connect, Some(&packets));
        client.stdin(fs::File::open(folder.path("data")).expect("it is there"));
        finish(client);
        server.finish(Instant::now() + LIMIT);
        assert!(fs::read(&got).expect("it was received") == data, "the received file differs");
        assert_rdma(&packets, LENGTH);
    }

    #[test]
    fn netcat() {
        copy("nc -l 127.0.0.1 PORT", "nc -N 127.0.0.1 PORT");
    }

    #[test]
    fn socat() {
        copy("socat TCP-LISTEN:PORT,bind=127.0.0.1 -", "socat - TCP:127.0.0.1:PORT");
    }

    fn python(source: &str, port: u16) -> Command {
        let mut python = tool::python();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sockets").join(source);
        python.arg(source).arg(port.to_string());
        python
    }

    /// One epoll set per thread, and connections handed from one thread to another.
    #[test]
    fn memcached() {
        let _turn = turn();
        let (folder, port) = (Folder::new("memcached"), free_port());
        let packets = folder.path("memcached.pcapng");
        let server = program(&format!("memcached -l 127.0.0.1 -p {port} -u root -t 4"));
        let Some(server) = server else { return };
        let mut server = serve(over_rdma(&server, None), port);
        let client = python("memcached.py", port);
        assert!(finish(over_rdma(&client, Some(&packets))).contains("8 threads"));
        assert_rdma(&packets, 8 * 50 * 1000);
        assert!(finish(client).contains("8 threads"));
        server.kill();
    }

    /// Server and clients in one thread, with non-blocking connects.
    #[test]
    fn asyncio() {
        let _turn = turn();
        let (folder, port) = (Folder::new("asyncio"), free_port());
        let packets = folder.path("asyncio.pcapng");
        let said = finish(over_rdma(&python("asyncio_echo.py", port), Some(&packets)));
        assert!(said.contains("30 clients"), "{said}");
        assert_rdma(&packets, LENGTH);
    }
}
