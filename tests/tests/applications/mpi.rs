//! Open MPI ranks over UCX, which compare the data they exchange.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use super::hosts::{Hosts, ferroce, has, plain};
use super::pair::LIMIT;
use ferroce_test_support::skip;
use ferroce_tests::running::{Running, turn};

const PYTHON: &str = "/usr/bin/python3";

fn file(path: &str) -> String {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    root.join(path).canonicalize().expect("it is in the repository").display().to_string()
}

/// Whether everything is installed; skips if not.
pub(crate) fn is_there() -> bool {
    let mut python = Command::new(PYTHON);
    let found = python.args(["-c", "import mpi4py.MPI"]).stderr(Stdio::null()).status();
    let found = found.is_ok_and(|status| status.success());
    if !found {
        skip("python3-mpi4py is not installed: run `make setup`");
    }
    found && has("mpirun")
}

/// Returns the command for ranks on one host. The options allow running as root, and more ranks than processors.
pub(crate) fn one_host(hosts: &Hosts, ranks: usize, arguments: &[&str]) -> Command {
    let mut command = hosts.program(0, "mpirun");
    self::arguments(&mut command, ranks, arguments);
    command
}

/// Adds the arguments of `mpirun`.
pub(crate) fn arguments(command: &mut Command, ranks: usize, arguments: &[&str]) {
    script(command, ranks, "examples/mpi/ranks.py", arguments);
}

/// Adds the arguments of `mpirun` for a script.
pub(crate) fn script(command: &mut Command, ranks: usize, script: &str, arguments: &[&str]) {
    command.args(["--allow-run-as-root", "--oversubscribe", "-n", &ranks.to_string()]);
    command.args([PYTHON, &file(script)]).args(arguments);
}

/// Returns the command for ranks on two hosts, by the script that users start with.
pub(crate) fn two_hosts(ranks: usize, arguments: &[&str]) -> Command {
    let mut command = Command::new(file("scripts/mpi-two-hosts"));
    plain(&mut command);
    command.arg((ranks / 2).to_string());
    command.args([PYTHON, &file("examples/mpi/ranks.py")]).args(arguments);
    command.env("FERROCE", ferroce().canonicalize().expect("it is built"));
    command
}

fn check(mut command: Command, ranks: usize, faults: Option<&str>) {
    command.env("UCX_LOG_LEVEL", "info");
    // Freed memory is overwritten, so that a use after free does not succeed by luck.
    command.env("MALLOC_PERTURB_", "165").env("MALLOC_MMAP_THRESHOLD_", "33554432");
    let passed_on =
        ["UCX_LOG_LEVEL", "FERROCE_FAULTS", "MALLOC_PERTURB_", "MALLOC_MMAP_THRESHOLD_"];
    command.env("MPI_OPTIONS", format!("--oversubscribe -x {}", passed_on.join(" -x ")));
    command.envs(faults.map(|faults| ("FERROCE_FAULTS", faults)));
    let said = Running::start_group(command).finish(Instant::now() + LIMIT);
    assert!(said.contains(&format!("{ranks} ranks: all results correct")), "{said}");
    // UCX logs its transports: to other ranks it uses only ours.
    let transports = said.lines().filter(|line| line.contains("ep_cfg[") && line.contains("tag("));
    let ours = transports.clone().filter(|line| line.contains("rc_verbs/ferroce_eth0:1")).count();
    assert!(ours >= ranks && ours == transports.count(), "other transports: {said}");
}

fn on_one(ranks: usize, faults: Option<&str>) {
    let _turn = turn();
    let Some(hosts) = Some(()).filter(|()| is_there()).and_then(|()| Hosts::new()) else { return };
    check(one_host(&hosts, ranks, &[]), ranks, faults);
}

fn on_two(ranks: usize, faults: Option<&str>) {
    let _turn = turn();
    // The script creates its own hosts: if these can be created, those can.
    if is_there() && Hosts::new().is_some() {
        check(two_hosts(ranks, &[]), ranks, faults);
    }
}

macro_rules! ranks {
    ($( $test:ident: $place:ident $ranks:literal $faults:expr; )+) => {$(
        #[test]
        fn $test() {
            $place($ranks, $faults);
        }
    )+};
}

#[rustfmt::skip]
ranks! {
    two_ranks_on_one_host:          on_one 2 None;
    four_ranks_on_two_hosts:        on_two 4 None;
    two_ranks_on_two_hosts_loss:    on_two 2 Some("loss=1%,seed=3");
}

mod full {
    use super::*;

    #[rustfmt::skip]
    ranks! {
        four_ranks_on_one_host:         on_one 4 None;
        eight_ranks_on_one_host:        on_one 8 None;
        two_ranks_on_two_hosts:         on_two 2 None;
        eight_ranks_on_two_hosts:       on_two 8 None;
        two_ranks_on_one_host_loss:     on_one 2 Some("loss=1%,seed=1");
        four_ranks_on_one_host_loss:    on_one 4 Some("loss=1%,seed=2");
        four_ranks_on_two_hosts_loss:   on_two 4 Some("loss=1%,seed=4");
        eight_ranks_on_one_host_loss:   on_one 8 Some("loss=1%,seed=5");
        eight_ranks_on_two_hosts_loss:  on_two 8 Some("loss=1%,seed=6");
    }
}
