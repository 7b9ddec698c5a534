//! Tests of the network namespace and of skips. Child processes run an ignored test of this binary.

use std::env;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::{TcpListener, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use ferroce_test_support::browser::Browser;
use ferroce_test_support::{find_program, namespace, skip};

/// Returns a command that runs one ignored test of this binary.
fn child(test: &str) -> Command {
    let mut command = Command::new(env::current_exe().unwrap());
    command.args([test, "--exact", "--ignored", "--nocapture"]).stdin(Stdio::null());
    for name in ["CI", "FERROCE_REQUIRE_ALL", "FERROCE_TEST_NOTES"] {
        command.env_remove(name);
    }
    command
}

fn namespace_of(process: &str) -> PathBuf {
    fs::read_link(format!("/proc/{process}/ns/net")).unwrap()
}

/// The loopback is up, and there are no other interfaces.
#[test]
fn a_test_has_its_own_network_namespace() {
    if !namespace::is_own() {
        return skip("cannot create a network namespace here");
    }
    let table = fs::read_to_string("/proc/net/dev").unwrap();
    let names: Vec<_> = table.lines().filter_map(|line| line.split_once(':')).collect();
    let names: Vec<_> = names.into_iter().map(|(name, _)| name.trim()).collect();
    assert_eq!(names, ["lo"]);
    assert_eq!(fs::read_dir("/sys/class/net").unwrap().count(), 1);
    let socket = UdpSocket::bind("127.0.0.1:4792").unwrap();
    socket.send_to(b"to itself", "127.0.0.1:4792").unwrap();
    assert_eq!(socket.recv(&mut [0; 16]).unwrap(), 9);
}

/// Another process of the machine may hold every port that programs here use by default.
#[test]
fn a_port_in_use_outside_is_free_inside() {
    if !namespace::is_own() {
        return skip("cannot create a network namespace here");
    }
    let mut outsider = child("holder");
    outsider.env_remove(namespace::VARIABLE).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut outsider = outsider.spawn().unwrap();
    let mut lines = BufReader::new(outsider.stdout.take().unwrap()).lines().map_while(Result::ok);
    assert!(lines.any(|line| line == "held"));
    assert_ne!(namespace_of(&outsider.id().to_string()), namespace_of("self"));
    let _tcp = TcpListener::bind("0.0.0.0:7471").unwrap();
    let _udp = UdpSocket::bind("0.0.0.0:4791").unwrap();
    drop(outsider.stdin.take());
    assert!(outsider.wait().unwrap().success());
}

#[test]
#[ignore = "a child process of another test"]
fn holder() {
    let _tcp = TcpListener::bind("0.0.0.0:7471").unwrap();
    let _udp = UdpSocket::bind("0.0.0.0:4791").unwrap();
    println!("\nheld");
    std::io::stdin().read_to_end(&mut Vec::new()).unwrap();
}

/// A test binary that starts itself can reach the child.
#[test]
fn a_child_process_stays_in_the_namespace_of_its_parent() {
    let output = child("prints_its_namespace").output().unwrap();
    let stdout = String::from_utf8(output.stdout).unwrap();
    let own = format!("namespace {}", namespace_of("self").display());
    assert!(stdout.lines().any(|line| line == own), "{own}: {stdout}");
}

#[test]
#[ignore = "a child process of another test"]
fn prints_its_namespace() {
    println!("\nnamespace {}", namespace_of("self").display());
}

/// Names of `ip netns` are private to one test, and disappear when it is killed.
#[test]
fn named_namespaces_are_not_visible_outside() {
    if !namespace::is_own() || find_program("ip").is_none() {
        return;
    }
    let run = |arguments: &[&str]| Command::new("ip").args(arguments).output().unwrap();
    assert!(run(&["netns", "add", "ferroce-seen"]).status.success());
    let inside = String::from_utf8(run(&["netns", "list"]).stdout).unwrap();
    assert!(inside.lines().any(|line| line.starts_with("ferroce-seen")), "{inside}");
    // The process that started this test is in the outer mount namespace.
    let parent = Path::new("/proc").join(std::os::unix::process::parent_id().to_string());
    assert!(!parent.join("root/run/netns/ferroce-seen").exists());
}

#[test]
#[ignore = "a child process of another test"]
fn skips() {
    skip("a tool is\nmissing");
}

#[test]
fn a_skip_leaves_a_note() {
    let notes = env::temp_dir().join(format!("ferroce-notes-{}", std::process::id()));
    assert!(child("skips").env("FERROCE_TEST_NOTES", &notes).status().unwrap().success());
    let text = fs::read_to_string(&notes).unwrap();
    fs::remove_file(&notes).unwrap();
    assert_eq!(text, "skipped\tsupport skips\ta tool is missing\n");
}

#[test]
fn a_skip_fails_the_test_where_all_tests_are_required() {
    let fails =
        |name: &str, value: &str| !child("skips").env(name, value).status().unwrap().success();
    assert!(!fails("CI", ""));
    assert!(fails("CI", "true"));
    assert!(fails("FERROCE_REQUIRE_ALL", "1"));
    let both = [("CI", "true"), ("FERROCE_REQUIRE_ALL", "0")];
    assert!(child("skips").envs(both).status().unwrap().success());
}

/// The browser runs scripts, clicks, types, reports errors of the console, and its processes end with it.
#[test]
fn a_browser_opens_a_page() {
    let Some(browser) = Browser::start() else { return };
    let page = env::temp_dir().join(format!("ferroce-browser-test-{}.html", std::process::id()));
    let body = "<h1>Before</h1><input><button onclick=\"document.querySelector('h1').textContent = \
                document.querySelector('input').value; nonsense()\">Go</button>";
    fs::write(&page, body).unwrap();
    let url = format!("file://{}", page.display());
    browser.open(&url);
    assert_eq!((browser.text("h1").as_str(), browser.console()), ("Before", Vec::new()));
    browser.type_into("input", "After");
    browser.click("button");
    browser.wait_until("return document.querySelector('h1').textContent == 'After'");
    let errors = browser.console();
    assert!(errors.len() == 1 && errors[0].contains("nonsense is not defined"), "{errors:?}");
    assert_eq!(browser.execute("return arguments[0] + 1", serde_json::json!([41])), 42);
    let dark = "return matchMedia('(prefers-color-scheme: dark)').matches";
    browser.prefer_dark(true);
    assert_eq!(browser.value(dark), true);
    assert!(browser.screenshot().starts_with(b"\x89PNG"));
    let marker = format!("ferroce-browser-{}-", std::process::id());
    let processes = || {
        let all = fs::read_dir("/proc").unwrap().filter_map(Result::ok);
        let lines = all.filter_map(|process| fs::read(process.path().join("cmdline")).ok());
        lines.filter(|line| String::from_utf8_lossy(line).contains(&marker)).count()
    };
    assert!(processes() > 0);
    drop(browser);
    // The kernel removes killed processes soon after.
    let end = Instant::now() + Duration::from_secs(30);
    while processes() > 0 && Instant::now() < end {
        thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(processes(), 0);
    fs::remove_file(page).unwrap();
}
