//! Processes that end disappear, and those that come and go leave the counts right.

use std::collections::HashSet;

use ferroce_test_support::browser::Browser;
use ferroce_test_support::built;
use ferroce_tests::running::{Running, turn};
use serde_json::Value;

use crate::isolated::Dashboard;
use crate::{no_complaint, select};

/// Only the idle server is left.
const ONE: &str =
    "return document.querySelector('#counts').textContent.startsWith('1 process · 1 QP ')";

/// All tables.
const VIEWS: [&str; 5] = ["qps", "processes", "cqs", "mrs", "devices"];

#[test]
fn a_killed_process_disappears_from_all_tables() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    let _idle = Running::start_group(dashboard.ferroce(&["server", "--listen", "127.0.0.1:0"]));
    browser.wait_until(ONE);
    let of_idle = VIEWS.map(|view| browser.text(&format!("[data-view={view}] .badge")));
    let traffic = ["perf", "write", "bw", "--events", "--quiet", "--duration", "200s"];
    let _traffic = Running::start_group(dashboard.ferroce(&traffic));
    // The idle server has a QP in INIT.
    let rows = "[...document.querySelectorAll('#rows tr')].filter(row => row.cells[3].textContent === 'RTS')";
    browser.wait_until(&format!("return {rows}.length === 2"));
    let keys = browser.value(&format!("return {rows}.map(row => row.dataset.key)"));
    let keys: Vec<&str> = keys.as_array().expect("rows").iter().filter_map(Value::as_str).collect();
    // The drawer of a QP is open while its process is killed. Rows that are sorted by QPN stay where they are.
    browser.click("#head th:nth-child(1) button");
    browser.click(&format!("#rows tr[data-key='{}']", keys[0]));
    browser.wait_until("return document.querySelectorAll('#detail[open] .facts dd').length > 5");
    no_complaint(&browser);
    let pids: Vec<&str> = keys.iter().filter_map(|key| key.split('/').next()).collect();
    let mut kill = dashboard.command("kill");
    // The second may have ended by itself before its turn.
    kill.arg("-9").args(&pids).status().expect("kill runs");
    browser.wait_until(ONE);
    let gone = "const note = document.querySelector('#detail .problem'); return !note.hidden && note.textContent.startsWith('This queue pair does not exist any more')";
    browser.wait_until(gone);
    crate::wait_for_samples(&browser, 4);
    browser.click("#detail .bar button");
    assert_eq!(VIEWS.map(|view| browser.text(&format!("[data-view={view}] .badge"))), of_idle);
    for (view, count) in VIEWS.iter().zip(&of_idle) {
        select(&browser, view);
        assert_eq!(browser.count("#rows tr").to_string(), *count, "{view}");
    }
    // The browser reports the answer "404" once, and the page does not ask again.
    let complaints = browser.console();
    assert!(complaints.len() == 1 && complaints[0].contains("/api/qp?key="), "{complaints:?}");
}

/// Ten times twenty, each of which has a device, a CQ and a QP.
#[test]
fn two_hundred_short_processes_leave_the_counts_right() {
    const AT_ONCE: usize = 20;
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    let server = ["server", "--listen", "127.0.0.1:0"];
    let _idle = [(); 2].map(|()| Running::start_group(dashboard.ferroce(&server)));
    dashboard.open(&browser);
    select(&browser, "processes");
    // Waits until the table has this many processes, as its badge and the header say, and none of those that have ended.
    let shown = |count: usize, ended: &HashSet<String>| {
        let ended = serde_json::to_string(ended).expect("JSON");
        let script = format!(
            "const pids = [...document.querySelectorAll('#rows tr')].map(row => row.dataset.key); \
             const badge = document.querySelector('[data-view=processes] .badge').textContent; \
             const header = document.querySelector('#counts').textContent; \
             return pids.length === {count} && !pids.some(pid => {ended}.includes(pid)) && badge === '{count}' && header.startsWith('{count} processes · {count} QPs') && pids"
        );
        let pids = browser.wait_until(&script);
        let pids = pids.as_array().expect("rows").iter().filter_map(Value::as_str);
        pids.map(str::to_owned).collect::<HashSet<_>>()
    };
    let badges = || VIEWS.map(|view| browser.text(&format!("[data-view={view}] .badge")));
    let mut ended = HashSet::new();
    let (idle, before) = (shown(2, &ended), badges());
    for _ in 0..10 {
        let mut command = dashboard.command("sh");
        let start = format!("for _ in $(seq {AT_ONCE}); do \"$@\" & done; wait");
        command.args(["-c", &start, "sh"]).arg(built::folder().join("ferroce")).args(server);
        let batch = Running::start_group(command);
        let now = shown(AT_ONCE + 2, &ended);
        assert!(now.is_superset(&idle), "{now:?}");
        ended.extend(now.difference(&idle).cloned());
        drop(batch);
    }
    assert_eq!((shown(2, &ended), badges()), (idle, before));
    assert_eq!(ended.len(), 10 * AT_ONCE);
    no_complaint(&browser);
}
