//! Fields that programs read in the public structures: `tests/capi/public_fields.c`.

use ferroce_tests::c;

#[track_caller]
fn run(case: &str) {
    let sources = ["capi/public_fields.c"];
    let Some(program) = c::compile("public_fields", &sources, "infiniband/verbs.h") else { return };
    let output = c::command(&program).arg(case).output().expect("the program starts");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{case}: {}: {said}", output.status);
}

#[test]
fn the_state_changes_only_if_it_is_in_the_mask() {
    run("state");
}

#[test]
fn a_device_has_no_index_in_the_kernel() {
    run("device_index");
}

#[test]
fn cqs_are_spread_over_the_completion_vectors() {
    run("vectors");
}

#[test]
fn acknowledged_completion_events_are_counted() {
    run("completions");
}

#[test]
fn acknowledged_asynchronous_events_are_counted() {
    run("asynchronous");
}
