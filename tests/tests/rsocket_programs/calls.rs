//! The calls, one case of `calls.c` a line.

use ferroce_tests::{c, managed};

fn run(case: &str) {
    let built =
        c::compile("rsocket_programs_calls", &["tests/rsocket_programs/calls.c"], "rdma/rsocket.h");
    let Some(program) = built else { return };
    let mut command = c::command(&program);
    command.arg(case);
    let said = managed::alone(command);
    assert!(said.contains("as it should be"), "{case} said:\n{said}");
}

macro_rules! cases {
    ($( $case:ident ),+ $(,)?) => {$(
        #[test]
        fn $case() {
            run(stringify!($case));
        }
    )+};
}

cases! {
    refused,
    nonblocking,
    partial,
    shut_down,
    closed,
    vectors,
    selected,
    options,
    mapped,
    threads,
    bad_calls,
    killed,
    cycles,
}
