//! The pictures of the documentation: `scripts/screenshots`.

use std::fs;
use std::path::Path;

use ferroce_test_support::browser::Browser;

use crate::{Scratch, rxe};

/// Takes the pictures of `docs/images`. Ignored, because it writes to the repository.
#[test]
#[ignore = "writes docs/images: scripts/screenshots"]
fn screenshots() {
    let Some(browser) = Browser::start() else { return };
    let scratch = Scratch::new("pictures");
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    fs::create_dir_all(&folder).expect("docs/images");
    let save = |name: &str| {
        // Chart hovers and smooth scrolling have ended.
        browser.wait_until("return new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))");
        let picture = browser.screenshot();
        assert!(picture.len() < 200_000, "{name}: {} bytes", picture.len());
        fs::write(folder.join(name), picture).expect("written");
    };
    let show = |selector: &str| {
        browser.value(&format!("document.documentElement.style.scrollBehavior = 'auto'; document.querySelector('{selector}').scrollIntoView()"));
    };
    browser.resize(1280, 800);
    browser.prefer_dark(false);
    scratch.ferroce(&[
        "simulate",
        "--scenario",
        "lossy:0.02",
        "--seed",
        "42",
        "--service",
        "rc",
        "--connections",
        "6",
        "--requests",
        "120",
        "--set-up",
        "cm",
        "--capture",
        "loss.pcapng",
    ]);
    scratch.open(&browser, &[Path::new("loss.pcapng")]);
    save("report.png");
    show("#timeline");
    save("report-traffic.png");
    // A copy, so that the page shows a short name.
    fs::copy(rxe("loss_requests"), scratch.path("requests.pcap")).expect("copied");
    scratch.open(&browser, &[Path::new("requests.pcap")]);
    browser.value("document.querySelector('#ladder-1').open = true");
    browser.wait_until("return document.querySelectorAll('.lrow').length > 20");
    show(".lrow[data-packet=\"26\"]");
    save("report-ladder.png");
    browser.value("location.hash = '#packet-34'");
    browser.wait_until("return document.querySelector('aside')");
    // Without the rows behind it, which the picture above has, and with the height of what it shows.
    browser.value("document.querySelector('#ladder-1').open = false");
    show("#ladder-1");
    browser.resize(1280, 640);
    save("report-packet.png");
    browser.resize(1280, 800);
    browser.prefer_dark(true);
    scratch.open(&browser, &[Path::new("loss.pcapng")]);
    show("#latency");
    save("report-dark.png");
}
