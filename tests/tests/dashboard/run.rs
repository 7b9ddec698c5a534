//! The form that runs commands: off by default.

use ferroce_test_support::browser::Browser;
use ferroce_tests::running::turn;

use crate::isolated::Dashboard;
use crate::no_complaint;

#[test]
fn the_form_is_off_unless_it_is_allowed() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    browser.wait_until("return document.querySelector('#run').textContent");
    assert_eq!(
        browser.text("#run"),
        "Start ferroce dashboard --allow-run to run demo, perf and compare from here."
    );
    assert_eq!(browser.count("#run button, #run select"), 0);
    no_complaint(&browser);
}

#[test]
fn the_form_runs_the_demo_and_shows_its_output() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&["--allow-run"]) else { return };
    dashboard.open(&browser);
    browser.wait_until("return document.querySelector('#run-start') !== null");
    let commands =
        "return [...document.querySelectorAll('#run select')[0].options].map(one => one.text)";
    assert_eq!(browser.value(commands), serde_json::json!(["demo", "perf", "compare"]));
    browser.click("#run-start");
    browser
        .wait_until("return document.querySelector('#run-output[data-stage=succeeded]') !== null");
    let output = browser.text("#run-output");
    for part in ["$ ferroce demo --set-up cm --size 16K", "RDMA WRITE", "demo.pcapng"] {
        assert!(output.contains(part), "{part}: {output}");
    }
    assert!(browser.text("#run-status").starts_with("done, "));
    // It can be run again.
    browser.wait_until("return !document.querySelector('#run-start').disabled");
    no_complaint(&browser);
}
