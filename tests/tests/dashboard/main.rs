//! `ferroce dashboard` in a real browser, with the traffic of real processes.
//!
//! The dashboard shows all processes of a user, so each test runs it in a PID namespace with its own programs only:
//! [`isolated`]. All counts on the page are exact.

mod charts;
mod churn;
mod faults;
mod hostile;
mod isolated;
mod ladder;
mod live;
mod origins;
mod pictures;
mod programs;
mod run;

use ferroce_test_support::browser::Browser;

/// Panics if the console has a warning or an error.
fn no_complaint(browser: &Browser) {
    assert_eq!(browser.console(), Vec::<String>::new());
}

/// Selects a table and waits until it is shown.
fn select(browser: &Browser, view: &str) {
    browser.click(&format!("[data-view={view}]"));
    browser.wait_until(&format!(
        "return document.querySelector('[data-view={view}][aria-selected=true]') !== null"
    ));
}

/// Waits until the page has asked for the state this many times more.
fn wait_for_samples(browser: &Browser, more: u32) {
    // The browser keeps 250 entries.
    browser.value("performance.clearResourceTimings()");
    let entries = "performance.getEntriesByType('resource')";
    let asked = format!("{entries}.filter(entry => entry.name.endsWith('/api/state')).length");
    browser.wait_until(&format!("return {asked} >= {more}"));
}
