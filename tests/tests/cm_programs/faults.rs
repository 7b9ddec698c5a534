//! Connection failures, one case of `faults.c` or `routes.c` per line.

use std::process::Command;

use ferroce_tests::hosts::Hosts;
use ferroce_tests::{c, managed};

/// Compiles and runs a case, with its command wrapped by `place`.
fn run_in(program: &str, case: &str, wrap: impl FnOnce(Command) -> Command) {
    let source = format!("tests/cm_programs/{program}.c");
    let built = c::compile(&format!("cm_programs_{program}"), &[source], "rdma/rdma_verbs.h");
    let Some(program) = built else { return };
    let mut command = wrap(c::command(&program));
    // Memory that threads cache for their next allocation would count as used.
    command.arg(case).env("GLIBC_TUNABLES", "glibc.malloc.tcache_count=0");
    let said = managed::alone(command);
    assert!(said.contains("passed"), "{case} said:\n{said}");
}

fn run(program: &str, case: &str) {
    run_in(program, case, |command| command);
}

/// Between two hosts.
#[test]
fn gone() {
    let Some(hosts) = Hosts::new("gone").map(Hosts::with_ipv6) else { return };
    run_in("routes", "gone", |command| hosts.command(0, &command));
}

macro_rules! cases {
    ($program:literal: $( $case:ident ),+ $(,)?) => {$(
        #[test]
        fn $case() {
            run($program, stringify!($case));
        }
    )+};
}

cases! {
    "faults":
    no_listener,
    synchronous_refused,
    private_data,
    enhancements,
    addresses,
    wrong_order,
    unacknowledged,
    migration,
    names,
    cycles,
}

cases! {
    "routes":
    ipoib,
    paths,
}
