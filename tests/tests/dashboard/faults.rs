//! Injected loss is explained, and leads to the QP that it concerns.

use ferroce_test_support::browser::Browser;
use ferroce_tests::running::{Running, turn};

use crate::isolated::Dashboard;
use crate::no_complaint;

#[test]
fn loss_is_explained_and_a_click_opens_its_queue_pair() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&["--packets", "always"]) else { return };
    dashboard.open(&browser);
    assert!(browser.text("#no-anomalies").starts_with("Nothing to report"));
    let traffic = ["perf", "write", "bw", "--wire", "--events", "--quiet", "--duration", "200s"];
    let mut command = dashboard.ferroce(&traffic);
    command.env("FERROCE_FAULTS", "loss=5%,seed=7");
    let _traffic = Running::start_group(command);

    const RETRANSMISSION: &str = "#anomalies li.warning[data-counter=retrans_pkts]";
    browser.wait_until(&format!("return document.querySelector('{RETRANSMISSION}') !== null"));
    // The chart of faults has bars, and its headline warns.
    browser.wait_until("return document.querySelector('.plot.bars path.fill').getAttribute('d')");
    browser.wait_until("return document.querySelector('.headline.alarm') !== null");
    // From here on nothing moves, so that the click meets what is read.
    browser.click("#pause");
    browser.wait_until("return document.querySelector('#live-text').textContent === 'paused'");
    let text = browser.text(RETRANSMISSION);
    assert!(text.starts_with("Retransmission\n× "), "{text}");
    assert!(
        text.contains("Packets were sent again, because they or their ACKs were lost"),
        "{text}"
    );
    let qpn = text.split("QP ").nth(1).and_then(|rest| rest.split(' ').next()).expect("a QPN");
    assert!(browser.text("#anomalies").contains("FERROCE_FAULTS is set"));

    browser.click(&format!("{RETRANSMISSION} button"));
    browser.wait_until("return document.querySelectorAll('#detail[open] .facts dd').length > 5");
    let title = browser.text("#detail h2");
    assert_eq!(title, format!("QP {qpn} · RC"));
    assert!(browser.text("#detail .why").starts_with("Retransmission × "));
    let drawer = browser.text("#detail");
    for part in ["127.0.0.1 · QP 0x", "sockets, MTU 4096", "WRITE", "retrans_pkts", "p99.9"] {
        assert!(drawer.contains(part), "{part}: {drawer}");
    }
    assert!(browser.count("#detail .histogram i") > 0);
    // The packets around a loss, of which some were sent again.
    browser.wait_until("return document.querySelector('.rungs .rung.retransmission') !== null");
    assert_eq!(browser.text(".ladder [aria-selected=true]"), "Around losses and NAKs");
    assert!(browser.text(".rungs .rung.retransmission").contains("sent again"));
    browser.click("#detail .bar button");
    browser.wait_until("return document.querySelector('#detail[open]') === null");
    no_complaint(&browser);
}
