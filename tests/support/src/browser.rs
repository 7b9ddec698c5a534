//! A real browser for tests of web pages: headless Chromium, driven through chromedriver (W3C WebDriver).
//!
//! The browser runs in the network namespace of the test, so it reaches servers of the test and nothing else. It has an
//! empty profile of its own. Both processes end when [`Browser`] is dropped.
//!
//! ```no_run
//! # use ferroce_test_support::browser::Browser;
//! let Some(browser) = Browser::start() else { return }; // Skipped: not installed.
//! browser.open("file:///tmp/page.html");
//! browser.wait_until("return document.querySelectorAll('tr').length > 3");
//! browser.click("button.more");
//! assert_eq!(browser.text("h1"), "Report");
//! assert_eq!(browser.console(), Vec::<String>::new());
//! ```

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use std::{env, fs, thread};

use serde_json::{Value, json};

/// How long a page may take for anything. Only a failing test waits this long.
const PATIENCE: Duration = Duration::from_secs(60);

/// The key of an element reference (W3C WebDriver, 12.2).
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// The size of the window.
const SIZE: (u32, u32) = (1280, 800);

/// A browser with one page.
#[derive(Debug)]
pub struct Browser {
    driver: Child,
    port: u16,
    session: String,
    profile: PathBuf,
}

impl Browser {
    /// Starts a browser. Returns `None`, after a [`skip`](crate::skip), if it is not installed.
    pub fn start() -> Option<Self> {
        let chromium = crate::find_program("chromium")?;
        let program = crate::find_program("chromedriver")?;
        let name = format!("ferroce-browser-{}-{:?}", std::process::id(), thread::current().id());
        let profile = env::temp_dir().join(name.replace(['(', ')'], ""));
        fs::create_dir_all(&profile).expect("a folder for the browser's profile");
        let mut command = Command::new(program);
        // In its own process group, which is killed as a whole.
        command.arg("--port=0").process_group(0).env("HOME", &profile);
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut driver = command.spawn().expect("chromedriver starts");
        let output = BufReader::new(driver.stdout.take().expect("its output"));
        let mut browser = Self { driver, port: 0, session: String::new(), profile };
        // "ChromeDriver was started successfully on port 34567."
        for line in output.lines().map_while(Result::ok) {
            let port = line.split("successfully on port ").nth(1);
            if let Some(port) = port.and_then(|port| port.trim_end_matches('.').parse().ok()) {
                browser.port = port;
                break;
            }
        }
        assert!(browser.port != 0, "chromedriver did not name its port");
        let arguments = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            "--hide-scrollbars",
            "--force-device-scale-factor=1",
        ];
        let mut arguments: Vec<String> = arguments.map(str::to_owned).to_vec();
        arguments.push(format!("--window-size={},{}", SIZE.0, SIZE.1));
        arguments.push(format!("--user-data-dir={}", browser.profile.join("data").display()));
        let capabilities = json!({ "capabilities": { "alwaysMatch": {
            "goog:chromeOptions": { "binary": chromium, "args": arguments },
            "goog:loggingPrefs": { "browser": "ALL" },
        }}});
        let session = browser.request("POST", "/session", Some(capabilities));
        browser.session = session["sessionId"].as_str().expect("a session").to_owned();
        Some(browser)
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&self, url: &str) {
        self.post("/url", json!({ "url": url }));
    }

    /// Runs the body of a function in the page and returns what it returns. `arguments` are its `arguments`.
    pub fn execute(&self, script: &str, arguments: Value) -> Value {
        self.post("/execute/sync", json!({ "script": script, "args": arguments }))
    }

    /// Runs the body of a function without arguments and returns what it returns.
    pub fn value(&self, script: &str) -> Value {
        self.execute(script, json!([]))
    }

    /// Waits until the function returns something true, and returns it. Panics if it never does.
    pub fn wait_until(&self, script: &str) -> Value {
        let end = Instant::now() + PATIENCE;
        loop {
            let value = self.value(script);
            let holds = !matches!(&value, Value::Null | Value::Bool(false))
                && value != json!(0)
                && value != json!("");
            if holds {
                return value;
            }
            assert!(Instant::now() < end, "never true: {script}\nconsole: {:?}", self.console());
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Clicks the first element that a CSS selector matches, as a user does: scrolled into view, not covered.
    pub fn click(&self, selector: &str) {
        let element = self.element(selector);
        // At once: WebDriver would click before a page that scrolls smoothly has arrived.
        let scroll = "document.querySelector(arguments[0]).scrollIntoView({ block: 'center', behavior: 'instant' })";
        self.execute(scroll, json!([selector]));
        self.post(&format!("/element/{element}/click"), json!({}));
    }

    /// Types text into the first element that a CSS selector matches.
    pub fn type_into(&self, selector: &str, text: &str) {
        let element = self.element(selector);
        self.post(&format!("/element/{element}/value"), json!({ "text": text }));
    }

    /// The text of the first element that a CSS selector matches, as it is displayed.
    pub fn text(&self, selector: &str) -> String {
        let path = format!("/session/{}/element/{}/text", self.session, self.element(selector));
        self.request("GET", &path, None).as_str().unwrap_or_default().to_owned()
    }

    /// The number of elements that a CSS selector matches.
    pub fn count(&self, selector: &str) -> usize {
        let script = "return document.querySelectorAll(arguments[0]).length";
        self.execute(script, json!([selector])).as_u64().unwrap_or(0) as usize
    }

    /// Warnings and errors of the console since the last call, including refused requests and violations of the page's
    /// Content-Security-Policy.
    pub fn console(&self) -> Vec<String> {
        let log = self.post("/se/log", json!({ "type": "browser" }));
        let entries = log.as_array().into_iter().flatten();
        let entries =
            entries.filter(|entry| matches!(entry["level"].as_str(), Some("SEVERE" | "WARNING")));
        entries.map(|entry| entry["message"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Sets the preferred colour scheme that the page sees.
    pub fn prefer_dark(&self, dark: bool) {
        let scheme = if dark { "dark" } else { "light" };
        let features = json!([{ "name": "prefers-color-scheme", "value": scheme }]);
        let parameters = json!({ "features": features });
        let command = json!({ "cmd": "Emulation.setEmulatedMedia", "params": parameters });
        self.post("/goog/cdp/execute", command);
    }

    /// Sets the size of the page's visible part.
    pub fn resize(&self, width: u32, height: u32) {
        let parameters =
            json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        let command = json!({ "cmd": "Emulation.setDeviceMetricsOverride", "params": parameters });
        self.post("/goog/cdp/execute", command);
    }

    /// A picture of the visible part of the page, as PNG.
    pub fn screenshot(&self) -> Vec<u8> {
        let path = format!("/session/{}/screenshot", self.session);
        from_base64(self.request("GET", &path, None).as_str().unwrap_or_default())
    }

    fn element(&self, selector: &str) -> String {
        let query = json!({ "using": "css selector", "value": selector });
        let found = self.post("/element", query);
        found[ELEMENT].as_str().unwrap_or_else(|| panic!("no {selector}: {found}")).to_owned()
    }

    fn post(&self, path: &str, body: Value) -> Value {
        self.request("POST", &format!("/session/{}{path}", self.session), Some(body))
    }

    /// Sends a command and returns the value of the response. Panics on an error.
    fn request(&self, method: &str, path: &str, body: Option<Value>) -> Value {
        let (status, value) = self
            .try_request(method, path, body.as_ref())
            .unwrap_or_else(|error| panic!("chromedriver: {method} {path}: {error}"));
        assert!(status == 200, "{method} {path} {}: {value}", body.unwrap_or_default());
        value
    }

    /// One request of HTTP/1.1 on a connection of its own.
    fn try_request(
        &self,
        method: &str,
        path: &str,
        body: Option<&Value>,
    ) -> std::io::Result<(u16, Value)> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port))?;
        stream.set_read_timeout(Some(2 * PATIENCE))?;
        let body = body.map(Value::to_string).unwrap_or_default();
        let port = self.port;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n\
             Content-Length: {}\r\nConnection: close\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes())?;
        stream.write_all(body.as_bytes())?;
        let mut reader = BufReader::new(stream);
        let mut line = String::new();
        reader.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok()).unwrap_or(0);
        let mut length = 0;
        loop {
            line.clear();
            if reader.read_line(&mut line)? == 0 || line.trim().is_empty() {
                break;
            }
            if let Some((name, value)) = line.split_once(':') {
                if name.eq_ignore_ascii_case("content-length") {
                    length = value.trim().parse().unwrap_or(0);
                }
            }
        }
        let mut bytes = vec![0; length];
        reader.read_exact(&mut bytes)?;
        let mut answer: Value = serde_json::from_slice(&bytes).unwrap_or_default();
        Ok((status, answer["value"].take()))
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // Chromium ends by itself; what remains is killed below.
            let _ = self.try_request("DELETE", &format!("/session/{}", self.session), None);
        }
        let group = format!("-{}", self.driver.id());
        let _ = Command::new("kill").args(["-9", "--", &group]).stderr(Stdio::null()).status();
        let _ = self.driver.kill();
        let _ = self.driver.wait();
        let _ = fs::remove_dir_all(&self.profile);
    }
}

/// Decodes base64 (RFC 4648, 4), ignoring everything that is not part of its alphabet.
fn from_base64(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    for byte in text.bytes() {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => continue,
        };
        bits = bits << 6 | u32::from(value);
        count += 6;
        if count >= 8 {
            count -= 8;
            bytes.push((bits >> count) as u8);
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn base64_is_decoded() {
        assert_eq!(from_base64("aGVsbG8="), b"hello");
        assert_eq!(from_base64("aGVs\nbG8h"), b"hello!");
        assert_eq!(from_base64(""), b"");
    }
}
