//! `ferroce dashboard` over HTTP: which requests are refused, what is served, and how it ends.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::support::FERROCE;
use crate::support::scratch::{Scratch, failure, text};
use crate::support::server::Server;

/// Longer than anything here takes.
const DEADLINE: Duration = Duration::from_secs(60);

/// A running dashboard, killed on drop.
struct Dashboard {
    child: Child,
    address: SocketAddr,
    token: String,
    url: String,
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        assert_eq!(self.status, 200, "{}", self.body);
        serde_json::from_str(&self.body).unwrap()
    }

    fn header(&self, name: &str) -> Option<&str> {
        let line = |line: &'_ str| {
            line.split_once(": ").filter(|(own, _)| own.eq_ignore_ascii_case(name)).map(|_| ())
        };
        let line = self.head.lines().find(|text| line(text).is_some())?;
        line.split_once(": ").map(|(_, value)| value)
    }
}

impl Dashboard {
    fn start(arguments: &[&str]) -> Self {
        let mut child = Command::new(FERROCE)
            .args(["dashboard", "--json", "--listen", "0", "--interval", "100ms"])
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let event: Value = serde_json::from_str(&line).unwrap();
        assert_eq!(event["event"], "listening");
        let word = |name: &str| event[name].as_str().unwrap().to_owned();
        Self {
            child,
            address: word("address").parse().unwrap(),
            token: word("token"),
            url: word("url"),
        }
    }

    /// Sends a request as it is written.
    fn raw(&self, request: &str) -> Answer {
        let mut stream = TcpStream::connect(self.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut bytes = Vec::new();
        stream.read_to_end(&mut bytes).unwrap();
        let text = text(&bytes);
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        Answer { status, head: head.to_owned(), body: body.to_owned() }
    }

    /// Sends a request with these headers, and one that names the host unless they do.
    fn request(&self, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let host = format!("{}", self.address);
        let mut all = vec![("connection", "close")];
        if headers.iter().all(|(name, _)| *name != "host") {
            all.push(("host", &host));
        }
        all.extend(headers);
        let lines: String =
            all.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let length = body.len();
        self.raw(&format!(
            "{method} {path} HTTP/1.1\r\n{lines}content-length: {length}\r\n\r\n{body}"
        ))
    }

    /// Asks for data with the token.
    fn get(&self, path: &str) -> Answer {
        self.request("GET", path, &[("authorization", &format!("Bearer {}", self.token))], "")
    }

    fn post(&self, path: &str, body: &Value) -> Answer {
        let token = format!("Bearer {}", self.token);
        let headers = [("authorization", token.as_str()), ("content-type", "application/json")];
        self.request("POST", path, &headers, &body.to_string())
    }

    /// Asks for the state until `wanted` holds.
    fn wait_for(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        self.wait_on("/api/state", what, wanted)
    }

    fn wait_on(&self, path: &str, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let end = Instant::now() + DEADLINE;
        loop {
            let state = self.get(path).json();
            if wanted(&state) {
                return state;
            }
            assert!(Instant::now() < end, "{what}: {state}");
            // The dashboard samples ten times a second.
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn signal(&self, name: &str) {
        let done = Command::new("kill").args([name, &self.child.id().to_string()]).status();
        assert!(done.unwrap().success());
    }
}

impl Drop for Dashboard {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn the_page_and_the_data_need_the_token() {
    let dashboard = Dashboard::start(&[]);
    let get = |path: &str, headers: &[(&str, &str)]| dashboard.request("GET", path, headers, "");
    for path in [
        "/",
        "/?token=",
        "/?token=00000000000000000000000000000000",
        "/api/state",
        "/api/history",
        "/api/offers",
        "/api/qp?key=1/a/1",
        "/api/run",
        "/metrics",
    ] {
        let answer = get(path, &[]);
        assert_eq!(answer.status, 403, "{path}: {}", answer.body);
        assert!(answer.body.contains("token is missing or wrong"), "{}", answer.body);
    }
    // The address opens the page, not the data.
    assert_eq!(get(&format!("/api/state?token={}", dashboard.token), &[]).status, 403);
    for value in ["Bearer 0", "Basic abc", &dashboard.token] {
        assert_eq!(get("/api/state", &[("authorization", value)]).status, 403, "{value}");
    }
    let page = get(&format!("/?token={}", dashboard.token), &[]);
    assert!(
        page.status == 200 && page.body.contains("<title>Ferroce dashboard</title>"),
        "{}",
        page.body
    );
    let policy = page.header("content-security-policy").unwrap();
    assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("x-frame-options", "DENY"),
    ] {
        assert_eq!(page.header(name), Some(value));
    }
    assert_eq!(page.header("set-cookie"), None);
    assert_eq!(page.header("access-control-allow-origin"), None);
    assert!(dashboard.get("/api/state").json()["sequence"].as_u64() >= Some(1));
    assert_eq!(
        dashboard.get("/assets/app.js").header("content-type"),
        Some("text/javascript; charset=utf-8")
    );
    for path in ["/assets/none.js", "/assets/../Cargo.toml", "/assets/%2e%2e%2fmain.rs", "/nothing"]
    {
        assert_eq!(dashboard.get(path).status, 404, "{path}");
    }
}

#[test]
fn other_hosts_and_other_pages_are_refused() {
    let dashboard = Dashboard::start(&["--allow-run", "--allow-host", "named.example"]);
    let token = format!("Bearer {}", dashboard.token);
    let state = |more: (&str, &str)| {
        dashboard.request("GET", "/api/state", &[("authorization", &token), more], "").status
    };
    let own = format!("http://{}", dashboard.address);
    for good in [
        ("host", "localhost"),
        ("host", "named.example:80"),
        ("origin", &own),
        ("sec-fetch-site", "same-origin"),
    ] {
        assert_eq!(state(good), 200, "{good:?}");
    }
    for bad in [
        ("host", "evil.example"),
        ("host", "192.0.2.1"),
        ("host", ""),
        ("origin", "http://evil.example"),
        ("origin", "null"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ] {
        assert_eq!(state(bad), 403, "{bad:?}");
    }
    // Static files and pages that do not exist are no exception.
    for path in ["/", "/assets/app.js", "/metrics", "/nothing"] {
        let answer = dashboard.request(
            "GET",
            path,
            &[("host", "evil.example"), ("authorization", &token)],
            "",
        );
        assert_eq!(answer.status, 403, "{path}");
        assert!(answer.header("content-security-policy").is_some());
    }
    let absolute = format!(
        "GET http://evil.example/api/state HTTP/1.1\r\nhost: localhost\r\nauthorization: {token}\r\nconnection: close\r\n\r\n"
    );
    assert_eq!(dashboard.raw(&absolute).status, 403);
    // Another page cannot start a command, even with the token.
    let headers = [
        ("authorization", token.as_str()),
        ("content-type", "application/json"),
        ("origin", "http://evil.example"),
    ];
    let body = json!({ "command": "demo" }).to_string();
    assert_eq!(dashboard.request("POST", "/api/run", &headers, &body).status, 403);
    assert_eq!(dashboard.get("/api/run").json()["job"], Value::Null);
}

#[test]
fn commands_run_only_if_they_are_allowed_and_listed() {
    let closed = Dashboard::start(&[]);
    let demo = json!({ "command": "demo", "options": {} });
    for answer in [
        closed.post("/api/run", &demo),
        closed.post("/api/run/stop", &json!({})),
        closed.get("/api/run"),
    ] {
        assert_eq!(answer.status, 403);
        assert!(answer.body.contains("--allow-run"), "{}", answer.body);
    }
    assert_eq!(closed.get("/api/offers").json()["allowed"], false);
    drop(closed);

    let dashboard = Dashboard::start(&["--allow-run"]);
    assert_eq!(dashboard.get("/api/offers").json()["allowed"], true);
    for wrong in [
        json!({ "command": "run", "options": {} }),
        json!({ "command": "demo", "options": { "capture": "/tmp/x" } }),
        json!({ "command": "demo", "options": { "size": "1; reboot" } }),
    ] {
        assert_eq!(dashboard.post("/api/run", &wrong).status, 400, "{wrong}");
    }
    assert_eq!(dashboard.post("/api/run", &json!("demo")).status, 422);
    let large = json!({ "command": "x".repeat(100_000) });
    assert_eq!(dashboard.post("/api/run", &large).status, 413);
    assert_eq!(dashboard.post("/api/run", &demo).status, 202);
    let job =
        dashboard.wait_on("/api/run", "the demo ends", |state| state["job"]["stage"] != "running");
    assert_eq!(job["job"]["stage"], "succeeded", "{job}");
    let output = job["job"]["output"].as_str().unwrap();
    for part in ["RDMA WRITE", "demo.pcapng"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(!output.contains('\x1b'));
}

#[test]
fn live_processes_and_queue_pairs_are_shown_until_they_end() {
    let dashboard = Dashboard::start(&[]);
    let mut server =
        Server::start(Command::new(FERROCE).args(["server", "--json", "--listen", "127.0.0.1:0"]));
    let pid = server.child.id();
    let is_ours = |row: &Value| row["pid"] == pid;
    let ours = |state: &Value, table: &str| {
        state[table].as_array().unwrap().iter().filter(|row| is_ours(row)).count()
    };
    dashboard.wait_for("the server appears", |state| {
        ours(state, "processes") == 1 && ours(state, "devices") > 0
    });
    let mut client = Command::new(FERROCE);
    client.args(["client", &server.address, "bulk", "--size", "512M", "--chunk", "1M"]);
    let mut client = client.stdout(Stdio::null()).spawn().unwrap();
    let client_pid = client.id();
    let moving = |row: &Value| {
        row["pid"] == client_pid && row["tx"].as_f64() > Some(0.0) && row["state"] == "RTS"
    };
    let state = dashboard.wait_for("the client's QP sends", |state| {
        state["qps"].as_array().unwrap().iter().any(moving)
            && state["totals"]["tx"].as_f64() > Some(0.0)
    });
    let row = state["qps"].as_array().unwrap().iter().find(|row| moving(row)).unwrap().clone();
    assert_eq!((&row["service"], &row["remote"]), (&json!("RC"), &json!("127.0.0.1")));
    let detail = dashboard.get(&format!("/api/qp?key={}", row["key"].as_str().unwrap()));
    // It may have ended in between.
    if detail.status == 200 {
        assert_eq!(detail.json()["qp"]["number"], row["qpn"]);
    }
    let token = dashboard.token.clone();
    let metrics =
        dashboard.request("GET", "/metrics", &[("authorization", &format!("Bearer {token}"))], "");
    assert_eq!(
        metrics.header("content-type"),
        Some("application/openmetrics-text; version=1.0.0; charset=utf-8")
    );
    assert!(metrics.body.ends_with("# EOF\n"), "{}", metrics.body);
    assert!(metrics.body.contains(&format!("pid=\"{pid}\"")), "{}", metrics.body);
    // A process that is killed disappears, with all its objects.
    client.kill().unwrap();
    client.wait().unwrap();
    server.child.kill().unwrap();
    server.child.wait().unwrap();
    let gone = |state: &Value| {
        ["processes", "devices", "qps", "cqs", "mrs"].iter().all(|table| {
            let rows = state[table].as_array().unwrap();
            rows.iter().all(|row| row["pid"] != pid && row["pid"] != client_pid)
        })
    };
    dashboard.wait_for("they disappear", gone);
    assert_eq!(dashboard.get(&format!("/api/qp?key={}", row["key"].as_str().unwrap())).status, 404);
    assert!(dashboard.get("/api/history").json()["points"].as_array().unwrap().len() > 1);
}

#[test]
fn metrics_can_have_a_token_of_their_own_or_none() {
    let scratch = Scratch::new("dashboard-metrics");
    std::fs::write(scratch.path("token"), "prometheus-0123456789\n").unwrap();
    let path = scratch.path("token");
    let dashboard = Dashboard::start(&["--metrics-token-file", path.to_str().unwrap()]);
    let get = |token: &str, path: &str| {
        dashboard.request("GET", path, &[("authorization", &format!("Bearer {token}"))], "")
    };
    assert_eq!(get("prometheus-0123456789", "/metrics").status, 200);
    assert_eq!(get("prometheus-0123456789", "/api/state").status, 403);
    assert_eq!(get("prometheus-0123456780", "/metrics").status, 403);
    let public = Dashboard::start(&["--metrics-public"]);
    assert_eq!(public.request("GET", "/metrics", &[], "").status, 200);
    assert_eq!(public.request("GET", "/metrics", &[("host", "evil.example")], "").status, 403);
    std::fs::write(scratch.path("weak"), "short\n").unwrap();
    let weak = scratch.ferroce(&["dashboard", "--metrics-token-file", "weak"]);
    assert!(failure(&weak).contains("16 characters"));
    let missing = scratch.ferroce(&["dashboard", "--metrics-token-file", "none"]);
    assert!(failure(&missing).contains("cannot read none"));
}

#[test]
fn a_port_in_use_is_named() {
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port().to_string();
    let output = Command::new(FERROCE).args(["dashboard", "--listen", &port]).output().unwrap();
    let message = failure(&output);
    assert!(
        message.contains(&format!("127.0.0.1:{port}")) && message.contains("--listen 0"),
        "{message}"
    );
    let output =
        Command::new(FERROCE).args(["dashboard", "--listen", "192.0.2.77:80"]).output().unwrap();
    assert!(failure(&output).contains("no interface of this machine has this address"));
}

#[test]
fn an_address_other_than_the_loopback_is_a_warning() {
    for (listen, warned) in [("0.0.0.0:0", true), ("127.0.0.1:0", false)] {
        let mut child = Command::new(FERROCE)
            .args(["dashboard", "--listen", listen])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        assert!(
            line.starts_with("Dashboard: http://127.0.0.1:") && line.contains("/?token="),
            "{line}"
        );
        child.kill().unwrap();
        let errors = text(&child.wait_with_output().unwrap().stderr);
        assert_eq!(errors.contains("can be reached from other hosts"), warned, "{errors}");
    }
}

#[test]
fn ctrl_c_ends_it_with_the_command_it_runs() {
    for signal in ["-INT", "-TERM"] {
        let mut dashboard = Dashboard::start(&["--allow-run"]);
        let demo = json!({ "command": "demo", "options": { "size": "1M" } });
        assert_eq!(dashboard.post("/api/run", &demo).status, 202);
        // A connection that stays open does not keep it.
        let _idle = TcpStream::connect(dashboard.address).unwrap();
        dashboard.signal(signal);
        let status = dashboard.child.wait().unwrap();
        assert_eq!(status.code(), Some(0));
        let name = format!("ferroce-dashboard-{}-", dashboard.child.id());
        let left = std::fs::read_dir(std::env::temp_dir()).unwrap();
        let left: Vec<_> = left
            .flatten()
            .filter(|one| one.file_name().to_string_lossy().starts_with(&name))
            .collect();
        assert!(left.is_empty(), "{left:?}");
        assert!(dashboard.url.contains(&dashboard.token));
    }
}
