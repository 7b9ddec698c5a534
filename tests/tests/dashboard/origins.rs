//! Pages of other origins, with the token: the worst case.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;

use ferroce_test_support::browser::Browser;
use ferroce_tests::running::turn;
use serde_json::{Value, json};

use crate::isolated::Dashboard;

/// Serves an empty page on another port of the loopback, until the test ends.
fn other_page() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            // Browsers also open connections on which they ask for nothing.
            thread::spawn(move || answer(&stream));
        }
    });
    address
}

fn answer(mut stream: &TcpStream) {
    const PAGE: &str = "<!doctype html><title>Other</title><link rel=icon href=data:,>";
    let head = BufReader::new(stream).lines().map_while(Result::ok).find(String::is_empty);
    if head.is_some() {
        let length = PAGE.len();
        let kind = "Content-Type: text/html\r\nConnection: close";
        let _ =
            write!(stream, "HTTP/1.1 200 OK\r\n{kind}\r\nContent-Length: {length}\r\n\r\n{PAGE}");
    }
}

/// Tries everything that a page can do with an address and a token, and returns what it read.
const ATTACK: &str = "
    const [base, token] = arguments;
    const read = [];
    const attempt = async (what, options) => {
      try {
        const answer = await fetch(base + what, options);
        const text = await answer.text();
        if (answer.type !== 'opaque' || text !== '') read.push([what, answer.type, text]);
      } catch (error) { }
    };
    const headers = { authorization: `Bearer ${token}` };
    for (const path of ['/api/state', '/api/history', '/api/qp?key=1/a/1', '/api/run', '/metrics', `/?token=${token}`, '/assets/app.js']) {
      await attempt(path, { headers });
      await attempt(path, {});
      await attempt(path, { mode: 'no-cors' });
      await attempt(path, { credentials: 'include' });
    }
    const body = JSON.stringify({ command: 'demo', options: {} });
    await attempt('/api/run', { method: 'POST', headers: { ...headers, 'content-type': 'application/json' }, body });
    await attempt('/api/run', { method: 'POST', mode: 'no-cors', headers: { 'content-type': 'text/plain' }, body });
    const element = (tag, properties) => new Promise((done) => {
      const one = Object.assign(document.createElement(tag), properties);
      one.onload = () => done('load');
      one.onerror = () => done('error');
      document.body.append(one);
    });
    for (const [tag, path] of [['script', '/assets/format.js'], ['img', '/assets/icon.svg']]) {
      if (await element(tag, { src: base + path }) === 'load') read.push([tag, path]);
    }
    // A frame has loaded when its error page has: the page itself is the same origin for nobody.
    await element('iframe', { src: `${base}/?token=${token}` });
    const frame = document.querySelector('iframe');
    try { read.push(['iframe', frame.contentDocument.title || frame.contentDocument.URL]); } catch (error) { }
    return read;
";

#[test]
fn a_page_of_another_origin_reads_nothing_and_runs_nothing() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&["--allow-run", "--metrics-public"]) else { return };
    let other = other_page();
    for host in ["127.0.0.1", "localhost"] {
        browser.open(&format!("http://{host}:{}/", other.port()));
        for base in ["127.0.0.1", "localhost"] {
            let base = format!("http://{base}:{}", dashboard.address.port());
            let read = browser.execute(ATTACK, json!([base, dashboard.token]));
            let nothing = read.as_array().is_some_and(|read| {
                read.iter().all(|one| one[0] == "iframe" && one[1] == "about:blank")
            });
            assert!(nothing, "{host} reads {base}: {read}");
        }
    }
    // No command has run, and the page itself still works.
    let authorization = format!("Authorization: Bearer {}", dashboard.token);
    let (status, body) = dashboard.request("GET", "/api/run", &["Host: localhost", &authorization]);
    assert_eq!(
        (status, serde_json::from_str::<Value>(&body).expect("JSON")),
        (200, json!({ "job": null }))
    );
    browser.console();
    dashboard.open(&browser);
    crate::no_complaint(&browser);
    // The attack would find something if it were allowed: from the page itself it reads and runs.
    let base = format!("http://{}", dashboard.address);
    let read = browser.execute(ATTACK, json!([base, dashboard.token])).to_string();
    assert!(
        read.contains("/api/state") && read.contains("\\\"stage\\\":\\\"running\\\""),
        "{read}"
    );
}

/// DNS rebinding: a page reaches the dashboard by a name of its own. Browsers resolve all names below `localhost` to the
/// loopback.
#[test]
fn another_host_name_is_refused() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&["--allow-run"]) else { return };
    let (port, token) = (dashboard.address.port(), &dashboard.token);
    browser.open(&format!("http://rebound.localhost:{port}/?token={token}"));
    let text = browser.text("body");
    assert!(text.starts_with("refused: the Host header names another host"), "{text}");
    assert_eq!(browser.value("return document.scripts.length"), 0);
    // The script of such a page would be of the same origin as the data.
    let state = "return fetch('/api/state', { headers: { authorization: `Bearer ${arguments[0]}` } }).then(answer => answer.status, error => String(error))";
    let state = browser.execute(state, json!([token]));
    // The policy of the refusal forbids even to ask.
    assert!(
        state == 403 || state.as_str().is_some_and(|text| text.contains("TypeError")),
        "{state}"
    );

    let authorization = format!("Authorization: Bearer {token}");
    for host in [
        "rebound.localhost",
        "evil.example",
        "192.0.2.1",
        "localhost.evil.example",
        "localhost@evil.example",
        "",
    ] {
        let host = format!("Host: {host}");
        for path in ["/", "/api/state", "/api/run", "/metrics"] {
            assert_eq!(
                dashboard.request("GET", path, &[&host, &authorization]).0,
                403,
                "{host} {path}"
            );
        }
    }
    let twice = ["Host: localhost", "Host: evil.example", &authorization];
    assert!(matches!(dashboard.request("GET", "/api/state", &twice).0, 400 | 403));
    assert_eq!(dashboard.request("GET", "/api/state", &["Host: localhost", &authorization]).0, 200);
}
