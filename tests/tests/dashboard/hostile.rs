//! What a process is called is shown as text.

use std::fs;
use std::os::unix::fs::symlink;

use ferroce_test_support::browser::Browser;
use ferroce_test_support::built;
use ferroce_tests::running::{Running, turn};

use crate::isolated::Dashboard;
use crate::{no_complaint, select};

/// The kernel keeps 15 bytes of a name: this is a whole element.
const SHORT: &str = "<i id=hacked>";

/// The command line has all of it.
const LONG: &str = "<img src=x onerror=window.hacked=1>";

#[test]
fn markup_in_names_is_shown_as_text() {
    let _turn = turn();
    let Some(browser) = Browser::start() else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    let folder =
        std::env::temp_dir().join(format!("ferroce-dashboard-test-{}", std::process::id()));
    fs::create_dir(&folder).expect("a folder");
    let named = |name: &str, arguments: &[&str]| {
        symlink(built::folder().join("ferroce"), folder.join(name)).expect("a link");
        let mut command = dashboard.command(folder.join(name));
        command.args(arguments).env("FERROCE_FAULTS", "loss=5%,seed=7");
        Running::start_group(command)
    };
    dashboard.open(&browser);
    let traffic = ["perf", "write", "bw", "--wire", "--events", "--quiet", "--duration", "200s"];
    let _short = named(SHORT, &traffic);
    let _long = named(LONG, &["server", "--listen", "127.0.0.1:0"]);

    let wait_for = |selector: &str, text: &str| {
        browser.wait_until(&format!(
            "return [...document.querySelectorAll('{selector}')].some(one => one.textContent.includes('{text}'))"
        ));
    };
    wait_for("#rows td", SHORT);
    wait_for("#anomalies .anomaly", SHORT);
    for view in ["processes", "cqs", "mrs", "devices"] {
        select(&browser, view);
        wait_for("#rows td", SHORT);
    }
    select(&browser, "processes");
    wait_for("#rows td.wide", LONG);
    wait_for("#rows td.strong", &LONG[..15]);
    // The drawer of a QP with this name.
    select(&browser, "qps");
    browser.type_into("#filter", SHORT);
    browser.wait_until("return document.querySelectorAll('#rows tr').length === 1");
    browser.click("#rows tr");
    wait_for("#detail[open] .facts dd", SHORT);
    assert_eq!(browser.count("#hacked, img:not(.brand img):not(.figure), td i:not(.load)"), 0);
    assert_eq!(browser.value("return window.hacked === undefined"), true);
    // A violation of the page's policy would be reported here as well.
    no_complaint(&browser);
    fs::remove_dir_all(&folder).expect("removed");
}
