//! The rsocket calls, one case of `calls.c`, `epoll.c` or `datagrams.c` per line.

use ferroce_tests::{c, managed};

fn run(source: &str, case: &str) {
    let (name, path) =
        (format!("rsocket_programs_{source}"), format!("tests/rsocket_programs/{source}.c"));
    let Some(program) = c::compile(&name, &[path], "rdma/rsocket.h") else { return };
    let mut command = c::command(&program);
    command.arg(case);
    if case == "stopped" {
        // In shared memory, a stopped process is waited for (docs/one-host.md).
        command.env("FERROCE_LOCAL", "sockets");
    }
    let said = managed::alone(command);
    assert!(said.contains("passed"), "{case} said:\n{said}");
}

macro_rules! cases {
    ($source:ident: $( $case:ident ),+ $(,)?) => {$(
        #[test]
        fn $case() {
            super::run(stringify!($source), stringify!($case));
        }
    )+};
}

mod streams {
    cases! {
        calls:
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
        stopped,
        cycles,
    }
}

mod epoll {
    cases! {
        epoll:
        level,
        edge,
        one_shot,
        mixed,
        added_later,
        closed,
        bad_calls,
    }
}

mod datagrams {
    cases! {
        datagrams:
        peers,
        connected,
        cut,
        too_long,
        does_not_wait,
        vectors,
        families,
        nobody,
        restarted,
        foreign,
        options,
        threads,
        cycles,
    }
}
