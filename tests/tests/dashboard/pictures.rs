//! The pictures of the documentation: `scripts/screenshots`.

use std::fs;
use std::path::Path;
use std::time::Instant;

use ferroce_test_support::browser::Browser;
use ferroce_test_support::find_program;
use ferroce_tests::running::{Running, listens};

use crate::isolated::{Dashboard, LIMIT};
use crate::wait_for_samples;

/// Runs `ferroce perf`, then perftest beside it, then runs that lose packets. Returns those that still run.
fn start_traffic(dashboard: &Dashboard, browser: &Browser, samples: u32) -> Vec<Running> {
    const PORT: u16 = 18_515;
    let mut running = Vec::new();
    let perf = |arguments: &[&str], faults: &str| {
        let mut command = dashboard.ferroce(&["perf"]);
        command.args(arguments).args(["--events", "--quiet", "--duration", "300s"]);
        command.env("FERROCE_FAULTS", faults);
        Running::start_group(command)
    };
    let first = perf(&["send", "bw", "--size", "4K", "--bidirectional"], "");
    wait_for_samples(browser, samples);
    for peer in [None, Some("127.0.0.1")] {
        let mut command =
            dashboard.ferroce(&["run", "--", "ib_send_bw", "-F", "-e", "-N", "-n", "20000000"]);
        command.args(peer);
        let mut program = Running::start_group(command);
        program.wait_until(
            |server| peer.is_some() || listens(server.id(), PORT),
            Instant::now() + LIMIT,
        );
        running.push(program);
    }
    wait_for_samples(browser, samples);
    drop(first);
    let lossy = perf(&["read", "bw", "--wire"], "loss=1%,seed=1");
    wait_for_samples(browser, samples / 2);
    drop(lossy);
    running.push(perf(&["write", "bw", "--wire", "--tx-depth", "8"], "loss=0.1%,seed=2"));
    wait_for_samples(browser, samples);
    running
}

/// Takes the pictures of `docs/images`. Ignored, because it writes to the repository.
#[test]
#[ignore = "writes docs/images: scripts/screenshots"]
fn screenshots() {
    let (Some(browser), Some(_)) = (Browser::start(), find_program("ib_send_bw")) else { return };
    let Some(dashboard) = Dashboard::start_every("1s", &["--packets", "always"]) else { return };
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/images");
    let save = |name: &str| {
        let picture = browser.screenshot();
        assert!(picture.len() < 200_000, "{name}: {} bytes", picture.len());
        fs::write(folder.join(name), picture).expect("written");
    };
    browser.resize(1280, 800);
    browser.prefer_dark(false);
    dashboard.open(&browser);
    let _traffic = start_traffic(&dashboard, &browser, 30);
    // What the documentation says of the picture.
    let rows = browser.text("#rows");
    assert!(rows.contains("ib_send_bw") && rows.contains("ferroce"), "{rows}");
    assert!(browser.count("#anomalies li.warning") > 0);
    save("dashboard.png");
    browser.prefer_dark(true);
    wait_for_samples(&browser, 1);
    save("dashboard-dark.png");
    browser.prefer_dark(false);
    browser.resize(1280, 640);
    browser.click("#anomalies li.warning button");
    browser.wait_until("return document.querySelector('.rungs .rung.retransmission') !== null");
    browser.value("document.querySelector('.ladder').scrollIntoView({ block: 'end' })");
    save("dashboard-ladder.png");
}
