//! Cancelling threads: `tests/capi/cancel.c`.

use ferroce_tests::c;

fn cancel(case: &str, environment: &[(&str, &str)]) {
    let Some(program) = c::compile("cancel", &["capi/cancel.c"], "rdma/rdma_cma.h") else {
        return;
    };
    let mut command = c::command(&program);
    command.arg(case).envs(environment.iter().copied());
    let output = command.output().expect("the program starts");
    let (said, errors) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{case}: {}\n{said}{errors}", output.status);
}

macro_rules! cases {
    ($($test:ident: $case:literal;)+) => {$(
        #[test]
        fn $test() {
            cancel($case, &[]);
        }
    )+};
}

cases! {
    a_wait_for_a_completion_event_is_cancelled: "get_cq_event";
    a_wait_for_an_async_event_is_cancelled: "get_async_event";
    a_wait_for_a_cm_event_is_cancelled: "get_cm_event";
    a_wait_for_a_connection_request_is_cancelled: "get_request";
    a_thread_that_posts_is_cancelled: "post_send";
    a_thread_that_polls_is_cancelled: "poll_cq";
    a_wait_that_finds_an_event_is_a_cancellation_point: "pending_event";
}

/// They defer cancellation only where they do more than to move packets through shared memory.
#[test]
fn posting_and_polling_are_no_cancellation_points() {
    for link in ["memory", "sockets"] {
        let more = [
            ("FERROCE_LOG", "trace"),
            ("FERROCE_TRACE", "/dev/null"),
            ("FERROCE_FAULTS", "duplication=20%,seed=1"),
            ("FERROCE_SHARDS", "2"),
        ];
        cancel("pending", &[("FERROCE_LOCAL", link)]);
        for one in more {
            cancel("pending", &[("FERROCE_LOCAL", link), one]);
        }
    }
}

/// The tracing function is on the stack, too.
#[test]
fn a_traced_wait_is_cancelled() {
    for case in ["get_cq_event", "get_async_event", "get_cm_event", "get_request"] {
        cancel(case, &[("FERROCE_TRACE", "/dev/null")]);
    }
}
