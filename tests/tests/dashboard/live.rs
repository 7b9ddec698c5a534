//! Values move while traffic runs, and are zero before and after it.

use std::collections::HashSet;

use ferroce_test_support::browser::Browser;
use ferroce_tests::running::{Running, turn};
use serde_json::Value;

use crate::isolated::Dashboard;
use crate::{no_complaint, select, wait_for_samples};

/// The throughput of the headline.
const HEADLINE: &str = "document.querySelector('.chart .headline b').textContent";

/// The cells of the QP table by row, each a text.
const ROWS: &str = "[...document.querySelectorAll('#rows tr')].map(row => [...row.cells].map(cell => cell.textContent.trim()))";

/// The line of the sent bits in the throughput chart.
const LINE: &str = "document.querySelector('.plot.mirror path.line').getAttribute('d')";

#[test]
fn values_move_while_traffic_runs() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    assert_eq!(browser.text("#counts"), "0 processes · 0 QPs · 0 B registered");
    assert!(browser.text("#note").contains("No process has a device open"));
    browser.wait_until(&format!("return {HEADLINE} === '0'"));

    let traffic = ["perf", "write", "bw", "--events", "--quiet", "--duration", "200s"];
    let mut traffic = Running::start_group(dashboard.ferroce(&traffic));
    // Both QPs, once they send: each names the other as its peer.
    let both = format!(
        "const rows = {ROWS}; return rows.length === 2 && rows.every(row => row[3] === 'RTS') && rows[0][5] !== '–' && rows"
    );
    let rows = browser.wait_until(&both);
    let cell = |row: usize, column: usize| rows[row][column].as_str().expect("a text");
    for (own, other) in [(0, 1), (1, 0)] {
        assert!(cell(own, 1).starts_with("ferroce "), "{rows}");
        assert_eq!(cell(own, 2), "RC shm", "{rows}");
        assert_eq!(cell(own, 4), format!("127.0.0.1 {}", cell(other, 0)), "{rows}");
    }
    assert!(
        browser.text("#counts").starts_with("2 processes · 2 QPs"),
        "{}",
        browser.text("#counts")
    );

    // The headline and the line of the chart change with every sample.
    let mut seen = [HEADLINE, LINE].map(|_| HashSet::new());
    for _ in 0..3 {
        for (script, seen) in [HEADLINE, LINE].iter().zip(&mut seen) {
            let known: Vec<&String> = seen.iter().collect();
            let known = serde_json::to_string(&known).expect("JSON");
            let other = format!(
                "const now = {script}; return now && now !== '0' && !{known}.includes(now) && now"
            );
            let Value::String(now) = browser.wait_until(&other) else { panic!("no text") };
            seen.insert(now);
        }
    }
    browser.wait_until("return document.querySelector('.plot.band path.line').getAttribute('d')");

    for (view, rows) in [("processes", 2), ("devices", 2), ("cqs", 2), ("mrs", 2)] {
        select(&browser, view);
        let shown = browser.count("#rows tr");
        assert!(shown >= rows, "{view}: {shown}");
        assert_eq!(browser.text(&format!("[data-view={view}] .badge")), shown.to_string());
    }

    traffic.kill();
    browser.wait_until(&format!("return {HEADLINE} === '0'"));
    browser.wait_until("return document.querySelectorAll('#rows tr').length === 0");
    assert_eq!(browser.text("#counts"), "0 processes · 0 QPs · 0 B registered");
    no_complaint(&browser);
}

#[test]
fn the_filter_sorting_and_pause_work_while_values_move() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    let traffic =
        ["perf", "send", "lat", "--events", "--quiet", "--qps", "4", "--duration", "200s"];
    let _traffic = Running::start_group(dashboard.ferroce(&traffic));
    browser.wait_until(&format!("return {ROWS}.filter(row => row[3] === 'RTS').length === 8"));
    browser.click("#head th:nth-child(1) button");
    let numbers = format!("return {ROWS}.map(row => row[0])");
    let ascending = browser.value(&numbers);
    browser.click("#head th:nth-child(1) button");
    let mut reversed = browser.value(&numbers);
    reversed.as_array_mut().expect("rows").reverse();
    assert_eq!(ascending, reversed);
    let one = ascending[0].as_str().expect("a QPN");
    browser.type_into("#filter", &format!("rts {one}"));
    // The QP itself, and the one that has it as its peer.
    browser.wait_until("return document.querySelectorAll('#rows tr').length === 2");
    browser.type_into("#filter", " nothing");
    browser.wait_until(
        "return document.querySelector('#note').textContent === 'No row matches the filter.'",
    );

    browser.click("#pause");
    browser.wait_until("return document.querySelector('#live-text').textContent === 'paused'");
    let line = browser.value(&format!("return {LINE}"));
    // The page goes on asking for samples: several arrive.
    wait_for_samples(&browser, 4);
    // The pointer over a chart draws it anew.
    browser.value("document.querySelector('.plot').dispatchEvent(new PointerEvent('pointermove', { clientX: 200, clientY: 120 }))");
    assert_eq!(browser.value(&format!("return {LINE}")), line);
    browser.click("#pause");
    browser.wait_until(&format!("return {LINE} !== {line}"));
    no_complaint(&browser);
}
