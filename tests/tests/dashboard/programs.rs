//! Programs that know nothing of Ferroce appear with their names: perftest and Open MPI under `ferroce run`.

use std::time::Instant;

use ferroce_test_support::browser::Browser;
use ferroce_test_support::{find_program, skip};
use ferroce_tests::running::{Running, free_port, listens, turn};
use serde_json::json;

use crate::isolated::{Dashboard, LIMIT};
use crate::{no_complaint, select};

/// Waits until `count` QPs of programs with this name send or receive. perftest leaves the QP of a receiver in RTR.
fn wait_for_traffic(browser: &Browser, name: &str, count: usize) {
    let script = format!(
        "const rows = [...document.querySelectorAll('#rows tr')].map(row => [...row.cells].map(cell => cell.textContent.trim())); \
         return rows.filter(row => row[1].startsWith('{name} ') && /^RT[RS]$/.test(row[3]) && row[5] + row[6] !== '––').length >= {count}"
    );
    browser.wait_until(&script);
}

#[test]
fn perftest_appears_with_its_name() {
    let _turn = turn();
    let (Some(browser), Some(_)) = (Browser::start(), find_program("ib_write_bw")) else { return };
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    let port = free_port();
    let start = |peer: &[&str]| {
        let port = port.to_string();
        let arguments = ["run", "--", "ib_write_bw", "-F", "-D", "100", "-p", &port];
        let mut command = dashboard.ferroce(&arguments);
        command.args(peer);
        Running::start_group(command)
    };
    let mut server = start(&[]);
    server.wait_until(|server| listens(server.id(), port), Instant::now() + LIMIT);
    let _client = start(&["127.0.0.1"]);
    wait_for_traffic(&browser, "ib_write_bw", 2);
    select(&browser, "processes");
    let names =
        "return [...document.querySelectorAll('#rows tr')].map(row => row.cells[1].textContent)";
    assert_eq!(browser.value(names), json!(["ib_write_bw", "ib_write_bw"]));
    let commands = browser
        .value("return [...document.querySelectorAll('#rows .wide')].map(cell => cell.title)");
    let commands = commands.as_array().expect("rows");
    let clients = commands
        .iter()
        .filter(|command| command.as_str().is_some_and(|text| text.ends_with(" 127.0.0.1")));
    assert_eq!(clients.count(), 1, "{commands:?}");
    no_complaint(&browser);
}

/// Two ranks exchange messages until they are killed.
const RANKS: &str = "\
from mpi4py import MPI
world = MPI.COMM_WORLD
message = bytearray(65536)
while True:
    world.Sendrecv_replace(message, 1 - world.rank)
";

#[test]
fn open_mpi_appears_with_its_name() {
    const PYTHON: &str = "/usr/bin/python3";
    let _turn = turn();
    let (Some(browser), Some(_)) = (Browser::start(), find_program("mpirun")) else { return };
    let mut probe = std::process::Command::new(PYTHON);
    if !probe.args(["-c", "import mpi4py.MPI"]).output().is_ok_and(|output| output.status.success())
    {
        return skip("python3-mpi4py is not installed: run `make setup`");
    }
    let Some(dashboard) = Dashboard::start(&[]) else { return };
    dashboard.open(&browser);
    // The options allow running as root, and more ranks than processors.
    let arguments = ["run", "--", "mpirun", "--allow-run-as-root", "--oversubscribe", "-n", "2"];
    let mut command = dashboard.ferroce(&arguments);
    command.args([PYTHON, "-c", RANKS]);
    let _job = Running::start_group(command);
    wait_for_traffic(&browser, "python3", 2);
    select(&browser, "processes");
    let commands = "return [...document.querySelectorAll('#rows .wide')].filter(cell => cell.title.includes('from mpi4py import MPI')).length";
    assert_eq!(browser.value(commands), 2);
    no_complaint(&browser);
}
