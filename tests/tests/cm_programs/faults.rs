//! What goes wrong with connections, one case of `faults.c` a line.

use ferroce_tests::{c, managed};

fn run(case: &str) {
    let built =
        c::compile("cm_programs_faults", &["tests/cm_programs/faults.c"], "rdma/rdma_verbs.h");
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
    ipoib,
}
