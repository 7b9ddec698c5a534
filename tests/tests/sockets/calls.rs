//! The socket calls, by the cases of `calls.c`, `epoll.c` and `processes.c`.

use ferroce_tests::c;
use ferroce_tests::running::turn;

use super::run;

const CASES: [&str; 18] = [
    "streams",
    "large",
    "files",
    "nonblocking",
    "epoll_levels",
    "epoll_edges",
    "epoll_edges_of_threads",
    "epoll_members_first",
    "selected",
    "interrupted",
    "copies",
    "cycles",
    "many",
    "closed_without_waiting",
    "forked",
    "forked_listener",
    "fallback",
    "families",
];

#[test]
fn calls() {
    let sources = ["calls", "epoll", "processes"].map(|name| format!("tests/sockets/{name}.c"));
    let Some(program) = c::compile("sockets_calls", &sources, "stdio.h") else { return };
    let _turn = turn();
    for case in CASES {
        let mut command = std::process::Command::new(&program);
        command.arg(case);
        let said = run::finish(run::over_rdma(&command, None));
        assert!(said.contains(&format!("{case} passed")), "{case}: {said}");
    }
}
