//! The packets of a queue pair as a ladder.

use ferroce_test_support::browser::Browser;
use ferroce_tests::running::{Running, turn};

use crate::isolated::Dashboard;
use crate::no_complaint;

#[test]
fn the_last_packets_are_drawn_and_explained() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    let traffic = ["perf", "send", "lat", "--wire", "--events", "--quiet", "--duration", "200s"];
    let mut traffic = Running::start_group(dashboard.ferroce(&traffic));
    browser.wait_until("return document.querySelectorAll('#rows tr').length === 2");
    browser.click("#rows tr");
    let drawn =
        |kind: &str| format!("return document.querySelectorAll('.rungs {kind}').length > 3");
    for kind in [".rung.sent", ".rung.received", ".rung.acknowledgement", ".rung.request"] {
        browser.wait_until(&drawn(kind));
    }
    let first = "document.querySelector('.rungs .rung.request b').textContent";
    let before = browser.value(first);
    // New packets replace those of before.
    browser.wait_until(&format!("const now = {first}; return now !== {before} && now"));
    assert!(browser.text(".rungs").contains("RC SEND Only PSN 0x"), "{}", browser.text(".rungs"));
    assert!(browser.text("#detail .ends").starts_with("QP 0x"));

    // While the pointer is on them, they stay.
    browser
        .value("document.querySelector('.rungs').dispatchEvent(new PointerEvent('pointerenter'))");
    browser.value("document.querySelector('.rungs .rung.acknowledgement').click()");
    browser.wait_until("return document.querySelectorAll('.rungs .chosen').length === 1");
    let meaning = browser.text("#detail .meaning");
    assert!(meaning.contains("arrived and was executed"), "{meaning}");

    no_complaint(&browser);
    // What was sent last stays when the process is gone.
    traffic.kill();
    browser.wait_until("return document.querySelector('#detail .problem').textContent !== ''");
    assert!(browser.count(".rungs .rung") > 3);
}

#[test]
fn without_packets_the_ladder_says_why() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&["--packets", "never"]) else { return };
    dashboard.open(&browser);
    let traffic = ["perf", "send", "lat", "--events", "--quiet", "--duration", "200s"];
    let _traffic = Running::start_group(dashboard.ferroce(&traffic));
    browser.wait_until("return document.querySelectorAll('#rows tr').length === 2");
    browser.click("#rows tr");
    let said = "document.querySelector('#detail .meaning').textContent";
    browser.wait_until(&format!("return {said}.includes('--packets never')"));
    assert_eq!(browser.count(".rungs .rung"), 0);
}
